//! Rises of alarms, through the annotations of a database.

use std::path::Path;

use telem_engine::{Db, Durability, Options};

use super::*;

fn rise(alarm: &str, micros: i64) -> AlarmRise {
    AlarmRise {
        node: "n1".into(),
        job: "main".into(),
        alarm: alarm.to_owned(),
        metric: "temp{core=\"0\"}".to_owned(),
        condition: "> 5".to_owned(),
        value: 0.1 + 0.2,
        raised: Timestamp::from_micros(micros),
        ended: None,
    }
}

fn stored(dir: &Path, changes: impl IntoIterator<Item = MetaChange>) -> Vec<AlarmRise> {
    let db = Db::open(&dir.join("db"), Options::default()).unwrap();
    for change in changes {
        db.put_meta(change, Durability::Buffered).unwrap();
    }
    let all = AlarmRise::all(db.snapshot().meta());
    db.close().unwrap();
    all
}

#[test]
fn a_rise_is_read_as_it_was_written_and_its_end_takes_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (rise("hot", 1_000), rise("cold", 2_000));
    assert_eq!(stored(dir.path(), [second.change(), first.change()]), [first.clone(), second.clone()]);
    let ended = AlarmRise { ended: Some((Timestamp::from_micros(5_000), AlarmEnd::Job)), ..first };
    assert_eq!(stored(dir.path(), [ended.change()]), [ended, second]);
}

#[test]
fn what_somebody_else_notes_is_no_alarm() {
    let dir = tempfile::tempdir().unwrap();
    let custom = [("alarm".to_owned(), "x".to_owned())].into();
    let note = Annotation { start: Timestamp::from_micros(7), custom, ..Annotation::default() };
    let of_series = match rise("a", 9).change() {
        MetaChange::Annotate(annotation) => Annotation { tsuid: Some("01".to_owned()), ..annotation },
        other => panic!("{other:?}"),
    };
    assert_eq!(stored(dir.path(), [MetaChange::Annotate(note), MetaChange::Annotate(of_series)]), []);
}

#[test]
fn two_alarms_of_one_moment_do_not_take_each_others_place() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&dir.path().join("db"), Options::default()).unwrap();
    for name in ["a", "b", "c"] {
        let raised = AlarmRise::free_moment(db.snapshot().meta(), Timestamp::from_micros(1_000));
        db.put_meta(AlarmRise { raised, ..rise(name, 0) }.change(), Durability::Buffered).unwrap();
    }
    let all = AlarmRise::all(db.snapshot().meta());
    let found: Vec<_> = all.iter().map(|rise| (&*rise.alarm, rise.raised.micros())).collect();
    assert_eq!(found, [("a", 1_000), ("b", 1_001), ("c", 1_002)]);
}
