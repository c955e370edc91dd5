//! A client that disconnects while its query runs: the work ends on every node, long before it would have been done.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use telem_engine::{Clock, SystemClock};

use super::*;

const AGENTS: [&str; 2] = ["n1", "n2"];
/// Series with two samples each, an hour apart.
const WIDE: usize = 1_000;
/// Samples of one series, a millisecond apart.
const LONG: usize = 300_000;
/// How many samples are sent at a time.
const LINES: usize = 5_000;
/// Longest that the work may go on: half of the time after which a question that nobody gave up is given up. A node
/// looks after every batch of samples whether anybody waits, and in these tests a batch takes seconds.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

#[test]
fn when_a_client_hangs_up_no_node_works_on_its_question_any_more() {
    let job = Job::new();
    let head = job.head(&[]);
    let agents = AGENTS.map(|node| job.agent(node, node));
    wait_for_states(&head, "head head up, n1 up, n2 up");
    for (agent, node) in agents.iter().zip(AGENTS) {
        load(agent, node);
    }
    let wide = "SELECT count(DISTINCT host) AS n FROM wide";
    poll("the head to know of all", || head.sql(wide).json() == json!([{"n": 2}]));
    // A value for each of 72,000 times and 990 series of each node.
    let series = "GET /api/query?start=1767225600&end=1767229200&m=sum:50ms-sum-zero:wide%7B%7D%7Bs=regexp(..?.?)%7D";
    // A function of each sample, of which the nodes make sums.
    let sql = "SELECT sum(levenshtein(note, reverse(note))) FROM long";
    for (what, request, body) in [("time series", series, ""), ("SQL", "POST /api/sql", sql)] {
        let mut client = TcpStream::connect(&head.address).unwrap();
        let length = body.len();
        write!(client, "{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        poll(&format!("all nodes to work on {what}"), || agents.iter().all(|agent| leaves(agent) > 0));
        drop(client);
        let clock = SystemClock::new();
        poll(&format!("no node to work on {what}"), || agents.iter().all(|agent| leaves(agent) == 0));
        let took = clock.monotonic();
        println!("{what}: the work ended {took:?} after the client had gone");
        assert!(took < ENDS_WITHIN, "{what}: nodes worked on for {took:?}");
        poll("the head to say so", || nodes(&head).iter().all(|node| node["leaves"] == 0));
    }
}

fn load(agent: &Server, node: &str) {
    let mut connection = agent.connect();
    let mut write = |lines: Vec<String>| {
        for lines in lines.chunks(LINES) {
            connection.request("POST", "/write?precision=ms", &[], lines.join("\n").as_bytes()).unwrap().expect(204);
        }
    };
    let ends = [1_767_225_600_000_i64, 1_767_229_200_000];
    write((0..WIDE).flat_map(|s| ends.map(|time| format!("wide,host={node},s={s} value={s} {time}"))).collect());
    write(
        (0..LONG)
            .map(|n| format!("long,host={node},note=abcdefghijklmnopqrst value={n} {}", ends[0] + n as i64))
            .collect(),
    );
}

/// What a node says that it reads for questions now.
fn leaves(node: &Server) -> u64 {
    let told = node.get("/api/stats").expect(200).json();
    let leaves = told.as_array().unwrap().iter().find(|number| number["metric"] == "telem_query_leaves_running");
    leaves.unwrap()["value"].as_str().unwrap().parse().unwrap()
}
