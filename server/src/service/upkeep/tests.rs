use telem_engine::{CompactReport, Error, Options, SystemClock};

use super::*;

#[test]
fn it_rests_four_times_as_long_as_it_worked_and_a_while_when_nothing_is_due() {
    let merged = CompactReport { segments_before: 8, segments_after: 1, ..CompactReport::default() };
    let worked = UpkeepReport { merged, ..UpkeepReport::default() };
    let second = Duration::from_secs(1);
    assert_eq!(rest_after(&Ok(worked), second), 4 * second);
    assert_eq!(rest_after(&Ok(worked), 100 * second), REST_MAX);
    assert_eq!(rest_after(&Ok(UpkeepReport::default()), second), PAUSE);
    let full = Error::DatabaseFull { path: "/db".into(), found: 2, max: 1 };
    assert_eq!(rest_after(&Err(full), second), RETRY);
    let text = |text: &str| text.to_owned();
    let damaged = Error::Corrupt { path: "/db".into(), what: text("a block"), found: text("1"), expected: text("2") };
    assert_eq!(rest_after(&Err(damaged), second), PAUSE);
}

#[test]
fn it_lets_go_of_the_database_soon_after_it_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let upkeep = UpkeepThread::start(db.clone(), Arc::new(SystemClock::new())).unwrap();
    drop(upkeep);
    db.close().unwrap();
}
