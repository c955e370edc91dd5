//! Two, twenty and two thousand runs of one script on one node: another setting, other values and other times, the same
//! host and equal series. They are told apart in SQL, OpenTSDB, a replay, exports, lists and comparisons.
//!
//! `TELEM_RUNS=2000` makes so many in place of twenty, and every part says how long it took and what memory it had.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value as Json, json};
use telem_engine::{
    Clock, Db, Durability, MetaChange, Options, SampleBatch, SeriesId, SeriesKey, SystemClock, TagSet, Timestamp, Value,
};

use crate::process::{Server, quiet};
use crate::run::{Place, output_within};

/// 2026-01-01T00:00:00Z: when the first of them began.
const BEGAN_S: i64 = 1_767_225_600;
/// One began so long after the other.
const APART_S: i64 = 90;
/// Samples of each series, one a second.
const SAMPLES: i64 = 60;
/// Longest that one question may take: of 2,000 runs an export by a debug build took 10 min on a busy machine.
const PATIENCE: Duration = Duration::from_secs(7_200);

/// A run, and all that is different of it: its number makes the setting, the values and the times.
#[derive(Clone, Copy)]
struct Trial(usize);

impl Trial {
    fn job(self) -> String {
        format!("trial-{:04}", self.0)
    }

    fn lr(self) -> f64 {
        (self.0 + 1) as f64 / 1_000.0
    }

    fn begin(self) -> i64 {
        BEGAN_S + self.0 as i64 * APART_S
    }

    /// It falls to the number of the run, so no two runs have a value in common. In binary it is short: JSON has all
    /// of it.
    fn loss(self, second: i64) -> f64 {
        (self.0 + 1) as f64 + (SAMPLES - 1 - second) as f64 / 64.0
    }

    /// The same of all but for noise, which nobody may take for the cause.
    fn speed(self, second: i64) -> f64 {
        100.0 + ((self.0 as i64 * 7 + second * 13) % 10) as f64 / 10.0
    }

    fn save(self, runs: &Path) {
        let db = Db::open(&self.dir(runs), Options { node: "n1".to_owned(), ..Options::default() }).unwrap();
        let series = |metric: &str| -> SeriesId {
            db.series(&SeriesKey::new(metric, TagSet::new([("host", "n1"), ("rank", "0")]).unwrap()).unwrap()).unwrap()
        };
        let (loss, speed) = (series("loss"), series("samples_per_second"));
        let mut batch = SampleBatch::default();
        for second in 0..SAMPLES {
            let time = Timestamp::from_seconds(self.begin() + second);
            batch.push(loss, time, Value::Float(self.loss(second)));
            batch.push(speed, time, Value::Float(self.speed(second)));
        }
        db.append(&batch, Durability::Buffered).unwrap();
        let at = |second: i64| chrono::DateTime::from_timestamp(self.begin() + second, 0).unwrap().to_rfc3339();
        let description = json!({
            "id": self.job(), "name": format!("trial {}", self.0), "command": ["python", "train.py"], "user": "ada",
            "cwd": "/home/ada", "node": "n1", "settings": {"lr": self.lr(), "batch": 64, "model.depth": 12},
            "start": at(0), "end": at(SAMPLES), "exit_code": 0,
        });
        db.put_meta(MetaChange::Job(description), Durability::Buffered).unwrap();
        db.close().unwrap();
    }

    fn dir(self, runs: &Path) -> PathBuf {
        runs.join(self.job()).join("n1")
    }
}

/// Makes `count` runs below `runs`.
fn save_all(runs: &Path, count: usize) {
    std::thread::scope(|scope| {
        for part in 0..4 {
            scope.spawn(move || (part..count).step_by(4).for_each(|number| Trial(number).save(runs)));
        }
    });
}

