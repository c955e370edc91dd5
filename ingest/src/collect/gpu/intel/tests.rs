//! Idle time as utilisation, energy as power, and reasons as time.
