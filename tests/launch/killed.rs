//! `kill -9` of every process of a job on five nodes, at random moments: the saved databases open together, are sound,
//! and hold for every node a prefix of its acknowledged samples, up to moments before the kill.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use telem_engine::{Clock, SystemClock};

use super::*;
use crate::run::saving::{asked, assert_sound};
use crate::run::{Running, recorder, said};

/// How old what a copy lacks may be: an interval of saving is 0.2 s here; the rest is what an fsync, a step and this
/// test take on a machine that is very busy. By default it is 5 s, and at the most a minute.
const LACKS_MAX: Duration = Duration::from_secs(20);
const OPTIONS: [&str; 6] = ["--local", "4", "--save", "out", "--save-interval", "200ms"];

/// Posts to its head and to every agent, twenty samples each in turn, and prints how many each has acknowledged.
/// Sample `n` lies at millisecond `n`, has the value `n * 7 % 1009`, and its host is the node.
const POSTER: &str = "
import http.client, json, os, urllib.parse
def connect(url):
    return http.client.HTTPConnection(urllib.parse.urlparse(url).netloc)
head = connect(os.environ['TELEM_URL'])
head.request('GET', '/api/nodes')
nodes = [(node['node'], connect(node['url'])) for node in json.loads(head.getresponse().read())]
print(os.getpid(), os.environ['TELEM_SOCKET'], flush=True)
sent = 0
while True:
    for name, connection in nodes:
        batch = [{'metric': 'posted', 'timestamp': 1767225600000 + n, 'value': n * 7 % 1009, 'tags': {'host': name}}
                 for n in range(sent, sent + 20)]
        connection.request('POST', '/api/put', json.dumps(batch))
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 204, answer.status
    sent += 20
    print(sent, flush=True)
";

/// Whether every copy is known to have what was acknowledged at the drawn moment, before anybody is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Copies {
    Seen,
    Unseen,
}

#[test]
fn when_every_process_is_killed_what_was_saved_opens_and_lacks_moments() {
    let seed = std::env::var("TELEM_SEED").ok().map(|seed| seed.parse().unwrap());
    let seed: u64 = seed.unwrap_or_else(|| RandomState::new().hash_one("seed"));
    println!("seed {seed} (TELEM_SEED={seed} draws the same moments)");
    // The first dies while the first copies are made, or soon after.
    for (round, (copies, most)) in [(Copies::Unseen, 40), (Copies::Seen, 200)].into_iter().enumerate() {
        killed(copies, 1 + crate::kill::drawn(seed, round as u64) % most, seed);
    }
}

