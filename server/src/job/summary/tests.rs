use telem_engine::Timestamp;

use super::*;

#[test]
fn bytes_are_told_for_people() {
    assert_eq!(
        [0, 999, 1_000, 1_234_567, 5_000_000_000].map(bytes),
        ["0 bytes", "999 bytes", "1.0 kB", "1.2 MB", "5.0 GB"]
    );
}

#[test]
fn lost_samples_are_told_with_their_times_and_those_in_memory_where_it_was_not_written() {
    let span = |from, to| Some((Timestamp::from_seconds(from), Timestamp::from_seconds(to)));
    let stats = WriterStats {
        lost: Lost { samples: 1_000, span: span(0, 60) },
        unwritten: Lost { samples: 20, span: span(90, 100) },
        samples_refused: 7,
        ..WriterStats::default()
    };
    assert_eq!(
        Losses::of(&stats, true).to_string(),
        " · 1,000 samples LOST from 1970-01-01T00:00:00Z to 1970-01-01T00:01:00Z · 7 samples of clients were refused"
    );
    let all = Losses::of(&stats, false).to_string();
    assert!(all.contains("1,020 samples LOST from 1970-01-01T00:00:00Z to 1970-01-01T00:01:40Z"), "{all}");
    assert_eq!(Losses::of(&WriterStats::default(), false).to_string(), "");
}

fn used(name: &str, processes: usize, cpu_seconds: f64) -> NamedUsage {
    NamedUsage { name: name.to_owned(), processes, cpu_seconds }
}

fn course(ending: Option<Ending>, ms: u64, cpu_ms: Option<u64>, by_name: Vec<NamedUsage>) -> String {
    let seen = JobUsage { memory_bytes_max: 1_234_567_890, by_name };
    CommandCourse { ending, took: Duration::from_millis(ms), cpu_ms, seen }.lines().join("\n")
}

#[test]
fn the_course_of_a_command_is_told_in_a_line_or_two() {
    let compiled = vec![used("cc1", 41, 31.04), used("python3", 1, 20.1), used("make", 2, 1.5), used("ld", 1, 1.4)];
    assert_eq!(
        course(Some(Ending::Exited(0)), 41_230, Some(63_100), compiled.clone()),
        "command   ran 41.2 s, exit code 0 · 63.1 s of CPU (1.5 cores) · peak memory 1.2 GB\n\
         most CPU  cc1 31.0 s (41 processes) · python3 20.1 s · make 1.50 s (2 processes) · 9.06 s in processes that \
         ended unseen"
    );
    // What was seen counts where the kernel does not say, or says less.
    for cpu_ms in [None, Some(10)] {
        let told = course(None, 7_384_000, cpu_ms, compiled.clone());
        assert!(told.starts_with("command   ran 2 h 3 min, its end was not observed · 54.0 s of CPU (0.0"), "{told}");
        assert!(!told.contains("unseen"), "{told}");
    }
    assert_eq!(
        course(Some(Ending::Killed { signal: 9 }), 500, Some(20), vec![used("sleep", 1, 0.02), used("sh", 1, 0.0)]),
        "command   ran 0.5 s, killed by SIGKILL (signal 9) · 0.02 s of CPU · peak memory 1.2 GB"
    );
    let strange = course(Some(Ending::Killed { signal: 35 }), 0, None, vec![used("a\nb", 1, 1.0), used("c", 1, 1.0)]);
    assert!(strange.contains("killed by signal 35") && strange.contains("a?b 1.00 s · c 1.00 s"), "{strange}");
}

#[test]
fn times_are_told_for_people() {
    let told = [0.0, 9.999, 59.94, 60.0, 3_599.9, 3_600.0, 90_061.0].map(Duration::from_secs_f64).map(span);
    assert_eq!(told, ["0.0 s", "10.0 s", "59.9 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "25 h 1 min"]);
    assert_eq!([0.004, 9.99, 10.0, 599.0, 600.0].map(seconds), ["0.00 s", "9.99 s", "10.0 s", "599.0 s", "10 min 0 s"]);
}

fn summary(live: &Path, saved: Option<Saved>) -> JobSummary {
    JobSummary {
        contents: None,
        losses: Losses::default(),
        clients: ClientTally::default(),
        live: live.to_path_buf(),
        saved,
        footprint: Some(Footprint { cpu_seconds: 4.9, memory_bytes_max: 101_000_000 }),
        query_cpu_seconds: 0.0,
        energy: Vec::new(),
        others: None,
        course: None,
    }
}

#[test]
fn what_queries_took_is_told_apart_from_what_recording_took() {
    let recorded = summary(Path::new("/no/such/place"), None);
    assert_eq!(recorded.cost().unwrap(), "took 4.90 s of CPU and at most 101.0 MB");
    assert_eq!(
        recorded.beside(Some(4.55)).cost().unwrap(),
        "took 0.35 s of CPU to record, 4.55 s to answer queries, and at most 101.0 MB"
    );
}

#[test]
fn what_programs_dropped_is_told_if_they_dropped_anything() {
    let with = |clients, clients_dropped| {
        let others = Some(Tally { nodes: 1, clients_dropped, ..Tally::default() });
        JobSummary { clients, others, ..summary(Path::new("/no/such/place"), None) }.dropped()
    };
    let taken = ClientTally { taken: 10_000, ..ClientTally::default() };
    assert_eq!(with(taken, 0), None);
    let dropped = ClientTally { dropped_full: 1_200, dropped_else: 1, ..taken };
    assert_eq!(
        with(dropped, 3).unwrap(),
        "1,204 samples by the programs themselves: 1,200 for want of room in the program, 1 for other reasons, 3 on \
         other nodes"
    );
}

#[test]
fn the_next_command_names_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let saved = |failed: Option<&str>| Saved {
        dir: PathBuf::from("/out dir/telem-7/n1"),
        failed: failed.map(str::to_owned),
        nothing: false,
    };
    let next = |live: &Path, saved, others| summary(live, saved).with(others).next();
    let one = "telem info '/out dir/telem-7/n1' · telem replay '/out dir/telem-7/n1'";
    assert_eq!(next(dir.path(), Some(saved(None)), None).unwrap(), one);
    let all = "telem info '/out dir/telem-7' · telem replay '/out dir/telem-7'";
    assert_eq!(next(dir.path(), Some(saved(None)), Some(Tally::default())).unwrap(), all);
    let live = format!("telem info {0} · telem replay {0}", dir.path().display());
    assert_eq!(next(dir.path(), Some(saved(Some("full"))), None).unwrap(), live);
    assert_eq!(next(dir.path(), None, None).unwrap(), live);
    assert_eq!(next(Path::new("/no/such/place"), None, None), None);
    let here = std::env::current_dir().unwrap().join("telem-7/n1");
    let near = Saved { dir: here, failed: None, nothing: false };
    assert_eq!(next(dir.path(), Some(near), None).unwrap(), "telem info telem-7/n1 · telem replay telem-7/n1");
}

#[test]
fn energy_that_is_not_added_up_in_time_is_told_by_somebody_else() {
    let late = summary(Path::new("/no/such/place"), None).costing(None);
    assert_eq!(late.energy, ["it takes a moment to add up: telem info tells it"]);
    let nothing = summary(Path::new("/no/such/place"), None).costing(Some(Vec::new()));
    assert_eq!(nothing.energy, [""; 0]);
}
