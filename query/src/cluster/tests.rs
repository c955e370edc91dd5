//! Several nodes in one process, and their failures.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use expect_test::expect;
use futures::FutureExt;
use futures::future::BoxFuture;
use telem_engine::{Clock, Db, DeviceKind, Durability, InventoryEntry, SystemClock};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use url::Url;

use super::{Dial, Inside, Knowing, Members, NodeConnection, NodeState, Wire};
use crate::answer::MissingNode;
use crate::error::Error;
use crate::options::QueryOptions;
use crate::question::Aggregator;
use crate::question::expression::{Case, Expression};
use crate::question::tsq::{Downsample, Fidelity, Fill, Interval, Matcher, TagFilter, TsQuery};
use crate::run::Queries;
use crate::testing::{load_into, open, options, rows};

/// How long nodes may be silent: on a busy machine no healthy one is so for longer.
const SILENCE: Duration = Duration::from_secs(30);
/// The same where one of them says nothing.
const SHORT_SILENCE: Duration = Duration::from_secs(5);

/// What lets nodes in at each other.
const TOKEN: &str = "secret";

/// What happens to connections to a node from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Refused,
    /// Connections come about, and nothing is ever heard.
    Silent,
    /// No connection ever comes about, and none is refused.
    Swallowed,
    /// They break when so many bytes were heard.
    CutAfter(usize),
    /// Nothing more is heard after so many bytes.
    StallsAfter(usize),
}

#[derive(Clone, Debug)]
struct Faulty {
    inside: Inside,
    faults: Arc<Mutex<BTreeMap<Url, Fault>>>,
    /// The other ends of connections over which nothing is heard.
    silent: Arc<Mutex<Vec<(Url, tokio::io::DuplexStream)>>>,
}

impl Faulty {
    fn new() -> Self {
        Self { inside: Inside::new(TOKEN), faults: Arc::default(), silent: Arc::default() }
    }
}

impl Dial for Faulty {
    fn dial(&self, url: &Url) -> BoxFuture<'static, io::Result<Box<dyn NodeConnection>>> {
        let fault = self.faults.lock().unwrap().get(url).copied();
        let inside = self.inside.dial(url);
        let (silent, faults, url) = (Arc::clone(&self.silent), Arc::clone(&self.faults), url.clone());
        async move {
            match fault {
                Some(Fault::Refused) => Err(io::ErrorKind::ConnectionRefused.into()),
                Some(Fault::Swallowed) => futures::future::pending().await,
                Some(Fault::Silent) => {
                    let (ours, theirs) = tokio::io::duplex(1 << 20);
                    let mut silent = silent.lock().unwrap();
                    // Unless the node was healed meanwhile.
                    if faults.lock().unwrap().contains_key(&url) {
                        silent.push((url, theirs));
                    }
                    Ok(Box::new(ours) as Box<dyn NodeConnection>)
                }
                Some(Fault::CutAfter(bytes)) => {
                    Ok(Box::new(Cut { inner: inside.await?, left: bytes, then: Then::Breaks })
                        as Box<dyn NodeConnection>)
                }
                Some(Fault::StallsAfter(bytes)) => {
                    Ok(Box::new(Cut { inner: inside.await?, left: bytes, then: Then::Stalls })
                        as Box<dyn NodeConnection>)
                }
                None => inside.await,
            }
        }
        .boxed()
    }
}

/// A connection over which nothing comes once so many bytes were read.
struct Cut {
    inner: Box<dyn NodeConnection>,
    left: usize,
    then: Then,
}

#[derive(Clone, Copy)]
enum Then {
    Breaks,
    Stalls,
}

impl AsyncRead for Cut {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match (self.left, self.then) {
            (0, Then::Breaks) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            (0, Then::Stalls) => return Poll::Pending,
            _ => {}
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        self.left = self.left.saturating_sub(buf.filled().len() - before);
        read
    }
}