fn killed(copies: Copies, rounds: u64, seed: u64) {
    let why = format!("seed {seed}: {copies:?}, after {rounds} rounds");
    let place = Place::new();
    let mut running = Running::start(place.run(&OPTIONS, &["python3", "-c", POSTER]));
    let first = running.line();
    let (command, socket) = first.split_once(' ').unwrap();
    let agents = agents(Path::new(socket));
    assert_eq!(agents.len(), 4, "{why}");
    let mut all: Vec<Pid> = agents.iter().map(|(_, number)| pid(*number)).collect();
    all.extend([recorder(&place), pid(running.telem.id()), pid(command.parse().unwrap())]);
    // In an order that is drawn, too.
    let first_killed = crate::kill::drawn(seed, 7 + rounds) as usize % all.len();
    all.rotate_left(first_killed);
    let clock = SystemClock::new();
    // When each count was acknowledged by all nodes.
    let mut acknowledged = Vec::new();
    for _ in 0..rounds {
        acknowledged.push((running.line().parse::<usize>().unwrap(), clock.monotonic()));
    }
    let out = place.path().join("out");
    let nodes: Vec<String> = agents.into_iter().map(|(node, _)| node).chain([short_host()]).collect();
    let mut surely = 0;
    if copies == Copies::Seen {
        surely = acknowledged.last().unwrap().0;
        let since = clock.monotonic();
        poll("every copy to follow", || nodes.iter().all(|node| posted_to(&out.join(node), node) >= surely));
        println!("the copies were seen to follow after {:?}", clock.monotonic() - since);
    }
    for one in &all {
        match kill_process(*one, Signal::KILL) {
            // Who talked to one that is dead already may have ended by itself.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => panic!("{why}: {error}"),
        }
    }
    let killed = clock.monotonic();
    while let Ok(count) = running.line().parse::<usize>() {
        acknowledged.push((count, killed));
    }
    let (status, _) = running.end();
    assert!(!status.success(), "{why}");
    for one in &all {
        poll("a killed process to be gone", || test_kill_process(*one).is_err());
    }
    let old = acknowledged.iter().filter(|(_, time)| *time + LACKS_MAX < killed).map(|(count, _)| *count).max();
    let wanted = old.unwrap_or(0).max(surely);
    let count = acknowledged.last().unwrap().0;
    let found = saved(&out, &nodes, &why);
    let lacking = |(node, numbers): (&String, &usize)| format!("{node} {}", (count + 20).saturating_sub(*numbers));
    println!("of {count} samples a node: {}", found.iter().map(lacking).collect::<Vec<_>>().join(", "));
    for node in &nodes {
        let stored = found.get(node).copied().unwrap_or(0);
        assert!(stored >= wanted, "{why}: of {node} {stored} are saved, and {wanted} were to be");
        // A round that was cut off had reached some.
        assert!(stored <= count + 20, "{why}: of {node} {stored} are saved, and {count} were acknowledged");
    }
}

/// How many samples of the command each node has in what was saved, which opens as one and is sound.
fn saved(out: &Path, nodes: &[String], why: &str) -> BTreeMap<String, usize> {
    assert_sound(out, why);
    let told = asked(&["info", "--json"], out, "");
    assert!(told.status.success(), "{why}: {}", said(&told));
    let told: Json = serde_json::from_slice(&told.stdout).unwrap();
    assert!(told["samples"].as_u64() > Some(0), "{why}: {told}");
    let rows = asked(&["sql", "--format", "csv"], out, "SELECT count(*) FROM posted");
    if !rows.status.success() {
        assert!(said(&rows).contains("posted"), "{why}: {}", said(&rows));
        return BTreeMap::new();
    }
    let prefix = "SELECT node, host, count(*) AS n, min(CAST(ts AS BIGINT)), max(CAST(ts AS BIGINT)), \
                  count(*) FILTER (WHERE value <> ((CAST(ts AS BIGINT) - 1767225600000000) / 1000 * 7) % 1009) \
                  FROM posted GROUP BY node, host";
    let rows = asked(&["sql", "--format", "csv"], out, prefix);
    assert!(rows.status.success(), "{why}: {}", said(&rows));
    let text = String::from_utf8(rows.stdout).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        assert!(nodes.iter().any(|node| node == cells[0]) && cells[0] == cells[1], "{why}: {line}");
        let number = |at: usize| cells[at].parse::<i64>().unwrap();
        let (n, first, last) = (number(2), number(3), number(4));
        // As many as there are between the first and the last that may be, so there is no hole.
        assert_eq!((first, last), (1_767_225_600_000_000, first + (n - 1) * 1_000), "{why}: {line}");
        assert_eq!(number(5), 0, "{why}: samples of {} have other values: {line}", cells[0]);
        (cells[0].to_owned(), n as usize)
    };
    text.lines().skip(1).map(row).collect()
}

/// How many samples of the command a copy has; none where it does not open yet.
fn posted_to(copy: &Path, node: &str) -> usize {
    let sql = format!("SELECT count(*) FROM samples WHERE metric = 'posted' AND host = '{node}'");
    let rows = asked(&["sql", "--format", "csv"], copy, &sql);
    let text = String::from_utf8(rows.stdout).unwrap();
    text.lines().nth(1).and_then(|count| count.parse().ok()).unwrap_or(0)
}
