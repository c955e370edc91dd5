use std::io::Read;
use std::process::{Command, Stdio};

use telem_engine::SystemClock;

use super::*;

const MIB: u64 = 1 << 20;

fn seen(pid: u32, name: &str, ticks: u64, resident: u64, shared: u64) -> SeenProcess {
    let (name, resident, shared) = (name.to_owned(), resident * MIB, shared * MIB);
    SeenProcess { pid, started: u64::from(pid) * 10, name, ticks, resident, shared }
}

fn told(course: &Course) -> Vec<String> {
    let usage = course.usage();
    let text = |named: &NamedUsage| format!("{} {} {:.2}", named.name, named.processes, named.cpu_seconds);
    usage.by_name.iter().map(text).collect()
}

#[test]
fn time_of_processes_that_came_and_went_is_added_up_by_name() {
    let mut course = Course::default();
    course.add(vec![seen(1, "make", 10, 5, 3), seen(2, "cc", 100, 50, 10)]);
    course.add(vec![seen(1, "make", 20, 5, 3), seen(2, "cc", 150, 90, 10), seen(3, "cc", 30, 40, 10)]);
    course.add(vec![seen(1, "make", 25, 5, 3)]);
    assert_eq!(told(&course), ["cc 2 1.80", "make 1 0.25"]);
    // Own pages of all, and once what they share.
    assert_eq!(course.usage().memory_bytes_max, (2 + 80 + 30 + 10) * MIB);
    assert!((course.usage().cpu_seconds() - 2.05).abs() < 1e-9);
}

#[test]
fn a_process_that_runs_another_program_has_its_time_under_both_names() {
    let mut course = Course::default();
    course.add(vec![seen(1, "sh", 7, 1, 1)]);
    course.add(vec![seen(1, "solve", 27, 1, 1)]);
    course.add(vec![seen(1, "solve", 107, 1, 1)]);
    assert_eq!(told(&course), ["solve 1 1.00", "sh 0 0.07"]);
    course.add(Vec::new());
    assert_eq!(told(&course), ["solve 1 1.00", "sh 0 0.07"]);
}

#[test]
fn a_number_that_another_process_has_now_is_another_process() {
    let mut course = Course::default();
    course.add(vec![seen(7, "cc", 100, 1, 1)]);
    course.add(vec![SeenProcess { started: 99, ..seen(7, "cc", 5, 1, 1) }]);
    assert_eq!(told(&course), ["cc 2 1.05"]);
}

#[test]
fn names_beyond_the_limit_are_added_up_as_one() {
    let mut course = Course::default();
    for n in 0..=NAMES_MAX as u32 + 1 {
        course.add(vec![seen(n + 1, &format!("p{n}"), 1, 1, 1)]);
    }
    course.add(Vec::new());
    let others: Vec<String> = told(&course).into_iter().filter(|named| named.starts_with(OTHERS)).collect();
    assert_eq!(others, ["others 2 0.02"]);
}

#[test]
fn what_the_kernel_says_of_a_process_is_read_past_any_name() {
    let stat = "7 (a) 1 2 (b) S 1 7 7 0 -1 4194560 900 0 0 0 150 50 99 98 20 0 6 0 4711 1000 200";
    let status = "Name:\ta)\nVmRSS:\t    2048 kB\nRssAnon:\t 1000 kB\nRssFile:\t  900 kB\nRssShmem:\t 148 kB\n";
    let found = parse_process(7, stat, status).unwrap();
    let name = "a) 1 2 (b".to_owned();
    let (resident, shared) = (2_048 << 10, 1_048 << 10);
    assert_eq!(found, SeenProcess { pid: 7, started: 4711, name, ticks: 200, resident, shared });
    assert_eq!(waited_for(stat), Some(1.97));
    assert_eq!(parse_process(7, "7 (a) S 1", ""), None);
}

#[test]
fn processes_below_a_command_are_seen() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "sh -c 'echo ready; read -r line'; exit 0"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    shell.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    let found = look(shell.id());
    assert!(found.len() == 2 && found.iter().all(|process| process.name == "sh" && process.resident > 0), "{found:?}");
    let watch = UsageWatch::start(shell.id(), Arc::new(SystemClock::new())).unwrap();
    while watch.usage().by_name.is_empty() {
        thread::yield_now();
    }
    assert!(watch.usage().memory_bytes_max > 0 && watch.query_cpu_seconds() >= 0.0);
    drop(shell.stdin.take());
    shell.wait().unwrap();
    assert!(look(shell.id()).is_empty());
}