impl AsyncWrite for Cut {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Nodes n1 (the head), n2, ..., each with the lines of its own.
struct Cluster {
    head: Queries,
    dial: Faulty,
    others: Vec<Queries>,
    dirs: Vec<TempDir>,
}

/// The nodes reach each other through what they themselves are put into: taken out again, they end.
impl Drop for Cluster {
    fn drop(&mut self) {
        for node in 2..self.others.len() + 2 {
            self.dial.inside.take(&url(node));
            self.dial.inside.take(&moved(node));
        }
    }
}

impl Cluster {
    fn new(lines: &[&str]) -> Self {
        Self::with(lines, options())
    }

    fn with(lines: &[&str], options: QueryOptions) -> Self {
        Self::waiting(lines, options, SILENCE)
    }

    fn waiting(lines: &[&str], options: QueryOptions, silence_max: Duration) -> Self {
        let dirs = lines.iter().map(|_| tempfile::tempdir().unwrap()).collect();
        let cluster = Self::on(dirs, options, silence_max);
        cluster.databases().zip(lines).for_each(|(db, lines)| load_into(db, lines));
        cluster.tell();
        cluster
    }

    /// On the databases that stand in these directories.
    fn on(dirs: Vec<TempDir>, options: QueryOptions, silence_max: Duration) -> Self {
        let dial = Faulty::new();
        let node = |at: usize| {
            let db: Db = open(&dirs[at].path().join("db"), &format!("n{}", at + 1));
            let wire = Wire { silence_max, ..Wire::new(TOKEN.to_owned(), Arc::new(dial.clone())) };
            Queries::over(db, Members::new(Arc::new(SystemClock::new())), wire, options.clone()).unwrap()
        };
        let (head, others) = (node(0), (1..dirs.len()).map(node).collect::<Vec<_>>());
        let cluster = Cluster { head, dial, others, dirs };
        for (at, other) in cluster.others.iter().enumerate() {
            cluster.dial.inside.put(url(at + 2), other.worker().unwrap());
            cluster.members().join(&format!("n{}", at + 2), url(at + 2));
        }
        cluster.tell();
        cluster
    }

    fn databases(&self) -> impl Iterator<Item = &Db> {
        std::iter::once(self.head.db()).chain(self.others.iter().map(Queries::db))
    }

    fn members(&self) -> &Members {
        self.head.members().unwrap()
    }

    /// The head learns the names of all series.
    fn tell(&self) {
        for (at, other) in self.others.iter().enumerate() {
            let delta = Knowing::new(other.db().clone()).delta();
            self.members().learn(&format!("n{}", at + 2), &delta).unwrap();
        }
    }

    /// The node moves to an address that is faulty from the beginning: the head may have a connection to the one before,
    /// made by a probe.
    fn fault(&self, node: usize, fault: Fault) {
        self.dial.faults.lock().unwrap().insert(moved(node), fault);
        self.dial.inside.put(moved(node), self.others[node - 2].worker().unwrap());
        self.members().join(&format!("n{node}"), moved(node));
        self.tell();
    }

    /// Connections over which nothing was heard break, and new ones come about.
    fn heal(&self, node: usize) {
        self.dial.faults.lock().unwrap().remove(&moved(node));
        self.dial.silent.lock().unwrap().retain(|(of, _)| *of != moved(node));
    }

    /// The sum of `m` at every minute, as `seconds:value`, and who is missing.
    async fn sum(&self) -> (String, Vec<MissingNode>) {
        let answer = self.head.timeseries(query(Aggregator::Sum)).await.unwrap();
        let points = answer.groups.iter().flat_map(|group| &group.points);
        let text: Vec<String> =
            points.map(|(time, value)| format!("{}:{}", time.seconds() - EPOCH, value.as_f64())).collect();
        (text.join(" "), answer.missing)
    }

