use telem_engine::MergedIndex;

use super::*;

fn ids(numbers: &[u32]) -> Vec<SeriesId> {
    numbers.iter().copied().map(SeriesId).collect()
}

#[test]
fn numbers_come_back_in_runs_whatever_their_order() {
    for (numbers, runs) in [
        (&[7][..], vec![7..=7]),
        (&[3, 1, 2], vec![1..=3]),
        (&[9, 0, 1, 4, 5, 5], vec![0..=1, 4..=5, 9..=9]),
        (&[u32::MAX, 0], vec![0..=0, u32::MAX..=u32::MAX]),
    ] {
        assert_eq!(decode(&encode("n-1.rack", ids(numbers))), Some(("n-1.rack", runs)));
    }
}

#[test]
fn what_is_no_list_of_numbers_is_none() {
    for text in
        ["", "host\u{1f}a", "\u{1}n1", "\u{1}n1\u{1}", "\u{1}n1\u{1}1", "\u{1}n1\u{1}1-x", "\u{1}n1\u{1}1-99999999999"]
    {
        assert_eq!(decode(text), None, "{text:?}");
    }
}

#[test]
fn a_number_is_known_below_the_count_and_in_its_own_edition_alone() {
    let (index, other) = (MergedIndex::default(), MergedIndex::default());
    let told = KnownSeries { edition: index.index().edition(), count: 2 };
    assert!(told.knows(SeriesId(1), index.index()));
    assert!(!told.knows(SeriesId(2), index.index()));
    assert!(!told.knows(SeriesId(1), other.index()));
}
