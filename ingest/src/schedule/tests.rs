//! A simulated pair of clocks walks through what happens to a sampler on a busy machine.

use super::*;

/// Both clocks, in milliseconds; the schedule starts at 10.3 s.
struct Sim {
    wall: i64,
    monotonic: u64,
    schedule: Schedule,
}

impl Sim {
    fn new(interval_ms: u64) -> Self {
        let wall = 10_300;
        let interval = Duration::from_millis(interval_ms);
        let schedule = Schedule::new(interval, Timestamp::from_millis(wall), Duration::ZERO).unwrap();
        Sim { wall, monotonic: 0, schedule }
    }

    /// Asks after `ms` more milliseconds; a tick's time or the wait, both in milliseconds.
    fn after(&mut self, ms: u64) -> Result<i64, u128> {
        self.wall += i64::try_from(ms).unwrap();
        self.monotonic += ms;
        match self.schedule.ask(Timestamp::from_millis(self.wall), Duration::from_millis(self.monotonic)) {
            Due::Now(tick) => Ok(tick.millis()),
            Due::In(wait) => Err(wait.as_millis()),
        }
    }
}

#[test]
fn ticks_are_multiples_of_the_interval() {
    let mut sim = Sim::new(1_000);
    assert_eq!(sim.after(0), Err(700));
    assert_eq!(sim.after(700), Ok(11_000));
    assert_eq!(sim.after(2), Err(998));
    assert_eq!(sim.after(999), Ok(12_000), "1 ms late is on time");
    assert_eq!(sim.schedule.skipped(), 0);

    let mut fast = Sim::new(100);
    assert_eq!(fast.after(0), Ok(10_300), "a start at a multiple is a tick");
    assert_eq!(fast.after(100), Ok(10_400));
}

#[test]
fn asking_too_early_only_tells_how_long_is_left() {
    let mut sim = Sim::new(1_000);
    assert_eq!(sim.after(0), Err(700));
    assert_eq!(sim.after(699), Err(1));
    assert_eq!(sim.after(1), Ok(11_000));
}

#[test]
fn a_tick_that_is_more_than_half_an_interval_late_is_skipped_and_counted() {
    let mut sim = Sim::new(1_000);
    assert_eq!(sim.after(700), Ok(11_000));
    assert_eq!(sim.after(1_500), Ok(12_000), "half an interval late is the limit");
    assert_eq!(sim.after(1_001), Err(499), "more is not that moment any more");
    assert_eq!(sim.schedule.skipped(), 1);
    assert_eq!(sim.after(499), Ok(14_000));
    assert_eq!(sim.schedule.skipped(), 1);
}

#[test]
fn ticks_that_passed_meanwhile_are_all_counted() {
    let mut sim = Sim::new(100);
    assert_eq!(sim.after(0), Ok(10_300));
    assert_eq!(sim.after(1_010), Ok(11_300));
    assert_eq!(sim.schedule.skipped(), 9);
}

#[test]
fn a_wall_clock_set_forward_skips_no_tick_that_could_have_been() {
    let mut sim = Sim::new(1_000);
    assert_eq!(sim.after(700), Ok(11_000));
    sim.wall += 3_600_000;
    assert_eq!(sim.after(1_000), Ok(3_612_000));
    assert!(sim.schedule.skipped() <= 1, "{}", sim.schedule.skipped());
}

#[test]
fn a_wall_clock_set_back_does_not_stop_the_ticks() {
    let mut sim = Sim::new(1_000);
    assert_eq!(sim.after(700), Ok(11_000));
    sim.wall -= 8_500;
    assert_eq!(sim.after(100), Err(400));
    assert_eq!(sim.after(400), Ok(3_000));
    assert_eq!(sim.schedule.skipped(), 0);
}

#[test]
fn an_interval_has_limits() {
    for (ms, possible) in [(99, false), (100, true), (3_600_000, true), (3_600_001, false)] {
        let checked = check_interval(Duration::from_millis(ms));
        assert_eq!(checked.is_ok(), possible, "{ms} ms");
    }
    let error = check_interval(Duration::from_micros(100_500)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "an interval of 100.5ms is not possible; choose whole milliseconds from 100ms to 3600s"
    );
}

#[test]
fn rare_work_is_done_at_the_first_tick_of_its_own_interval() {
    let due = |time, last| {
        let at = Timestamp::from_seconds;
        first_of(Duration::from_secs(5), at(time), Option::map(last, at))
    };
    assert!(due(12, None), "at the first tick of all");
    assert!(!due(13, Some(12)) && !due(14, Some(10)));
    assert!(due(15, Some(14)) && due(17, Some(14)) && due(60, Some(30)));
    assert!(due(9, Some(10)), "also when the clock was set back");
}
