//! One database's series, spread over several nodes that are asked as one: for whoever compares the answers.
//!
//! The nodes live in this process, but are reached through the protocol that real ones speak. The first is the head,
//! which has series of its own; where there are more than two, the last has none.

use std::sync::Arc;

use telem_engine::{Db, SystemClock};
use telem_query::dist::{Inside, Knowing, Members, Wire};
use telem_query::{Queries, QueryOptions};
use tempfile::TempDir;
use url::Url;

use crate::real;
use crate::script::Load;

/// How many nodes are tried: one has no tree, seven have one of two levels.
pub const COUNTS: [usize; 4] = [1, 2, 3, 7];
const TOKEN: &str = "a token of tests, which is long";

pub struct Spread {
    pub queries: Queries,
    databases: Vec<Db>,
    others: Vec<Queries>,
    _dirs: Vec<TempDir>,
}

impl Spread {
    /// Nodes without any series.
    pub fn new(count: usize) -> Self {
        let dirs: Vec<TempDir> = (0..count).map(|_| tempfile::tempdir().unwrap()).collect();
        let open = |(at, dir): (usize, &TempDir)| real::open_node(dir.path(), &name(at));
        let databases: Vec<Db> = dirs.iter().enumerate().map(open).collect();
        let inside = Inside::default();
        let wire = || Wire::new(TOKEN.to_owned(), Arc::new(inside.clone()));
        let queries = |db: &Db| {
            let members = Members::new(Arc::new(SystemClock::new()));
            Queries::over(db.clone(), members, wire(), options()).unwrap()
        };
        let (head, others) = (queries(&databases[0]), databases[1..].iter().map(queries).collect::<Vec<_>>());
        for (at, other) in others.iter().enumerate() {
            let node = name(at + 1);
            let url = Url::parse(&format!("http://{node}.test:1/")).unwrap();
            inside.put(url.clone(), other.worker().unwrap());
            head.members().unwrap().join(&node, url);
        }
        Self { queries: head, databases, others, _dirs: dirs }
    }

    /// Each series goes to one node, the same whenever it is written.
    pub fn load(count: usize, loads: &[Load]) -> Self {
        let spread = Self::new(count);
        for (at, load) in loads.iter().enumerate() {
            let db = spread.node_of(&format!("{}{:?}", load.metric, load.tags));
            real::write(db, load);
            if at % 2 == 0 {
                db.flush().unwrap();
            }
        }
        spread.tell();
        spread
    }

    /// The head learns the names of all series.
    pub fn tell(&self) {
        let members = self.queries.members().unwrap();
        for other in &self.others {
            let mut knowing = Knowing::new(other.db().clone());
            let node = other.db().snapshot().node().to_owned();
            loop {
                let known = members.learn(&node, &knowing.delta()).unwrap();
                knowing.told(known.unwrap());
                if !knowing.has_news() {
                    break;
                }
            }
        }
    }

    fn node_of(&self, series: &str) -> &Db {
        let used = if self.databases.len() > 2 { self.databases.len() - 1 } else { self.databases.len() };
        let hash = series.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
        &self.databases[usize::try_from(hash % used as u64).unwrap()]
    }
}

fn options() -> QueryOptions {
    QueryOptions { threads: 2, flat_max: 3, ..QueryOptions::new(Arc::new(SystemClock::new())) }
}

/// The first is called as the one node of other tests is.
fn name(at: usize) -> String {
    if at == 0 { "local".to_owned() } else { format!("n{}", at + 1) }
}
