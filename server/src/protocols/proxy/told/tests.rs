use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::Request;
use http_body_util::BodyExt;
use serde_json::Value as Json;

use super::super::ProxyOptions;
use super::super::targets::TargetAddress;
use super::super::testing::TestProxy;
use super::*;

/// A server below some root.
fn below() -> TestProxy {
    TestProxy::with(below_root("nowhere:1"))
}

fn below_root(root: &str) -> ProxyOptions {
    let root = Some((TargetAddress::parse(root).unwrap(), Duration::from_secs(1)));
    ProxyOptions { root, search_path: Some("/nowhere".into()), ..ProxyOptions::default() }
}

fn joined(proxy: &TestProxy, memory: RootMemory) -> String {
    let clock = &proxy.live.state.clock;
    format!("{SINCE}{}/job", proxy.live.told.join(clock.now(), clock.monotonic(), memory))
}

/// What clients count, by job and name.
async fn told(proxy: &TestProxy, at: &str) -> BTreeMap<String, BTreeMap<String, f64>> {
    let jobs = proxy.get(at).await;
    let counters = |job: &Json| {
        let all = job["counters"].as_array().unwrap().iter();
        let own = all.filter(|one| !one["name"].as_str().unwrap().starts_with("proxy_"));
        own.map(|one| {
            let value = &one["ctype"]["Counter"]["value"];
            (one["name"].as_str().unwrap().to_owned(), value.as_f64().unwrap())
        })
        .collect()
    };
    let all = jobs.as_array().unwrap().iter();
    all.map(|job| (job["desc"]["jobid"].as_str().unwrap().to_owned(), counters(job))).collect()
}

async fn works(proxy: &TestProxy, at: &str) -> (Option<f64>, Option<f64>) {
    let told = told(proxy, at).await;
    let work = |job: &str| told.get(job)?.get("work").copied();
    (work("main"), work("j"))
}

fn both(value: f64) -> (Option<f64>, Option<f64>) {
    (Some(value), Some(value))
}

#[tokio::test]
async fn a_counter_is_0_before_it_has_a_value_and_goes_on_where_another_join_ended() {
    let proxy = below();
    let seat = proxy.join("j", "./app", 1).await;
    proxy.count(&seat, "work", 3.0);
    let first = joined(&proxy, RootMemory::Empty);
    assert_eq!(works(&proxy, &first).await, both(0.0));
    assert_eq!(works(&proxy, &first).await, both(3.0));
    proxy.count(&seat, "work", 10.0);
    proxy.count(&seat, "late", 1.0);
    assert_eq!(works(&proxy, &first).await, both(13.0));
    assert_eq!(told(&proxy, &first).await["j"]["late"], 1.0);
    proxy.count(&seat, "work", 100.0);
    let second = joined(&proxy, RootMemory::Kept);
    assert_eq!(works(&proxy, &second).await, both(0.0));
    assert_eq!(works(&proxy, &second).await, both(100.0), "what the earlier join missed, and nothing twice");
    let (status, _) = proxy.ask(Request::get(&first).body(Body::empty()).unwrap()).await;
    assert_eq!(status, 404, "who polls for an earlier join stops");
    assert_eq!(proxy.get("/job?job=j").await["counters"].as_array().unwrap().len(), 2 + node_metrics(&proxy).await);
    let third = joined(&proxy, RootMemory::Empty);
    assert_eq!(works(&proxy, &third).await, both(0.0));
    assert_eq!(works(&proxy, &third).await, both(113.0), "all of it, for who was started anew");
}

async fn node_metrics(proxy: &TestProxy) -> usize {
    let job = proxy.get("/job?job=j").await;
    let names = job["counters"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned());
    names.filter(|name| name.starts_with("proxy_")).count()
}

#[tokio::test]
async fn a_later_life_tells_what_it_counts_itself() {
    let proxy = below();
    let seat = proxy.join("j", "./app", 1).await;
    proxy.count(&seat, "work", 13.0);
    proxy.tick().await;
    let proxy = proxy.restarted();
    let seat = proxy.join("j", "./app", 1).await;
    proxy.count(&seat, "work", 100.0);
    let at = joined(&proxy, RootMemory::Kept);
    told(&proxy, &at).await;
    assert_eq!(works(&proxy, &at).await, both(100.0));
    let proxy = proxy.restarted();
    let at = joined(&proxy, RootMemory::Empty);
    told(&proxy, &at).await;
    assert_eq!(works(&proxy, &at).await.0, Some(13.0), "the last life kept nothing of what it counted");
}

#[tokio::test]
async fn a_job_that_comes_back_has_what_it_counted_since_and_another_run_of_it_everything() {
    let proxy = below();
    let at = joined(&proxy, RootMemory::Empty);
    let seat = proxy.join("j", "./app", 1).await;
    proxy.count(&seat, "work", 5.0);
    told(&proxy, &at).await;
    assert_eq!(works(&proxy, &at).await, both(5.0));
    proxy.leave(seat).await;
    assert_eq!(works(&proxy, &at).await, (Some(5.0), None));
    let seat = proxy.join("j", "./app", 1).await;
    proxy.count(&seat, "work", 2.0);
    assert_eq!(works(&proxy, &at).await, (Some(7.0), Some(0.0)));
    assert_eq!(works(&proxy, &at).await, (Some(7.0), Some(2.0)));
    proxy.leave(seat).await;
    proxy.clock.pass(super::super::runs::RETURN_MAX);
    super::super::seats::forget_old(&proxy.live).await;
    told(&proxy, &at).await;
    let seat = proxy.join("j", "./app", 1).await;
    proxy.count(&seat, "work", 4.0);
    told(&proxy, &at).await;
    assert_eq!(works(&proxy, &at).await, (Some(11.0), Some(4.0)));
    assert_eq!(proxy.live.told.lock().jobs.len(), 3, "of jobs that are over nothing is kept");
}

