use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};

use telem_engine::Options;
use tempfile::TempDir;

use super::*;

/// A clock that stands until it is moved.
#[derive(Debug, Default)]
struct Hand {
    wall: AtomicI64,
    steady: AtomicI64,
}

impl Hand {
    fn wait(&self, seconds: i64) {
        self.wall.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
        self.steady.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
    }
}

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.wall.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(u64::try_from(self.steady.load(Ordering::Relaxed)).unwrap())
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
        // That clock begins with the process.
        clock.steady.store(0, Ordering::Relaxed);
        let (db, slots) = opened(&dir, &clock);
        Self { clock, dir, db, slots }
    }

    /// Something of a job is written.
    fn send(&self, job: &str) -> Option<u32> {
        self.slots.hear(&id(job)).or_else(|| self.slots.begin(&id(job), None))
    }

    /// A connection of a job, over which something was written.
    fn connect(&self, job: &str) -> Arc<JobTie> {
        let tie = Arc::new(JobTie::new(id(job), None));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(JobCaller::tied(&self.slots, &tie).slot()).unwrap();
        tie
    }

    fn end(&self, job: &str, code: Option<i64>) -> Option<Json> {
        let how = code.map(|code| ("exit_code".to_owned(), code.into())).into_iter().collect();
        self.slots.end(&id(job), how).unwrap()
    }

    fn wait(&self, seconds: i64) {
        self.clock.wait(seconds);
        self.slots.sweep();
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
    JobId::new(job).unwrap().unwrap()
}

#[test]
fn a_job_that_begins_takes_the_lowest_slot_that_is_nobodys() {
    let bed = Bed::new();
    assert_eq!((bed.send("a"), bed.send("b"), bed.send("a")), (Some(0), Some(1), Some(0)));
    bed.wait(10);
    bed.end("a", None).unwrap();
    bed.wait(5);
    assert_eq!(bed.send("c"), Some(2), "what was under way of the first one still has its slot");
    bed.wait(60);
    bed.send("b");
    assert_eq!(bed.send("d"), Some(0));
    assert_eq!(bed.intervals(), ["a 0: - 1000..1010", "b 1: - 1000..", "c 2: - 1015..1015", "d 0: 1010+ 1075.."]);
}

#[test]
fn the_slot_of_a_job_that_is_over_is_free_at_once_where_nothing_of_it_comes_any_more() {
    let bed = Bed::new();
    bed.send("a");
    bed.slots.release(&id("a"));
    assert_eq!(bed.send("b"), Some(1), "it runs");
    let tie = bed.connect("a");
    bed.wait(10);
    bed.end("a", None).unwrap();
    bed.slots.release(&id("a"));
    assert_eq!(bed.send("c"), Some(2), "a connection of it is open");
    drop(tie);
    bed.slots.release(&id("a"));
    bed.wait(1);
    assert_eq!(bed.send("d"), Some(0));
    let expected = ["a 0: - 1000..1010", "b 1: - 1000..", "c 2: - 1010..", "d 0: 1010+ 1011.."];
    assert_eq!(bed.intervals(), expected);
}

#[test]
fn a_job_has_an_end_a_minute_after_its_last_word_and_that_is_its_end() {
    let bed = Bed::new();
    let tie = bed.connect("a");
    bed.send("b");
    bed.wait(100);
    assert_eq!(bed.intervals(), ["a 0: - 1000..", "b 1: - 1000..1000"], "a connection of it is open");
    drop(tie);
    bed.wait(59);
    assert_eq!(bed.intervals()[0], "a 0: - 1000..");
    bed.wait(1);
    assert_eq!(bed.intervals()[0], "a 0: - 1000..1100");
    assert_eq!(bed.slots.description(&id("a")).unwrap()["end_reason"], "silence");
}

#[test]
fn a_job_that_logs_every_half_hour_is_one_run_with_one_description() {
    let bed = Bed::new();
    bed.send("a");
    let named = |job: Json| Ok::<_, telem_engine::Error>(json!({"id": job["id"], "start": job["start"], "name": "x"}));
    bed.slots.describe(&id("a"), named).unwrap().unwrap();
    for _ in 0..4 {
        for _ in 0..30 {
            bed.wait(60);
        }
        assert_eq!(bed.send("a"), Some(0));
    }
    assert_eq!(bed.intervals(), ["a 0: - 1000.."]);
    assert_eq!(bed.slots.description(&id("a")).unwrap()["name"], "x");
    assert!(bed.slots.description(&id("a")).unwrap().get("end_reason").is_none());
    // After more than an hour it is another run of that name.
    bed.wait(60);
    bed.wait(3_540);
    bed.send("a");
    assert_eq!(bed.intervals(), ["a 0: - 1000..8200", "a 0: 8200+ 11800.."]);
    assert_eq!(bed.slots.description(&id("a")).unwrap().get("name"), None);
}