/// Runs `telem WORDS` with as few descriptors as many clusters give, and says what it took.
fn asked(place: &Place, words: &[&str]) -> String {
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -Sn 1024; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_telem")]).args(words);
    quiet(&mut limited);
    place.at_home(&mut limited);
    let (clock, words) = (SystemClock::new(), words.join(" "));
    let began = clock.monotonic();
    let Output { status, stdout, stderr } = output_within(PATIENCE, limited);
    println!("{:.2?} telem {}", clock.monotonic() - began, words.replace('\n', " "));
    assert!(status.success(), "{words}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// What is known of all runs, by job.
fn by_job<T>(count: usize, of: impl Fn(Trial) -> T) -> BTreeMap<String, T> {
    (0..count).map(|number| (Trial(number).job(), of(Trial(number)))).collect()
}

fn rows_of_csv(text: &str) -> Vec<BTreeMap<&str, &str>> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    lines.map(|line| names.iter().copied().zip(line.split(',')).collect()).collect()
}

fn told_apart(count: usize) {
    let place = Place::new();
    let runs = place.path().join("runs");
    save_all(&runs, count);
    let last = SAMPLES - 1;

    // A list: each with its setting and the last value of a metric; and once more, from what the first call kept.
    for _ in 0..2 {
        let listed: Vec<Json> =
            serde_json::from_str(&asked(&place, &["ls", "runs", "--json", "--columns", "lr,loss"])).unwrap();
        let found = listed.iter().map(|run| {
            let number = |value: &Json| value.as_f64().unwrap();
            (run["job"].as_str().unwrap().to_owned(), (number(&run["settings"]["lr"]), number(&run["values"]["loss"])))
        });
        assert_eq!(found.collect::<BTreeMap<_, _>>(), by_job(count, |trial| (trial.lr(), trial.loss(last))));
        assert!(listed.iter().all(|run| run["state"] == "completed"));
    }

    // SQL: one row each, with its own values and times.
    let sql = "SELECT job, count(*) AS samples, min(value) AS least, max(value) AS greatest, \
               CAST(date_part('epoch', min(ts)) AS BIGINT) AS begin FROM loss GROUP BY job";
    let text = asked(&place, &["sql", "--format", "csv", "runs", sql]);
    let found = rows_of_csv(&text).into_iter().map(|row| {
        let number = |name: &str| row[name].parse::<f64>().unwrap();
        (row["job"].to_owned(), (number("samples"), number("least"), number("greatest"), number("begin")))
    });
    let expected = |trial: Trial| (SAMPLES as f64, trial.loss(last), trial.loss(0), trial.begin() as f64);
    assert_eq!(found.collect::<BTreeMap<_, _>>(), by_job(count, expected));
    let one = Trial(count - 1);
    let sql = format!("SELECT count(*) AS samples, max(value) AS greatest FROM loss WHERE job = '{}'", one.job());
    let text = asked(&place, &["sql", "--format", "csv", "runs", &sql]);
    assert_eq!(text, format!("samples,greatest\n{SAMPLES},{:?}\n", one.loss(0)));
    // A setting is a question like any other.
    let sql = "SELECT name, CAST(settings['lr'] AS DOUBLE) AS lr FROM jobs ORDER BY lr DESC LIMIT 1";
    let text = asked(&place, &["sql", "--format", "csv", "runs", sql]);
    assert_eq!(text, format!("name,lr\ntrial {},{:?}\n", one.0, one.lr()));

    exports(&place, count);
    replayed(&runs, count);
    compared(&place, count);
}

/// One file, and a directory with one for each metric: both say whose each row is.
fn exports(place: &Place, count: usize) {
    asked(place, &["export", "runs", "-o", "all.csv"]);
    asked(place, &["export", "runs", "-o", "each/", "--format", "csv"]);
    let read = |file: &str| std::fs::read_to_string(place.path().join(file)).unwrap();
    let (all, loss, speed) = (read("all.csv"), read("each/loss.csv"), read("each/samples_per_second.csv"));
    let sums = |text: &str, metric: Option<&str>| {
        let mut sums: BTreeMap<String, (i64, f64)> = BTreeMap::new();
        for row in rows_of_csv(text) {
            if metric.is_none_or(|metric| row["metric"] == metric) {
                let sum = sums.entry(row["job"].to_owned()).or_default();
                *sum = (sum.0 + 1, sum.1 + row["value"].parse::<f64>().unwrap());
            }
        }
        sums
    };
    let losses = by_job(count, |trial| (SAMPLES, (0..SAMPLES).map(|second| trial.loss(second)).sum::<f64>()));
    let speeds = by_job(count, |trial| (SAMPLES, (0..SAMPLES).map(|second| trial.speed(second)).sum::<f64>()));
    for (found, expected) in [
        (sums(&all, Some("loss")), &losses),
        (sums(&loss, None), &losses),
        (sums(&all, Some("samples_per_second")), &speeds),
        (sums(&speed, None), &speeds),
    ] {
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (job, (rows, sum)) in expected {
            let (found_rows, found_sum) = found[job];
            assert!(
                found_rows == *rows && (found_sum - sum).abs() < 1e-6 * sum,
                "{job}: {found_rows} rows, {found_sum}"
            );
        }
    }
}

/// OpenTSDB's tag `job`, which nobody stored, in a replay of the folder: to group by, and to filter by.
fn replayed(runs: &Path, count: usize) {
    let clock = SystemClock::new();
    let began = clock.monotonic();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn 1024; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_telem")]);
    command.args(["replay", "--listen", "127.0.0.1:0"]).arg(runs);
    let replay = Server::start(command);
    println!("{:.2?} telem replay until it listens", clock.monotonic() - began);
    let (start, end) = (BEGAN_S - 1, BEGAN_S + count as i64 * APART_S + SAMPLES);
    let asked = |metric: &str| {
        let began = clock.monotonic();
        let answer = replay.get(&format!("/api/query?start={start}&end={end}&m={metric}")).expect(200).json();
        println!("{:.2?} m={metric} of {count} runs", clock.monotonic() - began);
        let groups: Vec<(String, BTreeMap<i64, f64>)> = answer
            .as_array()
            .unwrap()
            .iter()
            .map(|group| {
                let points = group["dps"].as_object().unwrap().iter();
                let points = points.map(|(time, value)| (time.parse().unwrap(), value.as_f64().unwrap()));
                (group["tags"]["job"].as_str().unwrap_or_default().to_owned(), points.collect())
            })
            .collect();
        groups
    };
    let groups = asked("none:loss%7Bjob=*%7D");
    let found: BTreeMap<String, BTreeMap<i64, f64>> = groups.into_iter().collect();
    let expected = |trial: Trial| (0..SAMPLES).map(|second| (trial.begin() + second, trial.loss(second))).collect();
    assert!(found.keys().cloned().eq((0..count).map(|number| Trial(number).job())), "{:?}", found.keys());
    for (number, (job, points)) in found.iter().enumerate() {
        assert_eq!(*points, expected(Trial(number)), "{job}");
    }
    for number in [0, count - 1] {
        let trial = Trial(number);
        let groups = asked(&format!("sum:loss%7Bjob={}%7D", trial.job()));
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0].1, expected(trial), "{}", trial.job());
    }
    // Without the tag they are one series, as they were sent.
    assert_eq!(asked("sum:loss").len(), 1);
    let sql = replay.sql("SELECT count(DISTINCT job) AS jobs FROM samples").expect(200).text();
    assert!(sql.contains(&count.to_string()), "{sql}");
    let memory = std::fs::read_to_string(format!("/proc/{}/status", replay.id())).unwrap();
    let most = memory.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    let files = std::fs::read_dir(format!("/proc/{}/fd", replay.id())).map_or(0, Iterator::count);
    println!("replay of {count} runs: {most}, {files} descriptors");
}