#[tokio::test]
async fn a_counter_that_is_set_lower_falls_by_as_much() {
    let proxy = below();
    proxy.get("/push?key=set&value=0").await;
    proxy.get("/set?key=set&value=10").await;
    let at = joined(&proxy, RootMemory::Empty);
    told(&proxy, &at).await;
    assert_eq!(told(&proxy, &at).await["main"]["set"], 10.0);
    let at = joined(&proxy, RootMemory::Kept);
    told(&proxy, &at).await;
    proxy.get("/set?key=set&value=4").await;
    assert_eq!(told(&proxy, &at).await["main"]["set"], -6.0);
    proxy.get("/set?key=set&value=0").await;
    assert_eq!(told(&proxy, &at).await["main"]["set"], -10.0, "one that is 0 stays there, or it would count anew");
}

#[tokio::test]
async fn an_answer_that_is_read_slowly_counts_for_the_join_that_it_was_begun_for() {
    let proxy = below();
    let seat = proxy.join("j", "./app", 1).await;
    proxy.count(&seat, "work", 100.0);
    let at = joined(&proxy, RootMemory::Empty);
    told(&proxy, &at).await;
    let slow = proxy.answer(&at).await;
    // Nothing was read of it when another join began.
    let next = joined(&proxy, RootMemory::Kept);
    drop(slow.into_body().collect().await);
    assert_eq!(works(&proxy, &next).await, both(0.0));
}

#[tokio::test]
async fn what_was_not_told_when_a_server_stopped_the_next_one_tells() {
    let proxy = below();
    let seat = proxy.join("j", "./app", 1).await;
    proxy.count(&seat, "work", 100.0);
    let at = joined(&proxy, RootMemory::Empty);
    told(&proxy, &at).await;
    assert_eq!(works(&proxy, &at).await, both(100.0));
    proxy.count(&seat, "work", 50.0);
    proxy.count(&seat, "late", 7.0);
    proxy.tick().await;
    super::super::climb::note_root(&proxy.live, "nowhere:1");
    super::super::climb::keep_untold(&proxy.live);
    let (status, _) = proxy.ask(Request::get(&at).body(Body::empty()).unwrap()).await;
    assert_eq!(status, 404, "a late poll would have what the next server tells");
    let proxy = proxy.restarted();
    proxy.join("j", "./app", 1).await;
    let at = joined(&proxy, RootMemory::Kept);
    told(&proxy, &at).await;
    let jobs = told(&proxy, &at).await;
    for job in ["main", "j"] {
        assert_eq!((jobs[job]["work"], jobs[job]["late"]), (50.0, 7.0), "{job}");
    }
}

#[tokio::test]
async fn a_root_that_was_told_nothing_hides_nothing_that_another_one_was_told() {
    let proxy = below();
    let seat = proxy.join("j", "./app", 1).await;
    proxy.count(&seat, "work", 100.0);
    proxy.tick().await;
    super::super::climb::note_root(&proxy.live, "nowhere:1");
    // Another root gives a place and asks for nothing, before the server is stopped.
    let proxy = proxy.restarted_with(below_root("other:1"));
    joined(&proxy, RootMemory::Empty);
    super::super::climb::keep_untold(&proxy.live);
    let proxy = proxy.restarted_with(below_root("nowhere:1"));
    proxy.join("j", "./app", 1).await;
    let at = joined(&proxy, RootMemory::Kept);
    told(&proxy, &at).await;
    assert_eq!(works(&proxy, &at).await, both(0.0));
}

#[tokio::test]
async fn a_counter_that_is_gone_is_told_again_as_it_was() {
    let proxy = below();
    let seat = proxy.join("j", "./app", 1).await;
    proxy.count(&seat, "work", 5.0);
    let at = joined(&proxy, RootMemory::Empty);
    told(&proxy, &at).await;
    told(&proxy, &at).await;
    let told_above = &proxy.live.told;
    let mut answer = told_above.answer(at.split('/').nth(2).unwrap().parse().unwrap(), Duration::ZERO).unwrap();
    told_above.begin_job(&answer, "main", None);
    assert!(told_above.tell(&mut answer, "main", &mut Vec::new()));
    let again = told_above.vanished(&answer, "main").unwrap();
    let work = again.iter().find(|reading| &*reading.name == "work").unwrap();
    assert_eq!(work.value, CounterValue::Counter(5.0));
}

#[tokio::test]
async fn who_asks_beside_the_parent_is_not_taken_for_it() {
    let proxy = below();
    joined(&proxy, RootMemory::Empty);
    let joined_at = proxy.live.told.polled_at();
    proxy.clock.pass(Duration::from_secs(20));
    proxy.get("/job").await;
    assert_eq!(proxy.live.told.polled_at(), joined_at);
    assert!(proxy.live.tree.polled_at() > joined_at);
}
