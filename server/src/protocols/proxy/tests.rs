use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use serde_json::json;
use telem_ingest::counters::{CounterReading, CounterValue};

use telem_engine::{Durability, SampleBatch, SeriesKey, TagSet, Value};

use super::runs::{RETURN_MAX, RETURNING_COUNTERS_MAX, RETURNING_MAX, RETURNING_MIN};
use super::testing::TestProxy;
use super::{ProxyOptions, seats};

fn counter(reading: Option<CounterReading>) -> Option<f64> {
    match reading?.value {
        CounterValue::Counter(value) => Some(value),
        CounterValue::Gauge(_) => None,
    }
}

/// A server that keeps no profiles, as with `-i`.
fn without_profiles() -> TestProxy {
    TestProxy::with(ProxyOptions {
        has_profiles: false,
        search_path: Some("/nowhere".into()),
        ..ProxyOptions::default()
    })
}

/// What is counted of `c` in all.
fn c_in_all(proxy: &TestProxy) -> Option<f64> {
    counter(proxy.live.table.find(proxy.live.main, "c"))
}

/// The counters of everything, without those of the node.
async fn names(proxy: &TestProxy) -> Vec<String> {
    let main = proxy.get("/job?job=main").await;
    let names = main["counters"].as_array().unwrap().iter().map(|counter| counter["name"].as_str().unwrap().to_owned());
    names.filter(|name| !name.starts_with("proxy_")).collect()
}

#[tokio::test]
async fn names_that_only_jobs_had_which_are_over_leave_everything_after_an_hour_and_their_sums_stay() {
    let search_path = Some("/nowhere".into());
    let proxy = TestProxy::with(ProxyOptions { search_path, ..ProxyOptions::default() });
    let quarter = ProxyOptions::default().idle_names_keep / 4;
    proxy.finished("one", "./app", 1, &[("only", 5.0), ("both", 1.0)]).await;
    let two = proxy.join("two", "./app", 1).await;
    proxy.count(&two, "both", 2.0);
    // The job may go on for a minute, and then has no lane any more.
    proxy.clock.pass(RETURN_MAX);
    seats::forget_old(&proxy.live).await;
    let pass_quarters = |quarters: u32| {
        for _ in 0..quarters {
            proxy.clock.pass(quarter);
            proxy.live.let_idle_names_go();
        }
    };
    pass_quarters(4);
    assert_eq!(names(&proxy).await, ["only", "both"]);
    // Who polls all jobs and is none of ours would count what comes back anew.
    proxy.ask(Request::get("/job").body(Body::empty()).unwrap()).await;
    pass_quarters(3);
    assert_eq!(names(&proxy).await, ["only", "both"]);
    pass_quarters(1);
    assert_eq!(names(&proxy).await, ["both"]);
    // Asked for, it is there.
    assert_eq!(counter(proxy.live.reading(proxy.live.main, "only")), Some(5.0));
    assert_eq!(counter(proxy.live.reading(proxy.live.node, "only")), Some(5.0));
    let alarm = json!({"name": "much", "target": "main", "metric": "only", "operation": ">", "value": 4.0});
    assert_eq!(proxy.post("/alarms/add", &alarm.to_string()).await, (true, "alarm registered".to_owned()));
    assert_eq!(proxy.get("/alarms").await["main"][0]["current"], 5.0);
    assert_eq!(proxy.get("/accumulate?key=only&value=1").await["success"], true);
    assert_eq!(counter(proxy.live.table.find(proxy.live.main, "only")), Some(6.0));
    // Written again, it goes on.
    let three = proxy.join("three", "./app", 1).await;
    proxy.count(&three, "only", 2.0);
    assert_eq!(counter(proxy.live.table.find(proxy.live.main, "only")), Some(8.0));
    assert_eq!(counter(proxy.live.table.find(proxy.live.node, "only")), Some(7.0), "without what came by HTTP");
    proxy.tick().await;
    let proxy = proxy.restarted();
    assert_eq!(counter(proxy.live.table.find(proxy.live.main, "only")), Some(8.0));
}

