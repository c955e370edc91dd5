//! The limits of queries, their counters, and the names and sizes that all of them share.

use std::sync::Arc;
use std::time::Duration;

use telem_engine::Clock;

use crate::answer::MissingNode;

/// Rows of one batch between the nodes of a plan.
pub const BATCH_ROWS: usize = 8_192;
/// The names before a table's, for queries that write them out.
pub const CATALOG: &str = "telem";
pub const SCHEMA: &str = "public";
/// Most threads that execute plans, unless somebody says otherwise.
pub const THREADS_MAX: usize = 8;

/// Limits of queries. [`QueryOptions::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct QueryOptions {
    /// Most queries that run at once; one more waits. 16.
    pub queries_max: usize,
    /// Most queries that wait for one of those to end; one more is Busy at once. 64: the panels
    /// of a dashboard ask together.
    pub queries_waiting_max: usize,
    /// Longest that a query waits for its turn before it is Busy. 5 s.
    pub queue_wait: Duration,
    /// Longest that the queries of one request may take, planning and reading their answers included. 60 s.
    pub deadline: Duration,
    /// Memory that all queries share. 512 MiB.
    pub memory_bytes_max: usize,
    /// Most samples that a query without pushed-down aggregation may bring to the head. 50 million.
    pub points_max: u64,
    /// Most values (groups times times) in the answer of a time-series query. 10 million.
    pub answer_values_max: u64,
    /// Most questions in SQL that go on after their time, because their code does not come to an end; beyond that no
    /// SQL is taken until one of them does. 8.
    pub left_behind_max: usize,
    /// Threads that execute plans: of all time series together, and of each question in SQL. As many as the machine
    /// runs at once, 8 at most.
    pub threads: usize,
    /// Whether a question that not every node answers is an error. No.
    pub strict: bool,
    /// Nodes whose databases are not there to be asked, and why: every answer lacks them. None.
    pub absent: Vec<MissingNode>,
    /// Up to this many nodes send their parts of an answer directly to the head; more are reduced in a tree. 16.
    pub flat_max: usize,
    /// Most tasks that run on nodes at once, of all queries together; a query that would be past that waits for its
    /// turn. 4,096: three queries over a thousand nodes.
    pub tasks_max: usize,
    /// Up to so many rows of our own database are read on the thread of their question in SQL: to hand them over to
    /// others takes longer. 65,536.
    pub one_thread_rows_max: u64,
    pub clock: Arc<dyn Clock>,
}

impl QueryOptions {
    /// The defaults.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            queries_max: 16,
            queries_waiting_max: 64,
            queue_wait: Duration::from_secs(5),
            deadline: Duration::from_secs(60),
            memory_bytes_max: 512 << 20,
            points_max: 50_000_000,
            answer_values_max: 10_000_000,
            left_behind_max: 8,
            threads: cores.min(THREADS_MAX),
            strict: false,
            absent: Vec::new(),
            flat_max: 16,
            tasks_max: 4_096,
            one_thread_rows_max: 64 << 10,
            clock,
        }
    }
}

/// In which order the rows of an answer to SQL come where the question does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowOrder {
    /// In any: all threads work on it at once.
    #[default]
    Any,
    /// As samples are stored: metric by metric, of each its series in canonical order, of each its samples by
    /// time. One thread works on it, and nothing is sorted or held.
    Stored,
}

/// Queries since the start, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryStats {
    /// Those that found a place among the running ones.
    pub admitted: u64,
    /// Those that found none in time.
    pub refused: u64,
    /// Those that run now.
    pub running: u64,
    /// Those in SQL whose time is over, and whose code has not come to its end.
    pub left_behind: u64,
    /// What is read from our own database now: for these, and for those of heads.
    pub leaves: u64,
}
