//! `kill -9` of telem (both of its processes), of the command, and of all, under load at random moments. The copy opens
//! and holds a prefix of what was sent. It lacks nothing if telem survived, and otherwise only the last moments.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use telem_engine::{Clock, SystemClock};

use super::saving::{POSTED_ALONE, POSTER, assert_sound, info, posted};
use super::*;
use crate::process::PATIENCE;

/// How old what the copy lacks may be: an interval of saving is 0.2 s here; the rest is what an fsync, a step and this
/// test take on a machine that is very busy. By default it is 5 s, and at the most a minute.
const LACKS_MAX: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    Telem,
    Command,
    Both,
}

/// Whether the copy is known to have what was acknowledged at the drawn moment, before anybody is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Copy {
    Seen,
    Unseen,
}

#[test]
fn a_killed_job_leaves_a_copy_that_opens_and_lacks_moments() {
    let seed = std::env::var("TELEM_SEED").ok().map(|seed| seed.parse().unwrap());
    let seed: u64 = seed.unwrap_or_else(|| RandomState::new().hash_one("seed"));
    println!("seed {seed} (TELEM_SEED={seed} draws the same moments)");
    let rounds = [
        (Victim::Telem, Copy::Unseen),
        (Victim::Command, Copy::Unseen),
        (Victim::Both, Copy::Seen),
        (Victim::Telem, Copy::Seen),
        (Victim::Both, Copy::Unseen),
    ];
    for (round, (victim, copy)) in rounds.into_iter().enumerate() {
        // Some die before anything can have been saved.
        let batches = crate::kill::drawn(seed, round as u64) % 400;
        killed(victim, copy, batches, seed);
    }
}

fn killed(victim: Victim, seen: Copy, batches: u64, seed: u64) {
    let why = format!("seed {seed}: {victim:?}, {seen:?}, after {batches} batches");
    let place = Place::new();
    let options: Vec<&str> = POSTED_ALONE.into_iter().chain(["--save", "out", "--save-interval", "200ms"]).collect();
    let mut running = Running::start(place.run(&options, &["python3", "-c", POSTER, "100000000"]));
    let command = pid(running.line().parse().unwrap());
    let clock = SystemClock::new();
    // When each count was acknowledged.
    let mut acknowledged = Vec::new();
    for _ in 0..batches {
        acknowledged.push((running.line().parse::<usize>().unwrap(), clock.monotonic()));
        assert!(clock.monotonic() < PATIENCE);
    }
    let copy = place.path().join("out/n1");
    let mut surely = 0;
    if seen == Copy::Seen {
        surely = acknowledged.last().map_or(0, |(count, _)| *count);
        let since = clock.monotonic();
        poll("the copy to follow", || info(&copy).is_some_and(|info| info.samples >= surely as u64));
        println!("the copy was seen to follow after {:?}", clock.monotonic() - since);
    }
    if victim != Victim::Command {
        running.kill_telem(&place);
    }
    if victim != Victim::Telem {
        // It may have ended when it found nobody to talk to.
        let _ = kill_process(command, Signal::KILL);
    }
    let killed = clock.monotonic();
    loop {
        let line = running.line();
        match line.parse::<usize>() {
            Ok(count) => acknowledged.push((count, killed)),
            Err(_) => break,
        }
    }
    let (status, said) = running.end();
    let count = acknowledged.last().map_or(0, |(count, _)| *count);
    let stored = if info(&copy).is_some() { posted(&copy) } else { Vec::new() };
    assert!(stored.iter().enumerate().all(|(at, n)| at as i64 == *n), "{why}: a hole in {stored:?}");
    if victim == Victim::Command {
        assert_eq!(status.code(), Some(137), "{why}: {said}");
        assert!(stored.len() >= count, "{why}: {} of {count}: {said}", stored.len());
        return;
    }
    let old = acknowledged.iter().filter(|(_, time)| *time + LACKS_MAX < killed).map(|(count, _)| *count).max();
    assert!(stored.len() >= old.unwrap_or(0).max(surely), "{why}: {} of {old:?}, {surely}", stored.len());
    // Whatever is there, is whole.
    if info(&copy).is_some() {
        assert_sound(&copy, &why);
    }
    // The live data recover everything that was acknowledged.
    let live = walk(&place.path().join("live"));
    let whole = posted(&live);
    assert!(whole.len() >= count, "{why}: the live data have {} of {count}", whole.len());
}

/// The one directory of live data.
fn walk(live: &Path) -> std::path::PathBuf {
    let mut dir = live.to_path_buf();
    while !dir.join("MANIFEST").exists() && !dir.join("wal").exists() {
        dir = std::fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
    }
    dir
}