#[tokio::test]
async fn the_last_jobs_that_are_over_may_go_on_and_where_somebody_polls_all_may() {
    let proxy = TestProxy::new();
    let recent = || proxy.live.runs.recent().len();
    for number in 0..RETURNING_MAX + 3 {
        proxy.finished(&format!("job-{number}"), "./app", 1, &[("c", 1.0)]).await;
    }
    assert_eq!(recent(), RETURNING_MAX + 1, "the next one to begin makes room");
    let live = proxy.join("live", "./app", 1).await;
    assert_eq!(recent(), RETURNING_MAX + 1);
    let last = proxy.join(&format!("job-{}", RETURNING_MAX + 2), "./app", 1).await;
    assert_eq!(counter(proxy.live.table.find(last.lane, "c")), Some(1.0), "it goes on");
    let first = proxy.join("job-0", "./app", 1).await;
    assert_eq!(counter(proxy.live.table.find(first.lane, "c")), None, "another run of it begins");
    assert_eq!(counter(proxy.live.table.find(proxy.live.main, "c")), Some((RETURNING_MAX + 3) as f64));
    for seat in [live, last, first] {
        proxy.leave(seat).await;
    }
    // Who polls is to learn what each of them reached.
    proxy.ask(Request::get("/job").body(Body::empty()).unwrap()).await;
    let before = recent();
    for number in 0..5 {
        proxy.finished(&format!("polled-{number}"), "./app", 1, &[("c", 1.0)]).await;
    }
    assert_eq!(recent(), before + 5);
}

#[tokio::test]
async fn fewer_jobs_may_go_on_where_they_have_many_counters() {
    let proxy = TestProxy::new();
    let finish = async |id: String, counters: usize| {
        let names: Vec<String> = (0..counters).map(|number| format!("c{number}")).collect();
        let values: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 1.0)).collect();
        proxy.finished(&id, "./app", 1, &values).await;
    };
    let waiting = async || {
        // The next one to begin makes room.
        let seat = proxy.join("live", "./app", 1).await;
        let waiting = proxy.live.runs.recent().len() - 1;
        proxy.leave(seat).await;
        proxy.clock.pass(RETURN_MAX);
        seats::forget_old(&proxy.live).await;
        waiting
    };
    let jobs = RETURNING_MIN + 3;
    for number in 0..jobs {
        finish(format!("within-{number}"), RETURNING_COUNTERS_MAX / jobs).await;
    }
    assert_eq!(waiting().await, jobs, "all that they count is little");
    for number in 0..jobs {
        finish(format!("beyond-{number}"), RETURNING_COUNTERS_MAX / jobs + 1).await;
    }
    assert_eq!(waiting().await, jobs - 1, "one of them less is little");
    for number in 0..jobs {
        finish(format!("large-{number}"), RETURNING_COUNTERS_MAX).await;
    }
    assert_eq!(waiting().await, RETURNING_MIN, "so many always");
}

#[tokio::test]
async fn what_is_kept_between_two_samples_is_there_after_a_kill() {
    let proxy = TestProxy::new();
    let seat = proxy.join("j", "./app", 1).await;
    proxy.count(&seat, "c", 1.0);
    proxy.set(&seat, "g", 2.0);
    proxy.live.keep_changes().await;
    proxy.clock.pass(Duration::from_millis(100));
    proxy.count(&seat, "c", 0.5);
    proxy.set(&seat, "g", 3.0);
    proxy.live.keep_changes().await;
    let samples = "SELECT metric, value FROM samples WHERE metric IN ('c', 'g') ORDER BY metric, ts";
    let first = [json!({"metric": "c", "value": 1.0}), json!({"metric": "g", "value": 2.0})];
    assert_eq!(proxy.sql(samples).await, first);
    let proxy = proxy.restarted();
    let profile = proxy.get("/profiles/get?jobid=j").await;
    let value = |name: &str| {
        let counters = profile["counters"].as_array().unwrap();
        counters.iter().find(|counter| counter["name"] == name).unwrap()["ctype"].clone()
    };
    assert_eq!(value("c")["Counter"]["value"], 1.5);
    assert_eq!(value("g")["Gauge"]["total"], 3.0);
    assert_eq!(counter(proxy.live.table.find(proxy.live.main, "c")), Some(1.5));
    assert_eq!(proxy.sql(samples).await.len(), 4, "they are samples now");
}