#[test]
fn a_job_whose_process_lives_goes_on_however_silent_it_is() {
    let bed = Bed::new();
    bed.slots.begin(&id("a"), ProcessMark::of(std::process::id())).unwrap();
    bed.wait(10_000);
    assert_eq!(bed.intervals(), ["a 0: - 1000.."]);
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    bed.slots.begin(&id("b"), ProcessMark::of(child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    bed.wait(60);
    assert_eq!(bed.intervals()[1], "b 1: - 11000..11000");
}

/// A job that a short command began, and that another process goes on with over a connection that is idle and closed.
#[test]
fn the_process_that_counts_is_the_last_that_connected_and_wrote() {
    let bed = Bed::new();
    bed.send("a");
    let mark = ProcessMark::of(std::process::id());
    let tie = Arc::new(JobTie::new(id("a"), mark));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(JobCaller::tied(&bed.slots, &tie).slot()).unwrap();
    drop(tie);
    bed.wait(10_000);
    assert_eq!(bed.intervals(), ["a 0: - 1000.."]);
}

#[test]
fn what_comes_after_the_end_changes_nothing_of_it_and_later_another_run_begins() {
    let bed = Bed::new();
    bed.send("a");
    assert_eq!(bed.end("a", Some(3)).unwrap()["exit_code"], 3);
    bed.wait(5);
    assert_eq!(bed.send("a"), Some(0), "a sample that came late");
    assert_eq!(bed.end("a", Some(0)).unwrap()["exit_code"], 3, "who says so first counts");
    assert_eq!(bed.end("a", None).unwrap()["end_reason"], "told");
    assert_eq!(bed.intervals(), ["a 0: - 1000..1000"]);
    assert_eq!(bed.end("b", None), None);
    bed.wait(60);
    assert_eq!(bed.end("a", None), None, "it is long over");
    assert_eq!(bed.slots.description(&id("a")).unwrap()["exit_code"], 3);
    bed.send("a");
    assert_eq!(bed.intervals(), ["a 0: - 1000..1000", "a 0: 1000+ 1065.."]);
    assert_eq!(bed.slots.description(&id("a")).unwrap().get("exit_code"), None);
}

#[test]
fn a_job_that_fell_silent_may_still_say_how_it_ended() {
    let bed = Bed::new();
    bed.send("a");
    bed.wait(300);
    assert_eq!(bed.end("a", Some(1)).unwrap()["exit_code"], 1);
    assert_eq!(bed.intervals(), ["a 0: - 1000..1000"], "it ended when it was last heard of");
}

#[test]
fn nobody_who_asks_or_ends_begins_a_job() {
    let bed = Bed::new();
    assert_eq!(bed.slots.hear(&id("a")), None);
    assert_eq!(bed.end("a", None), None);
    assert_eq!(bed.slots.description(&id("a")), None);
    drop(JobTie::new(id("a"), None));
    assert_eq!(bed.intervals(), [""; 0]);
}

#[test]
fn a_slot_stays_taken_while_somebody_may_write_to_it() {
    let bed = Bed::new();
    let tie = bed.connect("a");
    bed.end("a", Some(3)).unwrap();
    bed.wait(1_000);
    assert_eq!(bed.send("b"), Some(1));
    assert_eq!(bed.send("a"), Some(0), "another run over the connection that is still open");
    drop(tie);
    assert_eq!(bed.intervals(), ["a 0: - 1000..1000", "a 0: 1000+ 2000..", "b 1: - 2000.."]);
}

#[test]
fn a_server_that_dies_and_comes_back_soon_finds_its_jobs_going_on() {
    let bed = Bed::new();
    bed.send("a");
    bed.send("b");
    bed.send("c");
    bed.end("c", Some(0)).unwrap();
    bed.wait(10);
    let bed = bed.die();
    assert_eq!((bed.send("a"), bed.send("c"), bed.send("d")), (Some(0), Some(2), Some(3)));
    bed.wait(60);
    // Of the second one nothing is known but its begin; the others are over, too.
    let expected = ["a 0: - 1000..1010", "b 1: - 1000..1000", "c 2: - 1000..1000", "d 3: - 1010..1010"];
    assert_eq!(bed.intervals(), expected);
}

#[test]
fn a_server_that_comes_back_after_days_finds_other_runs_of_the_same_names() {
    let bed = Bed::new();
    bed.send("a");
    bed.clock.wait(200_000);
    let bed = bed.die();
    assert_eq!(bed.intervals(), ["a 0: - 1000..1000"]);
    bed.send("a");
    assert_eq!(bed.intervals(), ["a 0: - 1000..1000", "a 0: 1000+ 201000.."]);
}

#[test]
fn a_server_that_stops_ends_its_jobs_and_one_that_starts_again_goes_on_with_them() {
    let bed = Bed::new();
    let tie = bed.connect("a");
    bed.send("b");
    bed.clock.wait(10);
    bed.slots.close();
    drop(tie);
    assert_eq!(bed.intervals(), ["a 0: - 1000..1010", "b 1: - 1000..1000"]);
    assert_eq!(bed.slots.description(&id("a")).unwrap()["end_reason"], "stop");
    let bed = bed.die();
    bed.clock.wait(10);
    assert_eq!((bed.send("a"), bed.send("c")), (Some(0), Some(2)));
    assert_eq!(bed.intervals(), ["a 0: - 1000..", "b 1: - 1000..1000", "c 2: - 1020.."]);
}

#[test]
fn further_jobs_take_the_slot_of_who_was_silent_for_longest_and_have_none_while_all_run() {
    let bed = Bed::new();
    assert_eq!(bed.send("own"), None);
    let mut ties: Vec<_> = (0..SLOTS_MAX).map(|at| bed.connect(&format!("j{at}"))).collect();
    assert_eq!(bed.send("one more"), None);
    drop(ties.remove(7));
    bed.wait(30);
    drop(ties.remove(3));
    bed.wait(60);
    assert_eq!((bed.send("one more"), bed.send("and one"), bed.send("too many")), (Some(7), Some(3), None));
}

#[test]
fn a_clock_that_jumped_back_leaves_the_order_of_jobs() {
    let bed = Bed::new();
    bed.send("a");
    bed.clock.wait(100);
    bed.end("a", None).unwrap();
    bed.wait(60);
    bed.clock.wall.fetch_add(-130_000_000, Ordering::Relaxed);
    bed.send("b");
    assert_eq!(bed.intervals(), ["a 0: - 1000..1100", "b 0: 1100+ 1100+.."]);
}

#[test]
fn nobody_on_a_thread_of_the_network_waits_for_who_changes_the_database() {
    let bed = Bed::new();
    let tie = bed.connect("a");
    let change = |job: Json| {
        // As while a disk takes its time.
        assert_eq!(bed.slots.hear(&id("a")), Some(0));
        assert!(bed.slots.description(&id("a")).is_some());
        assert_eq!(bed.slots.hear(&id("b")), None);
        Ok::<_, telem_engine::Error>(job)
    };
    bed.slots.describe(&id("a"), change).unwrap().unwrap();
    drop(tie);
}

#[test]
fn a_process_says_its_job_telems_before_the_schedulers() {
    let of = |text: &str| JobId::of_environment(text.as_bytes()).map(|id| id.to_string());
    assert_eq!(of("PJM_JOBID=8\0"), Some("8".to_owned()), "of every scheduler that telem knows");
    assert_eq!(of("A=1\0TELEM_JOB=mine\0SLURM_JOB_ID=7\0"), Some("mine".to_owned()));
    assert_eq!(of("TELEM_JOB=\0PBS_JOBID=7.server\0"), Some("7.server".to_owned()));
    assert_eq!(of("A=1\0"), None);
    assert_eq!(of("TELEM_JOB=local\0SLURM_JOB_ID=7\0"), None);
    for (bad, why) in [("", "0 bytes"), ("a\nb", "control"), (&"x".repeat(257), "257 bytes")] {
        assert!(JobId::new(bad).unwrap_err().contains(why), "{bad}");
    }
    assert_eq!(JobId::new("local"), Ok(None), "that is no job");
    assert_eq!(id("../a/b é").to_string(), "../a/b é");
}

#[test]
fn what_a_process_tells_of_its_job_holds_no_secret() {
    let mut cat = Command::new("cat");
    cat.env_clear().envs([("SLURM_JOB_ID", "7"), ("SECRET", "hush"), ("USER", "ada"), ("TELEM_NAME", "trial")]);
    let mut child = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // Whoever starts a process may go on before that has its command and its environment. What answers has them.
    child.stdin.as_mut().unwrap().write_all(b"?").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let told = describe_process(&id("7"), child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(told["command"], json!(["cat"]));
    assert_eq!(
        (&told["user"], &told["name"], &told["scheduler"]),
        (&json!("ada"), &json!("trial"), &json!({"SLURM_JOB_ID": "7"}))
    );
    assert!(told["cwd"].is_string() && !json!(told).to_string().contains("hush"));
}
