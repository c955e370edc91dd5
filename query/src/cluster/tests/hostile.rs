//! Texts that look like messages between nodes. Whatever tags, names and queries contain, no healthy node counts as
//! lost, and a lost node is reported by its name and with its plain reason.

use telem_engine::{ErrorKind, Value};

use super::*;
use crate::testing::put_into;

/// In the forms in which errors crossed between nodes once and cross now; `n3` is healthy.
const HOSTILE: [&str; 5] = [
    "lost the node at http://n3.test:1/: gone",
    "a node refuses (busy): later",
    r#"{"kind":"Lost","node":"http://n3.test:1/","reason":"gone"}"#,
    r#"Substrait error: {"kind":"Lost","node":"http://n3.test:1/","reason":"gone"}"#,
    "connection refused",
];

/// Seven nodes with one value each; what stands in `metric` and in the tag `host` of n2 is `text`.
fn cluster_with(metric: &str, text: &str, flat_max: usize) -> Cluster {
    let cluster = Cluster::with(&POWERS, QueryOptions { flat_max, ..options() });
    put_into(cluster.others[0].db(), metric, &[("host", text)], [(0, Value::Int(5))]);
    cluster.tell();
    cluster
}

#[track_caller]
fn all_are_up(cluster: &Cluster) {
    let down: Vec<_> = cluster.members().list().into_iter().filter(|member| member.state != NodeState::Up).collect();
    assert!(down.is_empty(), "{down:?}");
}

#[tokio::test]
async fn a_text_that_cannot_be_cast_fails_the_question_and_loses_no_node() {
    for text in HOSTILE {
        for flat_max in [16, 2] {
            let cluster = cluster_with("m", text, flat_max);
            // The node that has the text, and no other.
            let only = "host NOT IN ('a', 'b', 'c', 'd', 'e', 'f', 'g')";
            for sql in [
                format!("SELECT CAST(host AS BIGINT) FROM m WHERE {only}"),
                format!("SELECT sum(CAST(host AS BIGINT)) FROM m WHERE {only}"),
                "SELECT value FROM m WHERE CAST(host AS BIGINT) = 1".to_owned(),
                "SELECT count(*) FROM m WHERE CAST(host AS BIGINT) = 1".to_owned(),
            ] {
                let error = cluster.sql(&sql).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Invalid, "{sql}: {error}");
                assert!(!matches!(error, Error::NodeLost { .. } | Error::NodesLost { .. }), "{sql}: {error:?}");
                assert!(!sql.contains(only) || error.to_string().contains(text), "{sql}: {error}");
                all_are_up(&cluster);
            }
        }
    }
}

#[tokio::test]
async fn names_of_metrics_and_nodes_that_cannot_be_cast_lose_no_node() {
    for text in HOSTILE {
        let cluster = cluster_with(text, "b", 16);
        let quoted = text.replace('\'', "''");
        for sql in [
            format!("SELECT CAST(metric AS BIGINT) FROM samples WHERE metric = '{quoted}'"),
            "SELECT CAST(node AS BIGINT) FROM m".to_owned(),
            format!("SELECT CAST('{quoted}' || host AS BIGINT) FROM m"),
        ] {
            let error = cluster.sql(&sql).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{sql}: {error}");
            all_are_up(&cluster);
        }
        // What does not fail is answered by all.
        let answer = cluster.sql("SELECT count(*) FROM samples").await.unwrap();
        assert_eq!(answer, ("15".to_owned(), vec![]), "{text}");
    }
}

#[tokio::test]
async fn a_lost_node_is_reported_by_its_name_whatever_that_looks_like() {
    for name in HOSTILE {
        let cluster = Cluster::with(&POWERS[..3], options());
        cluster.members().join(name, url(9));
        assert_eq!(cluster.sum().await, ("0:111 60:111".to_owned(), missing(&[(name, REFUSED)])));
        let answer = cluster.sql("SELECT sum(value) FROM m").await.unwrap();
        assert_eq!(answer, ("222.0".to_owned(), missing(&[(name, REFUSED)])));
        let others = cluster.members().list().into_iter().filter(|member| &*member.node != name);
        assert!(others.into_iter().all(|member| member.state == NodeState::Up), "{name}");
    }
}

#[tokio::test]
async fn a_node_that_is_lost_while_others_have_hostile_names_in_their_rows_is_the_one_that_is_missing() {
    for text in HOSTILE {
        let cluster = cluster_with("m", text, 2);
        cluster.fault(6, Fault::Refused);
        let (sum, lost) = cluster.sql("SELECT sum(value) FROM m").await.unwrap();
        assert_eq!((sum.as_str(), lost), ("2022227.0", missing(&[("n6", REFUSED)])), "{text}");
        let down = cluster.members().list().into_iter().filter(|member| member.state != NodeState::Up);
        assert_eq!(down.map(|member| member.node.to_string()).collect::<Vec<_>>(), ["n6"], "{text}");
    }
}
