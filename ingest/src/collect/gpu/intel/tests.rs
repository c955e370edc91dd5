//! Idle time as utilisation and energy as power.

use super::*;

fn counters(second: i64, energy_micros: u64, idle_millis: &[u64]) -> IntelCounters {
    let idle_millis = idle_millis.iter().map(|millis| Some(*millis)).collect();
    IntelCounters { time: Timestamp::from_seconds(second), energy_micros: Some(energy_micros), idle_millis }
}

#[test]
fn power_is_the_energy_of_the_time_between() {
    let before = counters(10, 1_000_000, &[]);
    assert_eq!(counters(12, 901_000_500, &[]).watts(&before), Some(450.0));
    assert_eq!(counters(10, 2_000_000, &[]).watts(&before), None, "no time passed");
    assert_eq!(counters(9, 2_000_000, &[]).watts(&before), None, "the clock was set back");
    assert_eq!(counters(12, 999_999, &[]).watts(&before), None, "the counter began anew");
    assert_eq!(counters(11, u64::MAX, &[]).watts(&before), Some(18_446_744_073_708.55), "a number like any other");
}

#[test]
fn what_the_busiest_part_was_not_idle_is_its_utilisation() {
    let before = counters(10, 0, &[5_000, 7_000]);
    let busiest = |idle: &[u64]| counters(20, 0, idle).busiest_percent(&before);
    assert_eq!(busiest(&[15_000, 17_000]), Some(0.0));
    assert_eq!(busiest(&[15_000, 8_234]), Some(87.66));
    assert_eq!(busiest(&[15_100, 7_000]), Some(100.0), "never below 0 nor above 100");
    assert_eq!(busiest(&[16_000, 0]), Some(0.0), "of one that began anew nothing is known");
    assert_eq!(busiest(&[0, 0]), None);
    assert_eq!(busiest(&[]), None);
}
