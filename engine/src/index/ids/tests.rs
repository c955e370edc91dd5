use super::Ids;
use crate::series::SeriesId;

#[test]
fn of_many_series_a_database_is_asked_for_those_that_it_holds() {
    let ids = Ids { common: Vec::new(), new: 4..7, shared: vec![SeriesId(1), SeriesId(9)] };
    let none_shared = Ids { common: Vec::new(), new: 4..7, shared: Vec::new() };
    let places = [0, 1, 2, 4, 4, 6, 7, 9, 11];
    for from in 0..places.len() {
        let series: Vec<(SeriesId, usize)> = places[from..].iter().copied().map(SeriesId).zip(0..).collect();
        for ids in [&ids, &none_shared] {
            let mut known: Vec<(SeriesId, usize)> = ids.known(&series).copied().collect();
            known.sort_unstable();
            let held = series.iter().copied().filter(|(series, _)| ids.hold(*series));
            assert_eq!(known, held.collect::<Vec<_>>());
        }
    }
}
