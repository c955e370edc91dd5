use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::meta::{Meta, MetaChange};
use crate::series::TagSet;

fn interval(slot: u32, since: Option<i64>, begin: i64, end: Option<i64>) -> JobInterval {
    let at = Timestamp::from_micros;
    JobInterval { slot, since: since.map(at), begin: at(begin), end: end.map(at), job: Arc::new(json!({"id": "7"})) }
}

fn key(slot: Option<&str>) -> SeriesKey {
    let tags = slot.map(|slot| (JOB_SLOT_TAG, slot));
    SeriesKey::new("loss", TagSet::new(tags).unwrap()).unwrap()
}

/// Which of the jobs, and of the rest behind them, have the sample.
fn owners(stretches: &[Vec<JobStretch>], key: &SeriesKey, time: i64) -> Vec<usize> {
    let time = Timestamp::from_micros(time);
    let has = |stretch: &JobStretch| {
        stretch.owner.owns(key) && stretch.ranges.iter().filter(|range| range.contains(time)).count() == 1
    };
    let owned = |stretches: &Vec<JobStretch>| stretches.iter().filter(|stretch| has(stretch)).count();
    (0..stretches.len()).filter(|at| owned(&stretches[*at]) == 1).collect()
}

#[test]
fn a_sample_of_a_slot_is_the_jobs_that_had_it_then_and_one_of_the_node_all_jobs_that_ran() {
    // Slot 0: a job until 20, another from 30 on. Slot 1: one that began while the first ran.
    let stretches =
        stretches(&[interval(0, None, 10, Some(20)), interval(1, None, 15, Some(25)), interval(0, Some(21), 30, None)]);
    let (zero, one, node) = (key(Some("0")), key(Some("1")), key(None));
    let of = |key, time| owners(&stretches, key, time);
    // Of times before it was heard of, which is how a client that sends now and then begins.
    assert_eq!((of(&zero, 5), of(&zero, 20), of(&zero, 21), of(&zero, 99)), (vec![0], vec![0], vec![2], vec![2]));
    assert_eq!((of(&one, 5), of(&one, 99)), (vec![1], vec![1]), "late samples too");
    assert_eq!((of(&node, 12), of(&node, 15), of(&node, 20)), (vec![0], vec![0, 1], vec![0, 1]));
    assert_eq!((of(&node, 21), of(&node, 26), of(&node, 30)), (vec![1], vec![3], vec![2]));
    assert_eq!(of(&node, 9), [3]);
    // What no job is known of.
    assert_eq!((of(&key(Some("7")), 15), of(&key(Some("x")), 15)), (vec![3], vec![3]));
}

#[test]
fn what_was_forgotten_belongs_to_no_job() {
    let stretches = stretches(&[interval(0, Some(21), 30, Some(40))]);
    assert_eq!(owners(&stretches, &key(Some("0")), 20), [1]);
    assert_eq!(owners(&stretches, &key(Some("0")), 21), [0]);
}

#[test]
fn a_database_keeps_so_many_intervals_and_forgets_those_that_ended_first() {
    let mut meta = Meta::default();
    for at in 0..JOB_INTERVALS_MAX as i64 + 3 {
        let since = (at > 0).then_some(at * 10);
        meta.apply(MetaChange::JobInterval(interval(0, since, at * 10, Some(at * 10 + 5))));
    }
    let kept = meta.job_intervals();
    assert_eq!((kept.len(), kept[0].begin), (JOB_INTERVALS_MAX, Timestamp::from_micros(30)));
    assert!(meta.has_forgotten_jobs() && !Meta::default().has_forgotten_jobs());
    // The same again replaces.
    meta.apply(MetaChange::JobInterval(interval(0, Some(30), 30, None)));
    assert_eq!((meta.job_intervals().len(), meta.job_intervals()[0].end), (JOB_INTERVALS_MAX, None));
}

#[test]
fn descriptions_take_so_much_memory_and_those_of_jobs_that_ended_first_go() {
    let mut meta = Meta::default();
    let text = "x".repeat(JOB_INTERVALS_BYTES_MAX / 10);
    for at in 0..12 {
        let job = Arc::new(json!({"id": "7", "settings": {"text": text}}));
        meta.apply(MetaChange::JobInterval(JobInterval { job, ..interval(0, None, at, Some(at)) }));
    }
    let begins: Vec<i64> = meta.job_intervals().iter().map(|interval| interval.begin.micros()).collect();
    assert_eq!(begins, [3, 4, 5, 6, 7, 8, 9, 10, 11]);
    // One that runs is never forgotten.
    for at in 20..32 {
        let job = Arc::new(json!({"id": "7", "settings": {"text": text}}));
        meta.apply(MetaChange::JobInterval(JobInterval { job, ..interval(1, None, at, None) }));
    }
    assert_eq!(meta.job_intervals().len(), 12);
}

#[test]
fn an_interval_is_written_and_read_again_and_a_database_without_any_has_no_word_of_them() {
    let mut known = interval(3, Some(1), 2, None);
    known.job = Arc::new(json!({"id": "7", "settings": {"lr": 0.1, "tiny": 5e-324}}));
    let change = MetaChange::JobInterval(known.clone());
    let text = serde_json::to_string(&change).unwrap();
    assert_eq!(serde_json::from_str::<MetaChange>(&text).unwrap(), change);
    let mut meta = Meta::default();
    assert!(!serde_json::to_string(&meta).unwrap().contains("interval"));
    meta.apply(change);
    let text = serde_json::to_string(&meta).unwrap();
    assert_eq!(serde_json::from_str::<Meta>(&text).unwrap().job_intervals(), [known]);
}

proptest! {
    #[test]
    fn every_sample_of_a_slot_has_one_owner_and_of_the_node_at_least_one(
        steps in prop::collection::vec((0u32..4, 1i64..20, 0i64..20, any::<bool>()), 0..12),
        time in -10i64..260,
        slot in 0u32..5,
    ) {
        // Jobs one after another; each takes a slot that is free.
        let (mut known, mut now): (Vec<JobInterval>, i64) = (Vec::new(), 0);
        for (slot, lasts, later, goes_on) in steps {
            now += later;
            let before = known.iter().filter(|one| one.slot == slot).max_by_key(|one| one.begin);
            let since = match before.map(|one| one.end) {
                None => None,
                Some(Some(end)) if end.micros() < now => Some(end.micros() + 1),
                Some(_) => continue,
            };
            known.push(interval(slot, since, now, (!goes_on).then_some(now + lasts)));
        }
        let stretches = stretches(&known);
        let of_slot = owners(&stretches, &key(Some(&slot.to_string())), time);
        prop_assert_eq!(of_slot.len(), 1, "{:?}", of_slot);
        let of_node = owners(&stretches, &key(None), time);
        let ran: Vec<usize> =
            (0..known.len()).filter(|at| known[*at].ran().contains(Timestamp::from_micros(time))).collect();
        prop_assert_eq!(of_node, if ran.is_empty() { vec![known.len()] } else { ran });
    }
}
