use super::*;

fn url(node: &str) -> Url {
    Url::parse(&format!("http://{node}.test:1/")).unwrap()
}

fn attempt() -> Attempt {
    Attempt::new(Delivery::Held, Instant::now())
}

fn lost_in(attempt: &Attempt) -> Vec<(String, String)> {
    attempt.lost().into_iter().collect()
}

#[test]
fn the_time_of_nodes_begins_when_they_are_asked_and_anew_with_each_plan() {
    let attempt = Attempt::new(Delivery::Held, Instant::now() + Duration::from_secs(100));
    let first = (attempt.due(), attempt.due_after());
    assert!(first.1 > Duration::from_secs(55) && first.1 <= Duration::from_secs(60), "{first:?}");
    assert_eq!((attempt.due(), attempt.due_after()), first, "it runs");
    while Instant::now() < first.0 - first.1 + Duration::from_millis(1) {
        std::thread::yield_now();
    }
    attempt.begin();
    assert!(attempt.due() > first.0 && attempt.due_after() < first.1);
}

#[tokio::test]
async fn an_error_that_names_a_node_is_about_that_node_whoever_passes_it_on() {
    let attempt = attempt();
    let inner = lost(&url("leaf"), "its connection broke");
    let passed_on = lost_by(&url("inner"), inner.context("a stage failed"));
    attempt.lose_by(&url("inner"), &passed_on);
    assert_eq!(lost_in(&attempt), [(url("leaf").to_string(), "its connection broke".to_owned())]);
}

#[tokio::test]
async fn any_other_error_is_about_the_node_that_was_asked_and_the_first_reason_counts() {
    let attempt = attempt();
    attempt.lose_by(&url("a"), &DataFusionError::Execution("h2 protocol error: broken pipe".to_owned()));
    attempt.lose(&url("a"), "later");
    assert_eq!(lost_in(&attempt), [(url("a").to_string(), "its connection broke".to_owned())]);
}

#[tokio::test]
async fn what_a_node_refuses_is_no_reason_to_lose_it() {
    let ours = crate::Error::TooLarge { what: "points", max: 3 };
    let refused = Crossing::told_by("a", DataFusionError::External(Box::new(ours))).into();
    let passed_on = lost_by(&url("a"), refused);
    let error = crate::Error::from(passed_on);
    assert_eq!(error.kind(), telem_engine::ErrorKind::Invalid);
    assert!(error.to_string().starts_with("the query produces more than 3 points"), "{error}");
}

#[test]
fn who_asked_is_told_the_name_of_the_node_and_that_asking_again_helps() {
    let members = Members::new(std::sync::Arc::new(telem_engine::SystemClock::new()));
    members.join("old", url("leaf"));
    members.leave("old", "stopped");
    members.join("n1", url("leaf"));
    // Whoever passes an error on may add to it.
    let over_the_wire = |node| lost(&url(node), "its connection broke");
    for (node, name) in [("leaf", "n1"), ("stranger", "http://stranger.test:1/")] {
        let error = Error::from(named(over_the_wire(node).context("a stage failed"), &members));
        assert_eq!(error.kind(), telem_engine::ErrorKind::Unavailable);
        let expected = format!("the node {name} was lost: its connection broke; repeat the query");
        assert!(error.to_string().contains(&expected), "{error}");
    }
    let other = Error::from(named(DataFusionError::Plan("there is no such column".to_owned()), &members));
    assert_eq!(other.kind(), telem_engine::ErrorKind::Invalid);
}

#[tokio::test]
async fn streams_are_awaited_until_they_say_something_or_go() {
    let attempt = std::sync::Arc::new(attempt());
    let (one, two) = (attempt.expect(), attempt.expect());
    let began = attempt.all_began();
    tokio::pin!(began);
    assert!(futures::poll!(&mut began).is_pending());
    drop(one);
    assert!(futures::poll!(&mut began).is_pending());
    drop(two);
    assert!(futures::poll!(&mut began).is_ready());
}
