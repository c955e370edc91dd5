use super::*;

#[test]
fn one_is_counted_without_an_s_and_any_other_number_with_one() {
    let cases = [(0, "0 samples"), (1, "1 sample"), (2, "2 samples"), (1_048_576, "1,048,576 samples")];
    for (number, expected) in cases {
        assert_eq!(counted(number, "sample"), expected);
    }
}

#[test]
fn numbers_stand_in_groups_of_three_digits() {
    for (number, text) in [(0_u64, "0"), (999, "999"), (1_000, "1,000"), (1 << 20, "1,048,576")] {
        assert_eq!(count(number), text);
    }
}

#[test]
fn bytes_and_times_stand_in_the_largest_unit_that_leaves_no_fraction() {
    let sizes = [(512_u64, "512 bytes"), (1 << 10, "1 KiB"), (384 << 20, "384 MiB"), (1 << 30, "1 GiB")];
    for (number, text) in sizes.into_iter().chain([(u64::MAX, "none"), ((64 << 10) + 1, "65,537 bytes")]) {
        assert_eq!(bytes(number), text);
    }
    for (millis, text) in [(500, "500 ms"), (2_900, "2.9 s"), (1_000, "1 s"), (60_000, "60 s"), (90_000, "90 s")] {
        assert_eq!(time(Duration::from_millis(millis)), text);
    }
    for (seconds, text) in [(600, "10 min"), (3_600, "1 h"), (5_400, "90 min")] {
        assert_eq!(time(Duration::from_secs(seconds)), text);
    }
    assert_eq!([share(4), share(32)], ["a quarter", "1 in 32"]);
}