    async fn sql(&self, text: &str) -> Result<(String, Vec<MissingNode>), Error> {
        let answer = self.head.sql(text).await?;
        let missing = answer.missing;
        Ok((rows(answer.batches).await?, missing))
    }
}

mod functions;
mod hostile;
mod same;

const EPOCH: i64 = crate::testing::EPOCH_SECONDS;

fn url(node: usize) -> Url {
    Url::parse(&format!("http://n{node}.test:1/")).unwrap()
}

/// Where a node is once it has a fault.
fn moved(node: usize) -> Url {
    Url::parse(&format!("http://moved{node}.test:1/")).unwrap()
}

fn query(aggregator: Aggregator) -> TsQuery {
    let minute = telem_engine::Step::from_micros(60_000_000).unwrap();
    TsQuery {
        metric: "m".to_owned(),
        filters: Vec::new(),
        explicit_tags: false,
        series: None,
        aggregator,
        downsample: Some(Downsample { interval: Interval::Fixed(minute), function: Aggregator::Sum, fill: Fill::None }),
        rate: None,
        start: telem_engine::Timestamp::from_seconds(EPOCH),
        end: telem_engine::Timestamp::from_seconds(EPOCH + 119),
        fidelity: Fidelity::Sensible,
    }
}

/// A node each, the values of which tell them apart in a sum.
const POWERS: [&str; 7] = [
    "m{host=a} 0:1 60:1",
    "m{host=b} 0:10 60:10",
    "m{host=c} 0:100 60:100",
    "m{host=d} 0:1000 60:1000",
    "m{host=e} 0:10000 60:10000",
    "m{host=f} 0:100000 60:100000",
    "m{host=g} 0:1000000 60:1000000",
];

fn missing(nodes: &[(&str, &str)]) -> Vec<MissingNode> {
    let missing =
        |(node, reason): &(&str, &str)| MissingNode { node: (*node).to_owned(), reason: (*reason).to_owned() };
    nodes.iter().map(missing).collect()
}

const REFUSED: &str = "nothing listens there (connection refused)";

#[tokio::test]
async fn an_answer_is_made_of_the_parts_of_all_nodes() {
    for flat_max in [16, 2] {
        let cluster = Cluster::with(&POWERS, QueryOptions { flat_max, ..options() });
        assert_eq!(cluster.sum().await, ("0:1111111 60:1111111".to_owned(), vec![]));
        let (text, missing) = cluster.sql("SELECT sum(value), count(*), min(node), max(node) FROM m").await.unwrap();
        assert_eq!((text.as_str(), missing), ("2222222.0 14 n1 n7", vec![]));
    }
}

#[tokio::test]
async fn devices_and_energy_are_those_of_all_nodes() {
    for flat_max in [16, 2] {
        let lines = ["0:0 10:1000", "0:0 10:200", "0:0 10:30", "0:0 10:4"].map(|samples| {
            let series = "node_energy_joules_total{source=pm_counters}";
            format!("{series} {samples}")
        });
        let lines: Vec<&str> = lines.iter().map(|line| &**line).collect();
        let cluster = Cluster::with(&lines, QueryOptions { flat_max, ..options() });
        for db in cluster.databases() {
            let gpu = InventoryEntry::new(DeviceKind::Gpu, "0");
            db.put_meta(gpu.change(db.snapshot().node()), Durability::Buffered).unwrap();
        }
        let (text, missing) = cluster.sql("SELECT node, joules, seconds FROM job_energy ORDER BY node").await.unwrap();
        assert_eq!((&*text, missing), ("n1 1000.0 10.0\nn2 200.0 10.0\nn3 30.0 10.0\nn4 4.0 10.0", vec![]));
        let (text, _) = cluster.sql("SELECT sum(joules) FROM job_energy WHERE node <> 'n2'").await.unwrap();
        assert_eq!(text, "1034.0");
        let (text, _) = cluster.sql("SELECT node, kind, device FROM inventory ORDER BY node").await.unwrap();
        assert_eq!(text, "n1 gpu 0\nn2 gpu 0\nn3 gpu 0\nn4 gpu 0");
    }
}

#[tokio::test]
async fn a_dead_node_is_missing_and_the_others_are_counted_wholly() {
    for flat_max in [16, 2] {
        let cluster = Cluster::with(&POWERS, QueryOptions { flat_max, ..options() });
        // One that heads a group of the tree, and one that does not.
        cluster.fault(4, Fault::Refused);
        cluster.fault(6, Fault::Refused);
        let lost = missing(&[("n4", REFUSED), ("n6", REFUSED)]);
        assert_eq!(cluster.sum().await, ("0:1010111 60:1010111".to_owned(), lost.clone()));
        let answer = cluster.sql("SELECT sum(value) FROM m").await.unwrap();
        assert_eq!(answer, ("2020222.0".to_owned(), lost.clone()));
        let answer = cluster.sql("SELECT count(*) FROM (SELECT value FROM m WHERE value > 1 LIMIT 100)").await.unwrap();
        assert_eq!(answer, ("8".to_owned(), lost));
    }
}

#[tokio::test]
async fn a_node_that_says_nothing_or_is_behind_an_address_that_swallows_everything_is_given_up() {
    for fault in [Fault::Silent, Fault::Swallowed] {
        let cluster = Cluster::waiting(&POWERS, QueryOptions { flat_max: 2, ..options() }, SHORT_SILENCE);
        cluster.fault(5, fault);
        let (text, missing) = cluster.sum().await;
        assert_eq!(text, "0:1101111 60:1101111", "{fault:?}");
        assert_eq!(missing.len(), 1, "{fault:?}: {missing:?}");
        assert_eq!(missing[0].node, "n5");
        assert!(matches!(cluster.members().list()[3].state, NodeState::Down { .. }), "{fault:?}");
    }
}

#[tokio::test]
async fn a_node_known_to_be_down_is_not_asked_again_until_it_answers() {
    let cluster = Cluster::with(&POWERS[..2], options());
    cluster.fault(2, Fault::Silent);
    cluster.members().mark_down("n2", "it was silent");
    let clock = SystemClock::new();
    let begun = clock.monotonic();
    for _ in 0..3 {
        assert_eq!(cluster.sum().await, ("0:1 60:1".to_owned(), missing(&[("n2", "it was silent")])));
    }
    // Whoever had asked would have waited for that long. One probe may wait, and the next begins after it.
    let took = clock.monotonic().saturating_sub(begun);
    assert!(took < SILENCE, "{took:?}");
    cluster.heal(2);
    while cluster.members().list()[0].state != NodeState::Up {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(cluster.sum().await, ("0:11 60:11".to_owned(), vec![]));
}

#[tokio::test]
async fn strict_questions_fail_where_a_node_is_missing() {
    let cluster = Cluster::with(&POWERS[..3], QueryOptions { strict: true, ..options() });
    cluster.fault(3, Fault::Refused);
    let error = cluster.head.timeseries(query(Aggregator::Sum)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("n3 ({REFUSED}) would be missing from the answer; without --strict it covers the others")
    );
    assert!(matches!(cluster.sql("SELECT value FROM m").await, Err(Error::Incomplete { .. })));
}

#[tokio::test]
async fn rows_that_were_handed_out_are_followed_by_an_error_where_their_node_is_lost() {
    let many: String = (0..60_000).map(|at| format!(" {at}:{at}.5")).collect();
    let line = format!("m{{host=b}}{many}");
    let cluster = Cluster::new(&["m{host=a} 0:1", &line]);
    let whole = cluster.sql("SELECT value FROM m").await.unwrap();
    assert_eq!(whole.0.lines().count(), 60_001);
    cluster.members().join("n2", Url::parse("http://cut.test:1/").unwrap());
    cluster.tell();
    cluster.dial.inside.put(Url::parse("http://cut.test:1/").unwrap(), cluster.others[0].worker().unwrap());
    cluster.dial.faults.lock().unwrap().insert(Url::parse("http://cut.test:1/").unwrap(), Fault::CutAfter(200_000));
    match cluster.sql("SELECT value FROM m").await {
        // Before any of its rows was handed out: then it is missing.
        Ok((text, missing)) => assert_eq!((text.as_str(), missing.len()), ("1.0", 1)),
        Err(error) => {
            assert_eq!(error.kind(), telem_engine::ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains("the node n2 was lost: its connection broke"), "{error}");
        }
    }
    // What is added up is whole or missing, never cut.
    cluster.members().mark_up("n2");
    let (text, missing) = cluster.sql("SELECT count(*) FROM m").await.unwrap();
    assert!((text == "60001" && missing.is_empty()) || (text == "1" && missing.len() == 1), "{text} {missing:?}");
}

#[tokio::test]
async fn leaves_on_all_nodes_end_when_nobody_reads_the_answer_any_more() {
    let many: String = (0..60_000).map(|at| format!(" {at}:{}.5", at * 7_919 % 10_007)).collect();
    let lines = ["b", "c"].map(|host| format!("m{{host={host}}}{many}"));
    let cluster = Cluster::new(&["m{host=a} 0:1", &lines[0], &lines[1]]);
    // What they send further is not taken, so that their leaves cannot end by themselves.
    for node in [2, 3] {
        cluster.fault(node, Fault::StallsAfter(20_000));
    }
    let leaves = || cluster.others.iter().map(|other| other.stats().leaves).collect::<Vec<_>>();
    let clock = SystemClock::new();
    let answer = tokio::spawn({
        let head = cluster.head.clone();
        async move { head.sql("SELECT node, host, ts, value FROM m").await }
    });
    while leaves() != [1, 1] {
        assert!(clock.monotonic() < SILENCE, "{:?}", leaves());
        tokio::task::yield_now().await;
    }
    answer.abort();
    drop(answer.await);
    let begun = clock.monotonic();
    while leaves() != [0, 0] || cluster.head.stats().running > 0 {
        // Before anything else would have ended them.
        assert!(clock.monotonic() - begun < SILENCE / 2, "{:?}", leaves());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn questions_take_turns_where_they_would_run_too_many_tasks() {
    let cluster = Cluster::with(&POWERS, QueryOptions { flat_max: 2, tasks_max: 1, ..options() });
    let asked = futures::future::join_all((0..6).map(|_| cluster.sum()));
    let told = futures::future::join_all((0..6).map(|_| cluster.sql("SELECT sum(value) FROM m")));
    let rows = futures::future::join_all((0..6).map(|_| cluster.sql("SELECT value FROM m WHERE value = 1")));
    let (asked, told, rows) = futures::join!(asked, told, rows);
    assert!(asked.iter().all(|answer| *answer == ("0:1111111 60:1111111".to_owned(), vec![])), "{asked:?}");
    for (text, answers) in [("2222222.0", told), ("1.0\n1.0", rows)] {
        for answer in answers {
            assert_eq!(answer.unwrap(), (text.to_owned(), vec![]));
        }
    }
}

#[tokio::test]
async fn rows_that_nobody_reads_on_take_no_turn_from_others() {
    let many: String = (0..60_000).map(|at| format!(" {at}:{at}.5")).collect();
    let cluster =
        Cluster::with(&["m{host=a} 0:1", &format!("m{{host=b}}{many}")], QueryOptions { tasks_max: 1, ..options() });
    let slow = cluster.head.sql("SELECT value FROM m").await.unwrap();
    assert_eq!(cluster.sql("SELECT count(*) FROM m").await.unwrap(), ("60001".to_owned(), vec![]));
    assert_eq!(rows(slow.batches).await.unwrap().lines().count(), 60_001);
}

#[tokio::test]
async fn one_series_on_two_nodes_is_one_series() {
    let cluster = Cluster::new(&["m{host=a} 0:1 30:2", "m{host=a} 10:4 60:8", "m{host=b} 0:100"]);
    // As one series: the minute's samples are added up before anything is interpolated.
    assert_eq!(cluster.sum().await.0, "0:107 60:8");
    let answer = cluster.head.timeseries(query(Aggregator::Count)).await.unwrap();
    assert_eq!(answer.groups[0].series.len(), 2);
    let counts: Vec<String> = answer.groups[0].points.iter().map(|(_, value)| value.to_string()).collect();
    assert_eq!(counts, ["2.0", "1.0"]);
}

#[tokio::test]
async fn nodes_that_have_nothing_to_say_are_not_asked() {
    let cluster = Cluster::new(&["other{host=a} 0:1", "m{host=b} 0:10", "m{host=c} 0:100"]);
    let mut only_b = query(Aggregator::Sum);
    let matcher = Matcher::Regexp(Expression::new("^b$", Case::Matters).unwrap());
    only_b.filters.push(TagFilter { key: "host".to_owned(), matcher, group_by: true });
    cluster.fault(3, Fault::Refused);
    let answer = cluster.head.timeseries(only_b).await.unwrap();
    assert_eq!((answer.groups.len(), answer.missing), (1, vec![]));
    let answer = cluster.sql("SELECT value FROM m WHERE host = 'b'").await.unwrap();
    assert_eq!(answer, ("10.0".to_owned(), vec![]));
    let answer = cluster.sql("SELECT count(*) FROM samples WHERE metric = 'm' AND node <> 'n3'").await.unwrap();
    assert_eq!(answer, ("1".to_owned(), vec![]));
}

#[tokio::test]
async fn a_node_that_is_asked_under_another_name_is_missing() {
    let cluster = Cluster::new(&POWERS[..2]);
    cluster.dial.inside.put(url(9), cluster.others[0].worker().unwrap());
    cluster.members().join("n9", url(9));
    let (text, lost) = cluster.sum().await;
    assert_eq!((text.as_str(), lost), ("0:11 60:11", missing(&[("n9", "it calls itself n2, not n9")])));
}

#[tokio::test]
async fn what_a_node_refuses_ends_the_question_and_costs_no_node_its_place() {
    let cluster = Cluster::with(&POWERS[..2], QueryOptions { points_max: 1, ..options() });
    let error = cluster.head.timeseries(query(Aggregator::Median)).await.unwrap_err();
    assert_eq!(error.kind(), telem_engine::ErrorKind::Invalid, "{error}");
    assert!(error.to_string().starts_with("the query produces more than 1 points"), "{error}");
    assert_eq!(cluster.members().list()[0].state, NodeState::Up);
    let error = cluster.sql("SELECT value / 0 / arrow_cast(0, 'Int64') FROM m WHERE 1 / (value_int - 10) > 0").await;
    assert!(error.is_err_and(|error| error.kind() == telem_engine::ErrorKind::Invalid));
    assert_eq!(cluster.members().list()[0].state, NodeState::Up);
}

#[tokio::test]
async fn explain_shows_where_what_runs() {
    let cluster = Cluster::with(&POWERS[..5], QueryOptions { flat_max: 2, ..options() });
    let plan = cluster.head.explain("SELECT host, max(value) FROM m GROUP BY host").await.unwrap();
    expect![[r#"
        ┌───── DistributedExec
        │ CoalescePartitionsExec
        │   ProjectionExec: expr=[host@0 as host, max(m.digest:greatest)@1 as max(m.value)]
        │     RepartitionExec: partitioning=Hash([host@0], 2), input_partitions=1
        │       AggregateExec: mode=Final, gby=[host@0 as host], aggr=[max(m.digest:greatest)]
        │         CoalescePartitionsExec
        │           [Stage 2] => NetworkCoalesceExec: output_partitions=2, input_tasks=2
        └──────────────────────────────────────────────────
          ┌───── Stage 2 ── tasks=2, partitions=2
          │ AggregateExec: mode=PartialReduce, gby=[host@0 as host], aggr=[max(m.digest:greatest)]
          │   CoalescePartitionsExec
          │     [Stage 1] => NetworkCoalesceExec: output_partitions=3, input_tasks=5
          └──────────────────────────────────────────────────
            ┌───── Stage 1 ── tasks=5, partitions=5
            │ CoalescePartitionsExec
            │   AggregateExec: mode=Partial, gby=[host@0 as host], aggr=[max(m.digest:greatest)]
            │     DistributedLeafExec:
            │       t0: NodeLeafExec: Rows: Digest, columns=[tags[host], greatest], metric in ["m"], on n1
            │       t1: NodeLeafExec: Rows: Digest, columns=[tags[host], greatest], metric in ["m"], on n2
            │       t2: NodeLeafExec: Rows: Digest, columns=[tags[host], greatest], metric in ["m"], on n3
            │       t3: NodeLeafExec: Rows: Digest, columns=[tags[host], greatest], metric in ["m"], on n4
            │       t4: NodeLeafExec: Rows: Digest, columns=[tags[host], greatest], metric in ["m"], on n5
            └──────────────────────────────────────────────────
    "#]]
    .assert_eq(&plan);
}

#[tokio::test]
async fn a_job_of_one_node_has_neither_stages_nor_a_tree() {
    let alone = Cluster::with(&POWERS[..1], QueryOptions { flat_max: 1, ..options() });
    let plan = alone.head.explain("SELECT host, max(value) FROM m GROUP BY host").await.unwrap();
    assert!(!plan.contains("Stage") && !plan.contains("Network"), "{plan}");
    assert_eq!(alone.sum().await, ("0:1 60:1".to_owned(), vec![]));
}

#[tokio::test]
async fn a_node_without_series_and_one_that_told_nothing_yet_do_not_matter() {
    let cluster = Cluster::new(&["", "m{host=b} 0:10", ""]);
    assert_eq!(cluster.sum().await, ("0:10".to_owned(), vec![]));
    // Its name is not known, its series are asked for all the same.
    let late = Cluster::new(&["m{host=a} 0:1", "m{host=b} 0:10"]);
    late.members().join("n2", url(2));
    assert_eq!(late.sum().await, ("0:11".to_owned(), vec![]));
}

#[tokio::test]
async fn a_metric_that_no_node_told_of_yet_is_asked_for_before_it_is_unknown() {
    for sql in [false, true] {
        let cluster = Cluster::new(&["other{} 0:1", "other{} 0:1"]);
        load_into(cluster.others[0].db(), "m{host=b} 0:10");
        if sql {
            assert_eq!(cluster.sql("SELECT host, value FROM m").await.unwrap().0, "b 10.0");
        } else {
            assert_eq!(cluster.sum().await, ("0:10".to_owned(), vec![]));
        }
        let unknown = cluster.sql("SELECT value FROM nowhere").await;
        assert!(matches!(unknown, Err(Error::UnknownTable { .. })));
    }
}

#[tokio::test]
async fn a_tag_that_appears_during_the_run_is_a_column_as_soon_as_its_node_has_told_of_it() {
    let cluster = Cluster::new(&["m{host=a} 0:1", "m{host=b} 0:10"]);
    assert!(cluster.sql("SELECT phase FROM m").await.is_err_and(|error| error.to_string().contains("no column phase")));
    load_into(cluster.others[0].db(), "m{host=b,phase=eval} 60:20");
    cluster.tell();
    let (rows, missing) = cluster.sql("SELECT host, phase, value FROM m ORDER BY value").await.unwrap();
    assert_eq!((rows.as_str(), missing), ("a  1.0\nb  10.0\nb eval 20.0", vec![]));
}