#[tokio::test]
async fn a_trace_has_what_the_node_was_like_out_of_the_samples_that_are_taken_of_it_anyway() {
    let proxy = TestProxy::new();
    let sample = |values: &[(&str, f64)]| {
        let mut batch = SampleBatch::default();
        let live = &proxy.live;
        for (metric, value) in values {
            let tags = TagSet::new([("host", &*live.state.node)]).unwrap();
            let series = live.state.db.series(&SeriesKey::new(metric, tags).unwrap()).unwrap();
            batch.push(series, live.state.clock.now(), Value::Float(*value));
        }
        live.state.db.append(&batch, Durability::Buffered).unwrap();
    };
    let memory = |total, available| {
        [("node_memory_MemTotal_bytes", total), ("node_memory_MemAvailable_bytes", available), ("cpu_percent", 12.5)]
    };
    sample(&memory(100.0, 99.0));
    proxy.clock.pass(Duration::from_secs(1));
    let seat = proxy.join("j", "./app", 1).await;
    proxy.count(&seat, "c", 1.0);
    sample(&memory(100.0, 75.0));
    proxy.tick().await;
    sample(&memory(100.0, 40.0));
    let of = async |path: &str| {
        let points = proxy.get(path).await;
        let points = points.as_array().unwrap().iter().map(|point| point[1].as_f64().unwrap());
        points.collect::<Vec<f64>>()
    };
    let names = proxy.get("/trace/metrics?job=j").await;
    let names: Vec<&str> = names.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    for name in ["c", "proxy_memory_used_bytes", "proxy_memory_used_percent", "proxy_cpu_load_average_percent"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let unsampled = |name: &&&str| name.starts_with("proxy_disk") || name.starts_with("proxy_scrape");
    assert_eq!(names.iter().find(unsampled), None, "what is not sampled has no trace");
    let used = of("/trace/plot?jobid=j&filter=proxy_memory_used_percent").await;
    assert_eq!(used[0], 25.0, "from the job's begin on: {used:?}");
    let used =
        of(&format!("/trace/plot?jobid={}&filter=proxy_memory_used_bytes", proxy.live.node_id().replace(' ', "%20")))
            .await;
    assert_eq!(used[..2], [1.0, 25.0], "of the node all: {used:?}");
    let main = proxy.get("/trace/json?jobid=main").await;
    assert_eq!(main["metrics"]["proxy_memory_used_percent"][1][1], 25.0, "{main}");
    proxy.clock.pass(Duration::from_secs(1));
    proxy.leave(seat).await;
    sample(&memory(100.0, 5.0));
    let used = of("/trace/plot?jobid=j&filter=proxy_memory_used_percent").await;
    assert_eq!(used[..2], [25.0, 60.0], "until its end: {used:?}");
    assert!(!used.contains(&95.0), "{used:?}");
}

#[tokio::test]
async fn where_no_profiles_are_kept_the_sums_outlive_the_server_all_the_same() {
    let proxy = without_profiles();
    proxy.finished("over", "./app", 1, &[("c", 4.0)]).await;
    let _killed = proxy.join("killed", "./app", 1).await;
    proxy.count(&_killed, "c", 10.0);
    proxy.tick().await;
    assert_eq!(proxy.get("/profiles").await, json!([]));
    let proxy = proxy.restarted();
    assert_eq!((proxy.get("/profiles").await, c_in_all(&proxy)), (json!([]), Some(14.0)));
    // Both may go on for a minute, and what they counted counts once then.
    let again = proxy.join("over", "./app", 1).await;
    proxy.count(&again, "c", 1.0);
    proxy.tick().await;
    proxy.leave(again).await;
    let proxy = proxy.restarted();
    assert_eq!(c_in_all(&proxy), Some(15.0));
    proxy.clock.pass(RETURN_MAX);
    seats::forget_old(&proxy.live).await;
    assert_eq!(c_in_all(&proxy), Some(15.0));
    let proxy = proxy.restarted().restarted();
    assert_eq!((proxy.get("/profiles").await, c_in_all(&proxy)), (json!([]), Some(15.0)));
    let records = |kind| proxy.live.state.db.snapshot().meta().record_keys(kind).count();
    assert_eq!(records("proxy.run") + records("proxy.profile"), 0, "nothing is left of them but the sums");
}

#[tokio::test]
async fn a_job_whose_profile_is_forgotten_before_it_comes_back_counts_once() {
    let profiles_keep = Duration::from_secs(3);
    let search_path = Some("/nowhere".into());
    let proxy = TestProxy::with(ProxyOptions { profiles_keep, search_path, ..ProxyOptions::default() });
    proxy.finished("j", "./app", 1, &[("c", 4.0)]).await;
    proxy.clock.pass(profiles_keep + Duration::from_secs(1));
    seats::forget_old(&proxy.live).await;
    assert_eq!((proxy.get("/profiles").await, c_in_all(&proxy)), (json!([]), Some(4.0)));
    proxy.finished("j", "./app", 1, &[("c", 10.0)]).await;
    assert_eq!(c_in_all(&proxy), Some(14.0));
    let proxy = proxy.restarted();
    assert_eq!(c_in_all(&proxy), Some(14.0));
}

#[tokio::test]
async fn a_server_that_keeps_no_profiles_any_more_leaves_the_old_ones() {
    let proxy = TestProxy::new();
    proxy.finished("old", "./app", 1, &[("c", 4.0)]).await;
    let proxy = proxy.restarted_with(ProxyOptions { has_profiles: false, ..ProxyOptions::default() });
    proxy.clock.pass(RETURN_MAX);
    seats::forget_old(&proxy.live).await;
    let proxy = proxy.restarted();
    assert_eq!(proxy.get("/profiles").await.as_array().unwrap().len(), 1);
    assert_eq!(c_in_all(&proxy), Some(4.0));
}

#[tokio::test]
async fn requests_mean_what_they_mean_to_the_original() {
    let proxy = TestProxy::new();
    let seat = proxy.join("j", "./app", 1).await;
    proxy.count(&seat, "c", 1.0);
    proxy.get("/push?key=k&value=1").await;
    let alarm = json!({"name": "a", "target": "main", "metric": "c", "operation": ">", "value": 5});
    assert!(proxy.post("/alarms/add", &alarm.to_string()).await.0);
    // HEAD asks, and changes nothing.
    for path in ["/push?key=k", "/set?key=k&value=9", "/accumulate?key=k&value=9", "/alarms/del?targetjob=main&name=a"]
    {
        let (status, _) = proxy.ask(Request::head(path).body(Body::empty()).unwrap()).await;
        assert_eq!(status, 400, "{path}");
    }
    assert_eq!(counter(proxy.live.table.find(proxy.live.main, "k")), Some(0.0));
    assert_eq!(proxy.get("/alarms/list").await["main"].as_array().unwrap().len(), 1);
    // Of two parameters with one name the first counts.
    assert_eq!(proxy.get("/job?job=main&job=j").await["desc"]["jobid"], "main");
    assert_eq!(proxy.refused("/job?job=nosuch&job=main").await, "No such Job ID");
    // One further segment means nothing, and two are another path.
    for path in ["/push", "/set", "/accumulate", "/metrics", "/topo"] {
        let (status, _) = proxy.ask(Request::get(format!("{path}/a/b")).body(Body::empty()).unwrap()).await;
        assert_eq!(status, 404, "{path}");
    }
    assert_eq!(proxy.get("/topo/a").await, proxy.get("/topo").await);
    // The profile and its short name, and a job with a slash.
    proxy.finished("over", "./app", 1, &[("c", 2.0)]).await;
    assert_eq!(proxy.get("/get?jobid=over").await, proxy.get("/profiles/get?jobid=over").await);
    assert_eq!(proxy.get("/job/?job=main").await["desc"], proxy.get("/job?job=main").await["desc"]);
    // Nobody is told that something was done which was not.
    assert!(proxy.refused("/period?target=no&period=100").await.contains("no"));
    assert_eq!(proxy.refused("/period?target=no:1&period=100").await, "no:1 is not known here");
}

#[tokio::test]
async fn a_value_that_no_sample_has_is_there_after_a_restart() {
    let proxy = TestProxy::new();
    for (key, value) in [("none", "NaN"), ("most", "inf")] {
        proxy.get(&format!("/push?key={key}")).await;
        proxy.get(&format!("/set?key={key}&value={value}")).await;
    }
    proxy.tick().await;
    let proxy = proxy.restarted();
    assert!(counter(proxy.live.table.find(proxy.live.main, "none")).unwrap().is_nan());
    assert_eq!(counter(proxy.live.table.find(proxy.live.main, "most")), Some(f64::INFINITY));
}

#[tokio::test]
async fn the_trace_of_a_child_has_each_of_its_counters_once_whatever_their_labels_are() {
    let proxy = TestProxy::new();
    let child: std::sync::Arc<str> = "child:1".into();
    let told = super::shapes::JobDesc { jobid: "far".to_owned(), ..Default::default() };
    let source = telem_ingest::counters::GaugeSource(7);
    let (_seat, _) = seats::join_part(&proxy.live, told, &child, source).await.unwrap();
    let lane = proxy.live.runs.lock().recent["far"].parts[0].lane;
    let names = ["many{n=\"1\"}", "many{n=\"2\"}", "many{ n=\"2\" }", "many{host=\"x\",n=\"1\"}", "many"];
    for (at, name) in names.iter().enumerate() {
        let value = CounterValue::Counter((at + 1) as f64);
        let reading = CounterReading { name: (*name).into(), doc: "".into(), value };
        assert_eq!(proxy.live.table.tell(lane, &[reading]).len(), 0);
    }
    proxy.clock.pass(Duration::from_secs(1));
    proxy.live.store_lane(lane).await.unwrap();
    let trace = proxy.get("/trace/json?jobid=far").await;
    for (at, name) in names.iter().enumerate() {
        let last = trace["metrics"][*name].as_array().unwrap().last().unwrap()[1].clone();
        assert_eq!(last, json!((at + 1) as f64), "{name}: {trace}");
        let filter: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
        let points = proxy.get(&format!("/trace/plot?jobid=far&filter={filter}")).await;
        assert_eq!(points[0][1], json!((at + 1) as f64), "{name}: {points}");
    }
}
