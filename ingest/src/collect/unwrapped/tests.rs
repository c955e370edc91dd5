use super::*;

fn all(range: Option<u64>, readings: &[u64]) -> Vec<u64> {
    let mut counter = Unwrapped::new(range);
    readings.iter().map(|reading| counter.next(*reading)).collect()
}

#[test]
fn a_counter_begins_with_its_first_reading_and_grows_with_it() {
    assert_eq!(all(None, &[700, 700, 950]), [700, 700, 950]);
}

#[test]
fn a_counter_that_goes_around_goes_on() {
    assert_eq!(all(Some(1_000), &[900, 100, 300, 50]), [900, 1_100, 1_300, 2_050], "also by more than half");
    assert_eq!(all(Some(1_000), &[990, 10, 980, 5]), [990, 1_010, 1_980, 2_005]);
}

#[test]
fn a_counter_that_is_reset_begins_anew_behind_what_it_had() {
    assert_eq!(all(None, &[5_000, 20, 45]), [5_000, 5_020, 5_045]);
}

#[test]
fn a_step_back_by_one_adds_nothing_until_it_is_passed() {
    for range in [None, Some(1_000)] {
        assert_eq!(all(range, &[500, 499, 500, 510]), [500, 500, 500, 510], "{range:?}");
    }
}

#[test]
fn a_counter_beyond_its_own_range_is_taken_as_one_without() {
    assert_eq!(all(Some(100), &[500, 10, 20]), [500, 510, 520]);
    assert_eq!(all(Some(0), &[500, 10]), [500, 510]);
    assert_eq!(all(None, &[u64::MAX, u64::MAX - 1, 3]), [u64::MAX, u64::MAX, u64::MAX], "and never overflows");
}

#[test]
fn what_is_said_to_begin_anew_does_so_however_large_it_is() {
    let mut counter = Unwrapped::new(None);
    counter.begin_anew();
    assert_eq!(counter.next(100), 100);
    counter.begin_anew();
    assert_eq!((counter.next(90), counter.next(95)), (190, 195));
}
