//! Processor time as the kernel counts it, without a call that needs unsafe code.

use std::time::Duration;
use std::{fs, thread};

/// Of all threads of this process, those that ended included; to a hundredth of a second.
///
/// # Panics
/// Where there is no `/proc`.
#[must_use]
pub fn of_process() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("/proc");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name in brackets").1.split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum();
    // The kernel counts in hundredths of a second for everybody.
    Duration::from_millis(ticks * 10)
}

/// Of this thread, to the nanosecond.
///
/// # Panics
/// Where there is no `/proc`.
#[must_use]
pub fn of_thread() -> Duration {
    scheduled("/proc/thread-self/schedstat")
}

/// Of the threads of this process that live, to the nanosecond.
///
/// # Panics
/// Where there is no `/proc`.
#[must_use]
pub fn of_live_threads() -> Duration {
    let threads = fs::read_dir("/proc/self/task").expect("/proc");
    threads.map(|thread| scheduled(&thread.expect("/proc").path().join("schedstat").to_string_lossy())).sum()
}

fn scheduled(path: &str) -> Duration {
    // The kernel adds up what a running thread took at its ticks, and when the thread offers its core to others.
    thread::yield_now();
    let stat = fs::read_to_string(path).expect("/proc");
    Duration::from_nanos(stat.split(' ').next().and_then(|field| field.parse().ok()).expect("a number"))
}
