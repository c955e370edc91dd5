//! Limits and validation: good samples go on, each bad one comes back with its reason.
