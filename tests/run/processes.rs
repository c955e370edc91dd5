//! The job's own processes at level 3: each rank from its first tick to its last, and the CPU time of all of them,
//! including processes that no tick saw.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::*;

/// Ranks that compute a little for some seconds, and beside them what a compiler does: one short process after another,
/// and one that is left to itself. Says at last what the kernel counts: ranks and burst apart.
const JOB: &str = r#"
import json, os, resource, subprocess, sys, time
RANK = '''
import sys, time
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    sum(range(20000))
    time.sleep(0.005)
'''
def used():
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime
def start(script, *arguments, **environment):
    return subprocess.Popen([sys.executable, "-S", "-c", script, *arguments], env={**os.environ, **environment})
ranks = [start(RANK, sys.argv[1], PMI_RANK=str(rank)) for rank in range(3)]
for rank in ranks:
    assert rank.wait() == 0
of_ranks = used()
for _ in range(int(sys.argv[2])):
    assert start("sum(range(600000))").wait() == 0
print(json.dumps({"ranks": of_ranks, "burst": used() - of_ranks, "own": time.process_time()}))
"#;

fn rows(dir: &Path, sql: &str) -> Vec<Json> {
    let answered = telem(["sql", "--format", "json"]).arg(dir).arg(sql).output().unwrap();
    assert!(answered.status.success(), "{}", String::from_utf8_lossy(&answered.stderr));
    serde_json::from_slice(&answered.stdout).unwrap()
}

fn run(options: &[&str], seconds: &str, burst: &str) -> (Place, Json) {
    let place = Place::new();
    let options: Vec<&str> = ["--node", "n1", "--save", "out"].iter().chain(options).copied().collect();
    // What is found by its name may be a script that looks for Python, and is not in what Python says of itself.
    let python = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    let python = String::from_utf8(python.stdout).unwrap();
    let done = place.output(&options, &[python.trim(), "-c", JOB, seconds, burst]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let used = serde_json::from_slice(&done.stdout).unwrap();
    (place, used)
}

#[test]
fn each_rank_has_a_sample_at_every_tick_and_the_sum_is_what_the_kernel_counts() {
    let (place, used) = run(&["--level", "3", "--interval", "200ms"], "6", "40");
    let out = place.path().join("out");
    let series = rows(
        &out,
        "SELECT comm, pid, rank, parent, counted, count(*) AS samples, min(ts) AS first, max(ts) AS last, \
         max(value) AS seconds FROM job_process_cpu_seconds_total GROUP BY comm, pid, rank, parent, counted",
    );
    let mut of_ranks = BTreeMap::new();
    for one in series.iter().filter(|one| one["rank"].is_string() && one["pid"].is_string()) {
        let (first, last) = (one["first"].as_str().unwrap(), one["last"].as_str().unwrap());
        let ticks = rows(
            &out,
            &format!(
                "SELECT count(*) AS n FROM job_processes WHERE ts > TIMESTAMP '{first}' AND ts <= TIMESTAMP '{last}'"
            ),
        );
        // It begins with 0 at the tick before it was there, which another subject may have missed.
        assert_eq!(one["samples"].as_u64().unwrap() - 1, ticks[0]["n"].as_u64().unwrap(), "{one}");
        assert!(one["samples"].as_u64().unwrap() >= 6, "{one}");
        assert!(one["parent"].as_str().unwrap().starts_with("python"), "{one}");
        of_ranks.insert(one["rank"].as_str().unwrap(), one["seconds"].as_f64().unwrap());
    }
    assert_eq!(of_ranks.keys().copied().collect::<Vec<_>>(), ["0", "1", "2"], "{series:#?}");
    // The command itself still had to end when it said what was used, which takes a few hundredths.
    let kernel = ["ranks", "burst", "own"].map(|part| used[part].as_f64().unwrap()).iter().sum::<f64>();
    let sum: f64 = series.iter().map(|one| one["seconds"].as_f64().unwrap()).sum();
    assert!((-0.1..=0.3).contains(&(sum - kernel)), "{sum} s of {kernel} s: {used} {series:#?}");
    let unseen: f64 =
        series.iter().filter(|one| one["counted"] == "reaped").map(|one| one["seconds"].as_f64().unwrap()).sum();
    assert!(unseen > 0.1 && used["burst"].as_f64().unwrap() > 0.3, "{unseen} s that nobody saw: {used}");
    // Over time too: what began between two ticks has a rate.
    let rates = rows(
        &out,
        "SELECT sum(last - first) AS seconds FROM (SELECT max(value) AS last, min(value) AS first FROM \
         job_process_cpu_seconds_total GROUP BY comm, pid, rank, counted) s",
    );
    let grown = rates[0]["seconds"].as_f64().unwrap();
    assert!((sum - grown).abs() < 0.3, "{grown} s grown of {sum} s");
}

#[test]
fn a_command_that_is_over_at_once_is_counted_and_below_level_3_nothing_is() {
    let (place, used) = run(&["--level", "3", "--interval", "1h"], "0", "20");
    let out = place.path().join("out");
    let sum = rows(
        &out,
        "SELECT sum(seconds) AS seconds FROM (SELECT max(value) AS seconds FROM job_process_cpu_seconds_total \
         GROUP BY comm, counted) s",
    );
    let kernel = ["ranks", "burst", "own"].map(|part| used[part].as_f64().unwrap()).iter().sum::<f64>();
    let sum = sum[0]["seconds"].as_f64().unwrap();
    assert!((-0.1..=0.3).contains(&(sum - kernel)), "{sum} s of {kernel} s");

    let (place, _) = run(&["--level", "2"], "0", "0");
    let found = rows(&place.path().join("out"), "SELECT count(*) AS n FROM samples WHERE metric LIKE 'job_process%'");
    assert_eq!(found[0]["n"], 0);
}
