//! The series of one database, spread over several nodes that are queried as one, for tests that compare the answers.
//!
//! The nodes are in this process, but are reached through the protocol of real nodes. The first is the head, which has
//! series of its own; if there are more than two, the last has none.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use http_body_util::BodyExt;
use serde_json::Value as Json;
use telem_engine::{Db, SystemClock};
use telem_ingest::writer::{Writer, WriterOptions};
use telem_query::cluster::{Inside, Knowing, Members, Wire};
use telem_query::tsq::Fidelity;
use telem_query::{Queries, QueryOptions};
use telem_server::cors::Cors;
use telem_server::service::router::{self, ProtocolOptions};
use telem_server::state::{ServerLimits, State, VERSION};
use tempfile::TempDir;
use tower::ServiceExt;
use url::Url;

use crate::process::Response;
use crate::script::Load;
use crate::{real, runtime};

/// How many nodes are tried: one has no tree, two send straight to the head, more have a tree of two levels.
pub const COUNTS: [usize; 4] = [1, 2, 4, 7];
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
        let inside = Inside::new(TOKEN);
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
                knowing.mark_reported(known.unwrap());
                if !knowing.has_news() {
                    break;
                }
            }
        }
    }

    /// Sends samples, each to the node of its series, as OpenTSDB's clients send them.
    pub fn put(&self, samples: &[Json]) {
        let mut of_nodes: BTreeMap<usize, Vec<&Json>> = BTreeMap::new();
        for sample in samples {
            let series = format!("{}{}", sample["metric"], sample["tags"]);
            of_nodes.entry(self.place_of(&series)).or_default().push(sample);
        }
        for (node, samples) in of_nodes {
            let queries = if node == 0 { &self.queries } else { &self.others[node - 1] };
            let router = router(queries);
            for batch in samples.chunks(400) {
                let body = serde_json::to_vec(batch).unwrap();
                send(&router, "POST", "/api/put?sync&details", &[], body).expect(200);
            }
        }
        self.tell();
    }

    /// The head's whole HTTP API, which answers to the letter as OpenTSDB.
    pub fn router(&self) -> Router {
        router(&self.queries)
    }

    fn node_of(&self, series: &str) -> &Db {
        &self.databases[self.place_of(series)]
    }

    fn place_of(&self, series: &str) -> usize {
        let used = if self.databases.len() > 2 { self.databases.len() - 1 } else { self.databases.len() };
        let hash = series.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
        usize::try_from(hash % used as u64).unwrap()
    }
}

fn router(queries: &Queries) -> Router {
    let db = queries.db().clone();
    let state = State {
        job: "j".into(),
        node: "n1".into(),
        writer: Some(Writer::start(db.clone(), WriterOptions::default()).unwrap()),
        db,
        queries: queries.clone(),
        level: 1,
        fidelity: Fidelity::OpenTsdb,
        clock: Arc::new(SystemClock::new()),
        limits: ServerLimits::default(),
        cors: Cors::default(),
        refusal: telem_server::state::Refusal::Saved,
        slots: None,
        version: VERSION,
    };
    router::services(&Arc::new(state), &ProtocolOptions::default(), Router::new()).http
}

/// One request to a router, and its answer.
pub fn send(router: &Router, method: &str, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Response {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body)).unwrap();
    runtime().block_on(async {
        let (head, body) = router.clone().oneshot(request).await.unwrap().into_parts();
        let headers = head.headers.iter();
        Response {
            status: head.status.as_u16(),
            headers: headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect(),
            body: body.collect().await.unwrap().to_bytes().to_vec(),
        }
    })
}

fn options() -> QueryOptions {
    QueryOptions { threads: 2, flat_max: 3, ..QueryOptions::new(Arc::new(SystemClock::new())) }
}

/// The first is called as the one node of other tests is.
fn name(at: usize) -> String {
    if at == 0 { "local".to_owned() } else { format!("n{}", at + 1) }
}
