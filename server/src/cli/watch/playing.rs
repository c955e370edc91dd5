//! A saved job that is played: its time goes on from its beginning, slower or faster than it did.

use std::time::Duration;

/// How often faster than it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Playing {
    pub speed: f64,
}

impl Playing {
    /// The time that a play has come to, so long after its start.
    pub fn time_us(self, first_us: i64, elapsed: Duration) -> i64 {
        first_us.saturating_add((elapsed.as_secs_f64() * self.speed * 1e6) as i64)
    }
}

/// # Errors
/// A sentence for the user.
pub fn playing(text: &str) -> Result<Playing, String> {
    let number: Option<f64> = text.strip_suffix('x').unwrap_or(text).parse().ok();
    let speed = number.filter(|number| (0.01..=1e6).contains(number));
    speed.map(|speed| Playing { speed }).ok_or_else(|| format!("'{text}' is not a speed; write 1, 0.5 or 60"))
}
