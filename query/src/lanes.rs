//! The threads of SQL. A lane is a small group of threads that one query has to itself.
//!
//! Planning, scalar functions and sorts run to their end on the thread that calls them; no timer interrupts them. So
//! nothing waits for a query whose time is over: if its work does not end at once, its lane is retired. Tasks that only
//! wait in the lane are dropped. Code that still computes goes on at the lowest priority, is counted, and ends together
//! with its thread. The next query gets another lane.
//!
//! A question that works for long gives way to short ones: its threads get a lower priority, and its lane ends with it,
//! since a user may lower a priority but not raise it again.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use datafusion::execution::memory_pool::MemoryPool;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::{Error, Result};
use crate::guard::QuestionBounds;
use crate::options::QueryOptions;

/// Threads that may block in the engine at once, all queries together; made when needed. A leaf holds
/// one for each of its parts while it is read: 16 queries of two tables in 8 parts each hold 256.
pub(crate) const BLOCKING_THREADS_MAX: usize = 1_024;
/// Deep plans recurse deeply, most of all in a debug build.
pub(crate) const STACK_BYTES: usize = 8 << 20;
/// Queries give way to the job and to taking samples in.
pub(crate) const NICENESS: i32 = 10;
/// Lanes that are kept for the next questions; those beyond end with theirs.
const IDLE_LANES_MAX: usize = 4;
/// How long the work of a question may take to end once it is over.
const ENDING_MAX: Duration = Duration::from_millis(200);
/// First and longest pause between two looks at whether it has.
const LOOK_FIRST: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(20);
/// How often it is looked at once whether it has: less than a change of threads takes.
const SPINS_MAX: u32 = 100;
/// How long a question may work before it gives way to short ones.
pub(crate) const SHORT_MAX: Duration = Duration::from_secs(1);
/// Of the threads of a question that has worked for longer: a third of the share of a short one.
const LONG_NICENESS: i32 = 15;
/// The priority of threads whose query is over.
const LOWEST_PRIORITY: i32 = 19;

/// How all threads of lanes are named.
pub const LANE_THREAD: &str = "telem-query-sql";
/// Nanoseconds of processor time that threads of lanes took which have ended.
static ENDED_NANOSECONDS: AtomicU64 = AtomicU64::new(0);

/// Processor time that threads of SQL took which have ended: most do so as soon as their question is over, where it took
/// long.
pub fn ended_lane_threads() -> Duration {
    Duration::from_nanos(ENDED_NANOSECONDS.load(Ordering::Relaxed))
}

/// The lanes of one process.
#[derive(Debug)]
pub(crate) struct Lanes {
    threads: usize,
    left_behind_max: usize,
    pool: Arc<dyn MemoryPool>,
    idle: Mutex<Vec<Lane>>,
    /// Those whose threads have not all ended.
    retired: Mutex<Vec<Arc<LaneThreads>>>,
}

/// Threads for one question.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Taken when this is dropped.
    runtime: Option<Runtime>,
    bounds: QuestionBounds,
    threads: Arc<LaneThreads>,
}

/// The threads of a lane that live, by their numbers.
#[derive(Debug)]
struct LaneThreads {
    living: Mutex<Vec<i32>>,
    /// Of those that live and of those that begin. It only rises.
    niceness: AtomicI32,
}

impl Default for LaneThreads {
    fn default() -> Self {
        Self { living: Mutex::default(), niceness: AtomicI32::new(NICENESS) }
    }
}

impl LaneThreads {
    fn living(&self) -> MutexGuard<'_, Vec<i32>> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) {
        // Known before its priority is set, so that whoever lowers the others meanwhile lowers this one too.
        self.living().extend(this_thread());
        // Of this thread only: that is what "this process" means to Linux here. Where it is refused queries are
        // merely less polite.
        let _ = rustix::process::setpriority_process(None, self.niceness());
    }

    fn end(&self) {
        // Documentation/scheduler/sched-stats.rst of Linux: time on a processor, in nanoseconds, comes first.
        let spent = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let spent = spent.split_ascii_whitespace().next().and_then(|nanoseconds| nanoseconds.parse().ok());
        ENDED_NANOSECONDS.fetch_add(spent.unwrap_or(0), Ordering::Relaxed);
        let ended = this_thread();
        self.living().retain(|thread| Some(*thread) != ended);
    }

    fn niceness(&self) -> i32 {
        self.niceness.load(Ordering::SeqCst)
    }

    fn lower(&self, niceness: i32) {
        self.niceness.fetch_max(niceness, Ordering::SeqCst);
        for thread in self.living().iter() {
            // A thread that ended meanwhile is no longer ours, and there is nothing to lower.
            let _ = rustix::process::setpriority_process(rustix::process::Pid::from_raw(*thread), self.niceness());
        }
    }
}

