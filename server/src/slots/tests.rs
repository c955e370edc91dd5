use std::sync::atomic::{AtomicI64, Ordering};

use telem_engine::Options;
use tempfile::TempDir;

use super::*;

/// A clock that stands until it is moved.
#[derive(Debug, Default)]
struct Hand(AtomicI64);

impl Hand {
    fn wait(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
    }
}

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.load(Ordering::Relaxed)).unwrap())
    }
}

struct Bed {
    clock: Arc<Hand>,
    dir: TempDir,
    db: Db,
    slots: Arc<JobSlots>,
}

fn opened(dir: &TempDir, clock: &Arc<Hand>) -> (Db, Arc<JobSlots>) {
    let db = Db::open(&dir.path().join("db"), Options { node: "n1".to_owned(), ..Options::default() }).unwrap();
    let slots = JobSlots::resume(db.clone(), Arc::<Hand>::clone(clock), "own");
    (db, slots)
}

impl Bed {
    fn new() -> Self {
        let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(Hand::default()));
        clock.wait(1_000);
        let (db, slots) = opened(&dir, &clock);
        Self { clock, dir, db, slots }
    }

    /// The server stops without a word, and is started again.
    fn die(self) -> Self {
        let Self { clock, dir, db, slots } = self;
        drop((slots, db));
        let (db, slots) = opened(&dir, &clock);
        Self { clock, dir, db, slots }
    }

    fn hear(&self, job: &str) -> Option<u32> {
        self.slots.hear(&id(job), Map::new)
    }

    fn seat(&self, job: &str) -> JobSeat {
        self.slots.seat(id(job), Map::new).unwrap()
    }

    /// Each as `job slot: since begin..end`, in seconds; what follows a second by a microsecond has a `+`.
    fn intervals(&self) -> Vec<String> {
        let at = |time: Timestamp| match time.micros() % 1_000_000 {
            0 => format!("{}", time.micros() / 1_000_000),
            _ => format!("{}+", time.micros() / 1_000_000),
        };
        let told = |one: &JobInterval| {
            let end = one.end.map(at).unwrap_or_default();
            assert_eq!(one.job["end"].is_string(), one.end.is_some());
            let since = one.since.map_or("-".to_owned(), at);
            format!("{} {}: {since} {}..{end}", one.job["id"].as_str().unwrap(), one.slot, at(one.begin))
        };
        self.db.snapshot().meta().job_intervals().iter().map(told).collect()
    }
}

fn id(job: &str) -> JobId {
    JobId::new(job).unwrap()
}

#[test]
fn a_job_that_begins_takes_the_lowest_slot_that_is_free() {
    let bed = Bed::new();
    assert_eq!((bed.hear("a"), bed.hear("b"), bed.hear("a")), (Some(0), Some(1), Some(0)));
    bed.clock.wait(10);
    bed.slots.end(&id("a"), Map::new()).unwrap().unwrap();
    bed.clock.wait(5);
    assert_eq!((bed.hear("c"), bed.hear("d")), (Some(0), Some(2)));
    assert_eq!(bed.intervals(), ["a 0: - 1000..1010", "b 1: - 1000..", "c 0: 1010+ 1015..", "d 2: - 1015.."]);
}

#[test]
fn a_job_is_over_a_minute_after_its_last_word_and_ended_with_that() {
    let bed = Bed::new();
    let seat = bed.seat("a");
    bed.hear("b");
    bed.clock.wait(100);
    bed.slots.sweep();
    assert_eq!(bed.intervals(), ["a 0: - 1000..", "b 1: - 1000..1000"], "a connection of it is open");
    drop(seat);
    bed.clock.wait(59);
    bed.slots.sweep();
    assert_eq!(bed.intervals()[0], "a 0: - 1000..");
    bed.clock.wait(1);
    bed.slots.sweep();
    assert_eq!(bed.intervals()[0], "a 0: - 1000..1100");
}

#[test]
fn commands_of_one_id_that_follow_each_other_are_one_job() {
    let bed = Bed::new();
    bed.hear("a");
    bed.slots.end(&id("a"), Map::new()).unwrap();
    bed.clock.wait(60);
    assert_eq!(bed.hear("a"), Some(0));
    assert_eq!(bed.intervals(), ["a 0: - 1000.."]);
    bed.slots.end(&id("a"), Map::new()).unwrap();
    bed.clock.wait(61);
    bed.hear("a");
    assert_eq!(bed.intervals(), ["a 0: - 1000..1060", "a 0: 1060+ 1121.."]);
}

