use std::borrow::Cow;

use telem_engine::{Options, TimeRange};
use tempfile::TempDir;

use telem_engine::Value;

use super::*;

const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);

fn open() -> (TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&dir.path().join("db"), Options::default()).unwrap();
    (dir, db)
}

fn sample(metric: &'static str, tags: &[(&'static str, &'static str)], time: Timestamp) -> Incoming<'static> {
    let tags = tags.iter().map(|(key, value)| (Cow::Borrowed(*key), Cow::Borrowed(*value))).collect();
    Incoming { metric: metric.into(), tags, time, value: Value::Int(1) }
}

/// The numbers of the rejected samples and what was said about them.
fn rejects(limits: &Limits, samples: Vec<Incoming<'static>>) -> Vec<(usize, String)> {
    let (_dir, db) = open();
    let total = samples.len();
    let accepted =
        accept(&db, NOW, limits, &AcceptCounters::default(), &DefaultTags::default(), samples.into_iter().enumerate());
    assert_eq!(accepted.batch.len() + accepted.rejected, total);
    accepted.rejects.into_iter().map(|reject| (reject.index, reject.reason.to_string())).collect()
}

#[test]
fn good_samples_are_kept_and_each_bad_one_is_named() {
    let samples = vec![
        sample("m", &[("host", "a")], NOW),
        sample("", &[("host", "a")], NOW),
        sample("m", &[("host", "")], NOW),
        sample("m", &[("host", "a"), ("host", "b")], NOW),
        sample("m", &[("host", "b")], NOW),
    ];
    let expected = [
        (1, "metric is empty".to_owned()),
        (2, "tag value is empty".to_owned()),
        (3, "tag 'host' occurs twice".to_owned()),
    ];
    assert_eq!(rejects(&Limits::default(), samples), expected);
}

#[test]
fn of_very_many_rejects_the_first_are_told_and_all_are_counted() {
    let told = rejects(&Limits::default(), vec![sample("", &[], NOW); REJECTS_TOLD_MAX + 5]);
    assert_eq!(told.len(), REJECTS_TOLD_MAX);
    assert_eq!(told.last().unwrap().0, REJECTS_TOLD_MAX - 1);
}

#[test]
fn a_sample_may_lie_an_hour_ahead_and_not_a_microsecond_more() {
    let hour = NOW.saturating_add_micros(3_600_000_000);
    let samples = vec![
        sample("m", &[], hour),
        sample("m", &[], hour.saturating_add_micros(1)),
        sample("m", &[], Timestamp::MAX),
        sample("m", &[], Timestamp::MIN),
    ];
    let expected = [
        (
            1,
            "timestamp 1700003600000 ms is 3600.0 s ahead of this machine's clock; at most 3600 s are allowed: \
             compare the clocks"
                .to_owned(),
        ),
        (2, "timestamp 9223372036854775807us is the end of time: no sample may have it".to_owned()),
    ];
    assert_eq!(rejects(&Limits::default(), samples), expected);
}

#[test]
fn what_retention_would_drop_at_once_is_not_taken() {
    let limits = Limits { age_max: Some(Duration::from_secs(7_200)), ..Limits::default() };
    let old = NOW.saturating_add_micros(-7_200_000_000);
    let samples =
        vec![sample("m", &[], old), sample("m", &[], old.saturating_add_micros(-1)), sample("m", &[], Timestamp::MIN)];
    let told = rejects(&limits, samples);
    let expected = "timestamp 1699992799999 ms is 7200.0 s old, and this database keeps samples for 7200.0 s (its \
                    retention by age)";
    assert_eq!((told.len(), &told[0]), (2, &(1, expected.to_owned())));
}

#[test]
fn tags_are_taken_up_to_their_limit() {
    let limits = Limits { tags_max: 2, ..Limits::default() };
    let three = sample("m", &[("a", "1"), ("b", "2"), ("c", "3")], NOW);
    let two = sample("m", &[("a", "1"), ("b", "2")], NOW);
    assert_eq!(rejects(&limits, vec![two, three]), [(1, "3 tags; at most 2 are allowed".to_owned())]);
}

#[test]
fn a_batch_is_taken_up_to_its_limit() {
    let limits = Limits { batch_samples_max: 2, ..Limits::default() };
    let samples = (0..3).map(|at| sample("m", &[], NOW.saturating_add_micros(at))).collect();
    assert_eq!(
        rejects(&limits, samples),
        [(2, "the request holds more than 2 samples; send the rest in another".to_owned())]
    );
}

#[test]
fn tags_in_another_order_are_the_same_series() {
    let (_dir, db) = open();
    let samples = [sample("m", &[("a", "1"), ("b", "2")], NOW), sample("m", &[("b", "2"), ("a", "1")], NOW)];
    let accepted = accept(
        &db,
        NOW,
        &Limits::default(),
        &AcceptCounters::default(),
        &DefaultTags::default(),
        samples.into_iter().enumerate(),
    );
    let series: Vec<_> = accepted.batch.iter().map(|(series, _, _)| series).collect();
    assert_eq!(series, [SeriesId(0), SeriesId(0)]);
}

#[test]
fn what_became_of_samples_is_counted() {
    let (_dir, db) = open();
    let counters = AcceptCounters::default();
    let samples = [sample("m", &[], NOW), sample("", &[], NOW), sample("m", &[], NOW)];
    accept(&db, NOW, &Limits::default(), &counters, &DefaultTags::default(), samples.into_iter().enumerate());
    assert_eq!((counters.accepted(), counters.rejected()), (2, 1));
}

#[test]
fn an_accepted_batch_can_be_appended() {
    let (_dir, db) = open();
    let samples = [sample("m", &[("a", "1")], NOW)];
    let accepted = accept(
        &db,
        NOW,
        &Limits::default(),
        &AcceptCounters::default(),
        &DefaultTags::default(),
        samples.into_iter().enumerate(),
    );
    db.append(&accepted.batch, telem_engine::Durability::Buffered).unwrap();
    let points: Vec<_> = db.snapshot().points(vec![SeriesId(0)], TimeRange::ALL).map(Result::unwrap).collect();
    assert_eq!(points[0].times, [NOW]);
}

#[test]
fn samples_get_the_tags_of_their_sender_where_they_lack_them() {
    let (_dir, db) = open();
    let tags = DefaultTags::of_process("n7".into(), Some(3));
    let samples = vec![
        sample("m", &[("a", "b")], NOW),
        sample("m", &[("a", "b")], NOW),
        sample("m", &[("host", "mine")], NOW),
        sample("m", &[("rank", "r0"), ("host", "mine")], NOW),
    ];
    let limits = Limits { tags_max: 2, ..Limits::default() };
    let accepted = accept(&db, NOW, &limits, &AcceptCounters::default(), &tags, samples.into_iter().enumerate());
    let keys: Vec<String> = accepted.batch.iter().map(|(id, ..)| db.index().key(id).unwrap().to_string()).collect();
    let room_for_one = "m{a=b,host=n7}";
    assert_eq!(keys, [room_for_one, room_for_one, "m{host=mine,rank=3}", "m{host=mine,rank=r0}"]);
}
