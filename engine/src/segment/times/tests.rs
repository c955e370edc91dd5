use super::*;

fn encoded(runs: &[Vec<i64>]) -> (Vec<Times>, Vec<u8>) {
    let mut lists = SharedTimes::default();
    let mut times: Vec<Times> = runs.iter().map(|run| lists.find(run).unwrap_or(Times::Column)).collect();
    let rows: Vec<u32> = runs.iter().map(|run| run.len() as u32).collect();
    let mut bytes = Vec::new();
    lists.finish(&mut times.iter_mut().collect::<Vec<_>>(), &rows, &mut bytes);
    (times, bytes)
}

#[test]
fn a_step_is_found_only_where_no_tick_is_missing() {
    assert_eq!(regular_step(&[5]), Some(0));
    assert_eq!(regular_step(&[5, 8, 11]), Some(3));
    assert_eq!(regular_step(&[5, 8, 12]), None);
    assert_eq!(regular_step(&[i64::MIN, i64::MAX]), None, "further apart than a step can say");
    assert_eq!(regular_step(&[i64::MIN, -1, i64::MAX - 1]), None, "all of them further than that");
    assert_eq!(regular_step(&[0, i64::MAX / 2, i64::MAX - 1]), Some(i64::MAX / 2));
}

#[test]
fn shared_times_come_back_as_they_were() {
    // Gaps, one after another and at the ends; times that a difference of 64 bits wraps around.
    for list in [vec![0, 10, 20, 40, 50, 60, 61, 62], vec![i64::MIN, -1, i64::MAX - 1], vec![3, 4, 6]] {
        let runs = vec![list.clone(); 200];
        let (times, bytes) = encoded(&runs);
        assert!(times.iter().all(|times| *times == Times::Shared { list: 0, from: 0 }));
        let rows = runs.len() * list.len();
        let decoded = decode(&mut Bytes::new(&bytes, 0), rows as u64).unwrap();
        assert_eq!(decoded.len(), 1);
        assert_eq!(*decoded[0], *list);
    }
}

#[test]
fn a_list_that_does_not_pay_is_left_out_and_the_others_move_up() {
    let noisy: Vec<i64> = (0..100).map(|at| at * 1_000 + at * at % 700).collect();
    let shared: Vec<i64> = (0..100).map(|at| at * 5_000 + at * at % 300).collect();
    let mut runs = vec![noisy];
    runs.extend(vec![shared.clone(); 30]);
    let (times, bytes) = encoded(&runs);
    assert_eq!(times[0], Times::Column);
    assert_eq!(times[1], Times::Shared { list: 0, from: 0 });
    assert_eq!(*decode(&mut Bytes::new(&bytes, 0), 4_000).unwrap()[0], *shared);
}

#[test]
fn bytes_that_are_no_lists_are_refused() {
    let put = |numbers: &[u64]| {
        let mut bytes = Vec::new();
        numbers.iter().for_each(|number| varint::put(&mut bytes, *number));
        bytes
    };
    for bytes in [
        put(&[1, 0]),
        put(&[1, 11, 0]),
        put(&[1, 3, 0, 2, 0, 9]),
        put(&[1, 3, 0, 0, 2]),
        put(&[1, 3, 0, 1, 1]),
        put(&[1, 3, 0]),
        put(&[2, 5, 0, 2, 0, 4]),
        vec![0xff; 30],
    ] {
        assert!(decode(&mut Bytes::new(&bytes, 0), 10).is_err(), "{bytes:?}");
    }
}

/// Six bytes stood for as many times as the file has rows, and those are what a manifest says that they are: 32 GiB of
/// times came out of a file that somebody made by hand.
#[test]
fn lists_have_as_many_times_as_a_writer_writes_and_no_more_whatever_the_rows() {
    for (len, good) in [(HELD_MAX as u64, true), (HELD_MAX as u64 + 1, false), (u64::from(u32::MAX), false)] {
        let mut bytes = Vec::new();
        varint::put(&mut bytes, 1);
        varint::put(&mut bytes, len);
        varint::put_signed(&mut bytes, 0);
        varint::put_signed(&mut bytes, 1);
        put_equal(&mut bytes, &mut (len - 2));
        assert_eq!(decode(&mut Bytes::new(&bytes, 0), u64::MAX).is_ok(), good, "{len} times");
    }
}