#[test]
fn a_slot_stays_taken_while_somebody_may_write_to_it() {
    let bed = Bed::new();
    let seat = bed.seat("a");
    let how = [("exit_code".to_owned(), 3.into())].into_iter().collect();
    assert_eq!(bed.slots.end(&id("a"), how).unwrap().unwrap()["exit_code"], 3);
    assert_eq!(bed.slots.end(&id("a"), Map::new()).unwrap(), None, "it is over");
    bed.clock.wait(1_000);
    bed.slots.sweep();
    assert_eq!(bed.hear("b"), Some(1));
    assert_eq!(bed.hear("a"), Some(0), "the connection that is still open is of the same job");
    drop(seat);
    assert_eq!(bed.intervals(), ["a 0: - 1000..", "b 1: - 2000.."]);
}

#[test]
fn a_server_that_dies_and_comes_back_soon_finds_its_jobs_going_on() {
    let bed = Bed::new();
    bed.hear("a");
    bed.hear("b");
    bed.clock.wait(100);
    let bed = bed.die();
    assert_eq!((bed.hear("a"), bed.hear("c")), (Some(0), Some(2)));
    bed.clock.wait(60);
    bed.slots.sweep();
    // Of the second one nothing is known but its begin; the others are over, too.
    assert_eq!(bed.intervals(), ["a 0: - 1000..1100", "b 1: - 1000..1000", "c 2: - 1100..1100"]);
}

#[test]
fn a_server_that_stops_ends_its_jobs_and_one_that_starts_again_goes_on_with_them() {
    let bed = Bed::new();
    let seat = bed.seat("a");
    bed.hear("b");
    bed.clock.wait(10);
    bed.slots.close();
    drop(seat);
    assert_eq!(bed.intervals(), ["a 0: - 1000..1010", "b 1: - 1000..1000"]);
    let bed = bed.die();
    bed.clock.wait(10);
    assert_eq!((bed.hear("a"), bed.hear("c")), (Some(0), Some(1)));
    assert_eq!(bed.intervals(), ["a 0: - 1000..", "b 1: - 1000..1000", "c 1: 1000+ 1020.."]);
}

#[test]
fn further_jobs_than_there_are_slots_have_none_and_neither_has_the_servers_own() {
    let bed = Bed::new();
    assert_eq!(bed.hear("own"), None);
    for at in 0..SLOTS_MAX {
        assert_eq!(bed.hear(&format!("j{at}")), Some(at));
    }
    assert_eq!(bed.hear("one more"), None);
    bed.slots.end(&id("j7"), Map::new()).unwrap();
    assert_eq!(bed.hear("one more"), Some(7));
}

#[test]
fn a_clock_that_jumped_back_leaves_the_order_of_jobs() {
    let bed = Bed::new();
    bed.hear("a");
    bed.clock.wait(100);
    bed.slots.end(&id("a"), Map::new()).unwrap();
    bed.clock.wait(-70);
    bed.hear("b");
    assert_eq!(bed.intervals(), ["a 0: - 1000..1100", "b 0: 1100+ 1100+.."]);
}

#[test]
fn a_process_says_its_job_telems_before_the_schedulers() {
    let of = |text: &str| JobId::of_environment(text.as_bytes()).map(|id| id.to_string());
    assert_eq!(of("A=1\0TELEM_JOB=mine\0SLURM_JOB_ID=7\0"), Some("mine".to_owned()));
    assert_eq!(of("TELEM_JOB=\0PBS_JOBID=7.server\0"), Some("7.server".to_owned()));
    assert_eq!(of("A=1\0"), None);
    assert_eq!(of("TELEM_JOB=local\0SLURM_JOB_ID=7\0"), None);
    for (bad, why) in [("", "0 bytes"), ("local", "no job may"), ("a\nb", "control"), (&"x".repeat(257), "257 bytes")] {
        assert!(JobId::new(bad).unwrap_err().contains(why), "{bad}");
    }
    assert_eq!(JobId::new("../a/b é").unwrap().to_string(), "../a/b é");
}

#[test]
fn what_a_process_tells_of_its_job_holds_no_secret() {
    let environment = b"SLURM_JOB_ID=7\0SECRET=hush\0USER=ada\0TELEM_NAME=trial\0";
    let told = describe_process(&id("7"), std::process::id(), environment);
    assert_eq!(
        (&told["user"], &told["name"], &told["scheduler"]),
        (&json!("ada"), &json!("trial"), &json!({"SLURM_JOB_ID": "7"}))
    );
    assert!(told["command"][0].as_str().unwrap().contains("telem"), "{told:?}");
    assert!(told["cwd"].is_string() && !json!(told).to_string().contains("hush"));
}
