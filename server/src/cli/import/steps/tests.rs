//! Where values and steps come to stand.

use super::*;

#[test]
fn no_two_values_of_a_series_and_no_two_steps_have_one_time() {
    let mut moments = Moments::default();
    for (micros, step, metrics, expected) in [
        (10, Some(1), &[0][..], (10, true)),
        // Another metric of the same step, and the same again.
        (10, Some(1), &[1], (10, false)),
        (10, Some(1), &[0], (11, true)),
        // Another step.
        (10, Some(2), &[2], (12, true)),
        (11, Some(1), &[1], (11, false)),
        (11, None, &[2, 3], (11, false)),
        (20, None, &[0], (20, false)),
        (20, Some(7), &[1], (20, true)),
    ] {
        assert_eq!(moments.place(micros, step, metrics), expected, "{micros} {step:?} {metrics:?}");
    }
}

#[test]
fn as_many_moments_are_remembered_as_the_limit_says() {
    let mut moments = Moments::default();
    for micros in 0..=MOMENTS_MAX as i64 {
        moments.place(micros * 2, Some(1), &[0]);
    }
    assert_eq!(moments.place(2, Some(1), &[0]), (3, true), "the second is remembered");
    assert_eq!(moments.place(0, Some(1), &[0]), (0, true), "the first is not");
    assert!(moments.by_time.len() <= MOMENTS_MAX);
}