/// Two of them: what was changed on purpose comes first, be they named by their directories or within the folder.
fn compared(place: &Place, count: usize) {
    let (one, other) = (Trial(0).job(), Trial(count - 1).job());
    for runs in [[format!("runs/{one}"), format!("runs/{other}")], [format!("runs#{one}"), format!("runs#{other}")]] {
        let text = asked(place, &["diff", &runs[0], &runs[1], "--json"]);
        let found: Json = serde_json::from_str(&text).unwrap();
        let settings: Vec<&str> = found["description"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|fact| fact["what"].as_str())
            .filter(|what| what.contains("lr") || what.contains("batch") || what.contains("depth"))
            .collect();
        assert!(settings.len() == 1 && settings[0].contains("lr"), "{}", found["description"]);
        assert!(found["description"][0]["what"].as_str().unwrap().contains("lr"), "{}", found["description"]);
        let metrics: Vec<&str> =
            found["metrics"].as_array().unwrap().iter().map(|metric| metric["metric"].as_str().unwrap()).collect();
        assert_eq!(metrics, ["loss", "samples_per_second"]);
    }
}

#[test]
fn two_runs_of_one_script_are_told_apart_everywhere() {
    told_apart(2);
}

#[test]
fn twenty_runs_of_one_script_are_told_apart_everywhere() {
    told_apart(std::env::var("TELEM_RUNS").map_or(20, |count| count.parse().unwrap()));
}