/// The number of this thread: the last word of `PID/task/THREAD`.
fn this_thread() -> Option<i32> {
    std::fs::read_link("/proc/thread-self").ok()?.file_name()?.to_str()?.parse().ok()
}

impl Lane {
    fn new(threads: usize, pool: &Arc<dyn MemoryPool>) -> Result<Self> {
        let (bounds, living) = (QuestionBounds::new(pool), Arc::new(LaneThreads::default()));
        let (begun, ended, ruled) = (Arc::clone(&living), Arc::clone(&living), bounds.clone());
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .thread_name(LANE_THREAD)
            .thread_stack_size(STACK_BYTES)
            .on_thread_start(move || {
                ruled.rule_this_thread();
                begun.begin();
            })
            .on_thread_stop(move || ended.end())
            .enable_time()
            .enable_io()
            .build()
            .map_err(|source| Error::Threads { source })?;
        Ok(Self { runtime: Some(runtime), bounds, threads: living })
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.runtime.as_ref().expect("the runtime is taken only when the lane is dropped").handle()
    }

    /// Lets short questions go first from here on.
    pub(crate) fn give_way(&self) {
        self.threads.lower(LONG_NICENESS);
    }

    fn is_done(&self) -> bool {
        self.handle().metrics().num_alive_tasks() == 0
    }

    /// Whether nothing runs in it any more, in a moment at the latest: what has told its result is about to end.
    fn is_done_soon(&self) -> bool {
        (0..SPINS_MAX).any(|_| {
            std::hint::spin_loop();
            self.is_done()
        })
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.bounds.stop();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Lanes {
    pub(crate) fn new(options: &QueryOptions, pool: Arc<dyn MemoryPool>) -> Self {
        let (threads, left_behind_max) = (options.threads.max(1), options.left_behind_max.max(1));
        Self { threads, left_behind_max, pool, idle: Mutex::default(), retired: Mutex::default() }
    }

    /// A lane for one question.
    ///
    /// # Errors
    /// Threads, where no more can be started.
    pub(crate) fn take(&self) -> Result<Lane> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let lane = match idle {
            Some(lane) => lane,
            None => Lane::new(self.threads, &self.pool)?,
        };
        lane.bounds.begin();
        Ok(lane)
    }

    /// A lane for what heads send.
    ///
    /// # Errors
    /// As [`Lanes::take`].
    pub(crate) fn take_for_heads(&self) -> Result<Lane> {
        let lane = Lane::new(self.threads, &self.pool)?;
        lane.bounds.begin_for_heads();
        Ok(lane)
    }

    /// Takes back the lane of a question that is over, once nothing of it runs there any more; retires it where that
    /// takes too long.
    pub(crate) async fn give_back(&self, lane: Lane) {
        lane.bounds.stop();
        let (mut waited, mut pause) = (Duration::ZERO, LOOK_FIRST);
        tokio::task::yield_now().await;
        while !lane.is_done() {
            if waited >= ENDING_MAX {
                return self.retire(lane);
            }
            tokio::time::sleep(pause).await;
            waited += pause;
            pause = (pause * 2).min(LOOK_MAX);
        }
        self.keep(lane);
    }

    /// As [`Lanes::give_back`] for whoever cannot wait: the lane comes back where something of its question runs.
    pub(crate) fn give_back_now(&self, lane: Lane) -> Option<Lane> {
        lane.bounds.stop();
        if !lane.is_done_soon() {
            return Some(lane);
        }
        self.keep(lane);
        None
    }

    /// Keeps a lane in which nothing runs for the next question.
    fn keep(&self, lane: Lane) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_LANES_MAX && lane.threads.niceness() == NICENESS {
            idle.push(lane);
        }
    }

    /// Code that still computes in it goes on without a caller; everything else is dropped.
    pub(crate) fn retire(&self, lane: Lane) {
        lane.bounds.stop();
        lane.threads.lower(LOWEST_PRIORITY);
        self.retired().push(Arc::clone(&lane.threads));
    }

    /// How many questions outlived their time: threads still work for them.
    pub(crate) fn left_behind(&self) -> usize {
        let mut retired = self.retired();
        retired.retain(|threads| !threads.living().is_empty());
        retired.len()
    }

    /// Whether so many did that their threads may not be replaced any more.
    pub(crate) fn are_exhausted(&self) -> bool {
        self.left_behind() >= self.left_behind_max
    }

    fn retired(&self) -> MutexGuard<'_, Vec<Arc<LaneThreads>>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
