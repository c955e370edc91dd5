//! Profiles, models and traces through the API.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use telem_ingest::counters::CounterValue;

use super::super::testing::TestProxy;
use super::super::{ProxyOptions, ftio, seats};
use super::*;

/// Runs of one command in five sizes.
async fn scaled(proxy: &TestProxy) {
    for size in [1, 2, 4, 8, 16] {
        let value = 1.5 + 2.0 * f64::from(size);
        proxy.finished(&format!("size{size}"), "./scale", size, &[("mpi___hits___send", value), ("one", 3.0)]).await;
    }
}

#[tokio::test]
async fn runs_of_one_command_give_points_input_and_models() {
    let proxy = TestProxy::new();
    scaled(&proxy).await;
    proxy.finished("other", "./other", 3, &[("one", 9.0)]).await;
    let profiles = proxy.get("/profiles").await;
    assert_eq!(profiles.as_array().unwrap().len(), 6);
    let commands = proxy.get("/profiles/percmd").await;
    assert_eq!(commands["./scale"].as_array().unwrap().len(), 5);
    assert_eq!(proxy.get("/percmd").await, commands, "as the original's documentation calls it");
    let profile = proxy.get("/profiles/get?jobid=size4").await;
    let counter = |name: &str| {
        let counters = profile["counters"].as_array().unwrap();
        counters.iter().find(|counter| counter["name"] == name).unwrap()["ctype"]["Counter"]["value"].clone()
    };
    assert_eq!((counter("mpi___hits___send"), counter("walltime")), (json!(9.5), json!(1000.0)));
    let points = proxy.get("/profiles/points?jobid=size4").await;
    assert_eq!(points["mpi___hits___send"], json!([[1, 3.5], [2, 5.5], [4, 9.5], [8, 17.5], [16, 33.5]]));
    let (status, lines) = proxy.ask(Request::get("/model/download?jobid=size4").body("".into()).unwrap()).await;
    let line = r#"{"params":{"size":4.0},"metric":"hits","callpath":"mpi->hits->send","value":9.5}"#;
    assert!(status == 200 && lines.lines().any(|found| found == line), "{lines}");

    let models = proxy.get("/model/get?jobid=size8").await;
    let model = |name: &str| models.as_array().unwrap().iter().find(|model| model[0] == name).unwrap()[1].clone();
    assert_eq!((model("mpi___hits___send"), model("one")), (json!("1.5 + 2 * size"), json!("3")));
    let plot = proxy.get("/model/plot?jobid=size8&metric=mpi___hits___send&start=0&end=2&step=0.5").await;
    assert_eq!(plot, json!([[0.0, 1.5], [0.5, 2.5], [1.0, 3.5], [1.5, 4.5]]));
    let body = r#"{"jobid": "size8", "metric": "one", "start": 1, "end": 5, "step": 2}"#;
    let request = Request::post("/model/plot").header("content-type", "application/json").body(body.into()).unwrap();
    assert_eq!(proxy.ask(request).await.1, "[[1.0,3.0],[3.0,3.0]]", "the step of a body counts too");
    let body = body.replace(r#", "step": 2"#, "");
    let request = Request::post("/model/plot?step=2").header("content-type", "application/json").body(body.into());
    assert_eq!(proxy.ask(request.unwrap()).await.1, "[[1.0,3.0],[3.0,3.0]]", "and that beside a body without one");

    proxy.finished("size32", "./scale", 32, &[("one", 35.0)]).await;
    let models = proxy.get("/model/get?jobid=size8").await;
    let one = models.as_array().unwrap().iter().find(|model| model[0] == "one").unwrap();
    assert_ne!(one[1], "3", "another run is over");
}

#[tokio::test]
async fn what_cannot_be_answered_is_refused_in_the_words_of_the_original() {
    let proxy = TestProxy::new();
    scaled(&proxy).await;
    let plot = "/model/plot?jobid=size4&metric=one";
    for (path, expected) in [
        ("/profiles/get", "A GET parameter jobid must be passed"),
        ("/profiles/get?jobid=no", "Failed to get no"),
        ("/profiles/get?jobid=../size4", "Failed to get ../size4"),
        ("/profiles/points", NO_REFERENCE),
        ("/profiles/points?jobid=no", "No such jobid"),
        ("/profiles/points?jobid=main", "Failed to find command Sum of all Jobs in previous profiles"),
        ("/profiles/extrap?jobid=main", "Failed to get main"),
        ("/profiles/nosuch", "/profiles/nosuch"),
        ("/model/", "/model/"),
        ("/model/get", NO_REFERENCE),
        ("/model/get?jobid=no", "No such jobid"),
        ("/model/plot?jobid=size4", "Missing 'name' GET parameter"),
        (&format!("{plot}&start=5&end=1"), "Failed to generate range End cannot be smaller than start"),
        (&format!("{plot}&start=1&end=5&step=0"), "Failed to generate range End cannot be smaller than start"),
        (&format!("{plot}&start=1&end=5&step=x"), "Failed to parse the step parameter as an integer"),
        (&format!("{plot}&start=a&end=5"), "Failed to parse the start/end parameter as an integer"),
        (&format!("{plot}&start=1&end=b"), "Failed to parse the start/end parameter as an integer"),
        ("/model/plot?jobid=no&metric=one&start=1&end=5", "No such jobid"),
        ("/model/plot?jobid=size4&metric=no&start=1&end=5", "Failed to plot No model for metric no"),
        ("/model/ftio", NO_REFERENCE),
        ("/model/ftio?jobid=main", "No such jobid"),
        ("/queue/list", "Failed to call squeue: squeue is not on the PATH"),
        ("/queue/model", "A Job Parameter is required"),
        ("/trace/", "/trace/"),
        ("/trace/metrics", "No job GET parameter passed"),
        ("/trace/metrics?job=no", "Failed to generate data No such jobid"),
        ("/trace/read?job=no", "Failed to generate data No such trace id no"),
        ("/trace/read?job=size4&filter=no", "Failed to generate data No such metric no"),
        ("/trace/plot?jobid=size4", "No filter GET parameter passed"),
        ("/trace/plot?filter=one", "No job GET parameter passed"),
        ("/trace/json", "A GET parameter jobid must be passed"),
        ("/trace/json?jobid=no", "Failed to get no"),
        ("/trace/size", "No job GET parameter passed"),
        ("/trace/size?jobid=no", "No such jobid no"),
        ("/trace/ftio", NO_REFERENCE),
        ("/trace/ftio?jobid=main", "No such jobid"),
    ] {
        assert_eq!(proxy.refused(path).await, expected, "{path}");
    }
    let many = proxy.refused(&format!("{plot}&start=0&end=100001")).await;
    assert!(many.ends_with("at most 100000 are plotted"), "{many}");
    assert_eq!(proxy.get(&format!("{plot}&start=0&end=100000")).await.as_array().unwrap().len(), PLOT_POINTS_MAX);
    assert_eq!(proxy.post("/trace/plot", "{}").await.1, "Failed to parse plot POST request");
    let size = proxy.get("/trace/size?jobid=size4").await;
    let listed = proxy.get("/trace/list").await;
    let listed = listed.as_array().unwrap().iter().find(|trace| trace["desc"]["jobid"] == "size4").unwrap();
    assert!(size[0].as_u64().unwrap() > 0 && size[0] == listed["size"], "{size}, {listed}");
    assert_eq!(size[1], (1_u64 << 53) - 1, "as much as there is room");
}

/// A folder with a program in it.
fn program(name: &str, text: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

fn with_program(dir: &tempfile::TempDir) -> TestProxy {
    TestProxy::with(ProxyOptions { search_path: Some(dir.path().into()), ..ProxyOptions::default() })
}

#[tokio::test]
async fn extra_p_is_asked_where_it_is_and_once_for_the_same_runs() {
    let asked = tempfile::tempdir().unwrap();
    let count = asked.path().join("count");
    let text = format!(
        "echo x >> {}; grep -q '\"callpath\":\"one\"' \"$2\" || exit 1\n\
         printf 'Callpath: one\\n\\tMetric: various\\n\\t\\tModel: 1.5 + 2 * log2(size)\\n\\t\\tRSS: 0.25\\n'",
        count.display()
    );
    let dir = program("extrap", &text);
    let proxy = with_program(&dir);
    scaled(&proxy).await;
    for _ in 0..2 {
        let models = proxy.get("/model/get?jobid=size4").await;
        assert_eq!(models, json!([["one", "1.5 + 2 * (ln(size)/ln(2))", 0.25]]));
    }
    assert_eq!(fs::read_to_string(&count).unwrap().lines().count(), 1);
    let plot = proxy.get("/model/plot?jobid=size4&metric=one&start=1&end=3").await;
    assert_eq!(plot, json!([[1.0, 1.5], [2.0, 3.5]]));
    let body = r#"{"jobid": "size4", "metric": "one", "start": 1, "end": 2, "step": 0.5, "fit": "telem"}"#;
    let request = Request::post("/model/plot").header("content-type", "application/json").body(body.into()).unwrap();
    assert_eq!(proxy.ask(request).await.1, "[[1.0,3.0],[1.5,3.0]]");
    let own = proxy.get("/model/get?jobid=size4&fit=telem").await;
    assert!(own.as_array().unwrap().iter().any(|model| model[1] == "1.5 + 2 * size"), "{own}");
}

#[tokio::test]
async fn telem_fits_models_itself_where_extra_p_fails() {
    let dir = program("extrap", "exit 1");
    let proxy = with_program(&dir);
    scaled(&proxy).await;
    let models = proxy.get("/model/get?jobid=size4").await;
    assert!(models.as_array().unwrap().iter().any(|model| model[1] == "1.5 + 2 * size"), "{models}");
}

#[tokio::test]
async fn the_queue_is_asked_once_in_some_seconds() {
    let asked = tempfile::tempdir().unwrap();
    let count = asked.path().join("count");
    let text = format!("echo x >> {}; echo 'COMMENT|JOBID'; echo './scale|42'; echo './none|43'", count.display());
    let dir = program("squeue", &text);
    let proxy = with_program(&dir);
    scaled(&proxy).await;
    let jobs = proxy.get("/queue/list").await;
    assert_eq!(jobs["jobs"]["42"], json!({"COMMENT": "./scale", "JOBID": "42"}));
    let (status, lines) = proxy.ask(Request::get("/queue/model?job=42").body("".into()).unwrap()).await;
    assert!(status == 200 && lines.lines().count() >= 10, "{lines}");
    assert_eq!(proxy.refused("/queue/model?job=7").await, "Failed to retrieve a job with id : 7");
    assert_eq!(proxy.refused("/queue/model?job=43").await, "Failed to retrieve a model for : 43 (./none)");
    let asked = || fs::read_to_string(&count).unwrap().lines().count();
    assert_eq!(asked(), 1);
    proxy.clock.pass(Duration::from_secs(6));
    proxy.get("/queue/list").await;
    assert_eq!(asked(), 2);
}

#[tokio::test]
async fn ftio_is_given_the_trace_and_asked_again_after_a_failure() {
    let asked = tempfile::tempdir().unwrap();
    let (failed, input) = (asked.path().join("failed"), asked.path().join("input"));
    let text = format!(
        "[ -e {0} ] || {{ touch {0}; exit 1; }}\ncat > {1}.$$; grep -q '\"jobid\":\"j\"' {1}.$$ && mv {1}.$$ {1}; \
         echo 'Parsing time: 0.1 s'; echo '[{{\"metric\": \"deriv__c\", \"conf\": [0.9]}}, 7]'",
        failed.display(),
        input.display()
    );
    let dir = program("admire_proxy_invoke_ftio", &text);
    let options = ProxyOptions {
        search_path: Some(dir.path().into()),
        ftio_interval: Duration::from_millis(10),
        ..ProxyOptions::default()
    };
    let proxy = TestProxy::with(options);
    let seat = proxy.join("j", "./app", 1).await;
    proxy.count(&seat, "c", 3.0);
    proxy.tick().await;
    let text = rhythms(&proxy, "j").await;
    assert_eq!(text, r#"{"models":{"deriv__c":{"metric":"deriv__c","conf":[0.9]}}}"#);
    assert_eq!(proxy.get("/trace/ftio?jobid=j").await.to_string(), text, "the successor calls it so");
    assert!(failed.exists());
    let trace: serde_json::Value = serde_json::from_str(&fs::read_to_string(input).unwrap()).unwrap();
    assert!(trace["metrics"]["c"].is_array() && trace["infos"]["desc"].is_object(), "{trace}");
}

/// What FTIO says of a job, which is asked meanwhile.
async fn rhythms(proxy: &TestProxy, job: &str) -> String {
    let found = async {
        let until = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            let path = format!("/model/ftio?jobid={job}");
            let (status, text) = proxy.ask(Request::get(path).body("".into()).unwrap()).await;
            if status == 200 {
                return text;
            }
            assert!(tokio::time::Instant::now() < until, "{text}");
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        text = found => text,
        () = ftio::watch(Arc::clone(&proxy.live), Arc::clone(&proxy.parts.rhythms)) => panic!("it asks for ever"),
    }
}

#[tokio::test]
async fn a_job_whose_analysis_hangs_delays_no_other_one() {
    let text = "case \"$(cat)\" in *./hangs*) exec sleep 300 ;; esac; echo '[{\"metric\": \"m\"}]'";
    let dir = program("admire_proxy_invoke_ftio", text);
    let options = ProxyOptions {
        search_path: Some(dir.path().into()),
        ftio_interval: Duration::from_millis(10),
        ..ProxyOptions::default()
    };
    let proxy = TestProxy::with(options);
    // In the order of their names it is asked about the one that hangs first.
    for (job, command) in [("a", "./hangs"), ("b", "./app")] {
        let seat = proxy.join(job, command, 1).await;
        proxy.count(&seat, "c", 3.0);
    }
    proxy.tick().await;
    assert_eq!(rhythms(&proxy, "b").await, r#"{"models":{"m":{"metric":"m"}}}"#);
}

#[tokio::test]
async fn a_trace_is_made_of_samples_and_ends_with_the_live_value() {
    let proxy = TestProxy::new();
    let seat = proxy.join("j", "./app", 1).await;
    for value in [3.0, 3.0, 0.0, 3.0] {
        proxy.count(&seat, "c{a=\"1\",z=\"2\"}", value);
        proxy.set(&seat, "g", value);
        proxy.tick().await;
    }
    proxy.count(&seat, "c{a=\"1\",z=\"2\"}", 1.0);
    proxy.clock.pass(Duration::from_millis(700));
    assert_eq!(proxy.get("/trace/metrics?job=j").await.as_array().unwrap().len(), 2);
    let values = |answer: &serde_json::Value| -> Vec<f64> {
        answer.as_array().unwrap().iter().map(|point| point[1].as_f64().unwrap()).collect()
    };
    let path = "/trace/plot?jobid=j&filter=c%7Ba%3D%221%22%2Cz%3D%222%22%7D";
    let points = proxy.get(path).await;
    assert_eq!(values(&points), [3.0, 6.0, 6.0, 9.0, 10.0]);
    assert_eq!(points[4][0].as_f64().unwrap() - points[0][0].as_f64().unwrap(), 3.700_000_047_683_716);
    let rates = proxy.get(&format!("{path}&derivate=1")).await;
    assert_eq!(values(&rates)[..4], [0.0, 3.0, 0.0, 3.0]);
    let read = proxy.get("/trace/read?job=j&filter=g").await;
    let gauges = read["time_serie"].as_array().unwrap();
    assert_eq!(gauges[2][1], json!({"Gauge": {"min": 0.0, "max": 0.0, "hits": 1.0, "total": 0.0}}));
    assert_eq!(read["info"]["desc"]["jobid"], "j");
    let whole = proxy.get("/trace/json?jobid=j").await;
    assert_eq!(whole["metrics"]["g"][0][0], 0.0);
    assert_eq!(values(&whole["metrics"]["deriv__g"])[..3], [0.0, 0.0, -3.0]);
    assert_eq!(proxy.get("/trace/read?job=j").await["time_serie"], json!([]));
}

#[tokio::test]
async fn the_trace_of_everything_adds_up_jobs_one_after_the_other_and_beside_each_other() {
    let proxy = TestProxy::new();
    proxy.finished("a", "./app", 1, &[("c", 5.0)]).await;
    proxy.clock.pass(Duration::from_secs(61));
    seats::forget_old(&proxy.live).await;
    let (again, beside) = (proxy.join("a", "./app", 1).await, proxy.join("b", "./app", 1).await);
    proxy.count(&again, "c", 2.0);
    proxy.count(&beside, "c", 10.0);
    proxy.tick().await;
    proxy.count(&beside, "c", 1.0);
    proxy.tick().await;
    proxy.count(&again, "c", 0.5);
    let points = proxy.get("/trace/plot?jobid=main&filter=c").await;
    let mut values: Vec<f64> = points.as_array().unwrap().iter().map(|point| point[1].as_f64().unwrap()).collect();
    values.dedup();
    assert_eq!(values, [5.0, 17.0, 18.5], "the last tick's point makes room for now");
    let of_run = proxy.get("/trace/plot?jobid=a&filter=c").await;
    let last = of_run.as_array().unwrap().last().unwrap()[1].as_f64();
    assert_eq!((of_run.as_array().unwrap().len(), last), (2, Some(2.5)), "a run begins at 0: {of_run}");
    proxy.leave(again).await;
    proxy.leave(beside).await;
    let list = proxy.get("/trace/list").await;
    let mut ids: Vec<&str> =
        list.as_array().unwrap().iter().map(|info| info["desc"]["jobid"].as_str().unwrap()).collect();
    ids.sort_unstable();
    let node = proxy.live.node_id();
    assert_eq!(ids, [&*node, "a", "b", "main"]);
}

#[tokio::test]
async fn older_runs_of_a_job_stay_and_so_do_all_over_a_restart() {
    let proxy = TestProxy::new();
    proxy.finished("a", "./app", 1, &[("c", 5.0)]).await;
    let first = proxy.live.runs.finished_one("a", None).unwrap();
    proxy.clock.pass(Duration::from_secs(61));
    seats::forget_old(&proxy.live).await;
    proxy.finished("a", "./app", 2, &[("c", 7.0)]).await;
    let proxy = proxy.restarted();
    let value = async |path: &str| {
        let profile = proxy.get(path).await;
        let counters = profile["counters"].as_array().unwrap();
        counters.iter().find(|counter| counter["name"] == "c").unwrap()["ctype"]["Counter"]["value"].as_f64().unwrap()
    };
    assert_eq!(value("/profiles/get?jobid=a").await, 7.0);
    assert_eq!(value(&format!("/profiles/get?jobid=a&start={}", first.desc.start_time)).await, 5.0);
    assert_eq!(proxy.get("/profiles").await.as_array().unwrap().len(), 1);
    assert_eq!(proxy.get("/profiles?runs=all").await.as_array().unwrap().len(), 2);
    assert_eq!(proxy.get("/profiles/points?jobid=a").await["c"], json!([[1, 5.0], [2, 7.0]]));
}

#[tokio::test]
async fn profiles_outlive_the_samples_that_they_came_from_and_go_when_they_are_old() {
    let proxy = TestProxy::new();
    proxy.finished("old", "./app", 1, &[("c", 5.0)]).await;
    proxy.live.state.db.flush().unwrap();
    let points = async |proxy: &TestProxy| {
        let points = proxy.get("/trace/plot?jobid=old&filter=c").await;
        points.as_array().unwrap().len()
    };
    assert_eq!(points(&proxy).await, 1);
    let samples = |proxy: &TestProxy| proxy.live.state.db.info().unwrap().samples;
    assert_eq!(samples(&proxy), 1);
    proxy.clock.pass(Duration::from_secs(5 * 3600));
    proxy.finished("new", "./app", 2, &[("d", 1.0)]).await;
    let db = proxy.live.state.db.clone();
    db.flush().unwrap();
    db.upkeep(&|| true).unwrap();
    assert_eq!(samples(&proxy), 1, "those of the old job are gone");
    let value = async |proxy: &TestProxy| {
        let profile = proxy.get("/profiles/get?jobid=old").await;
        profile["counters"].as_array().unwrap().iter().find(|counter| counter["name"] == "c").unwrap()["ctype"].clone()
    };
    let kept = json!({"Counter": {"ts": 0, "value": 5.0}});
    assert_eq!(value(&proxy).await, kept);
    assert_eq!(proxy.get("/trace/plot?jobid=old&filter=c").await[0][1], 5.0, "its last value is known");
    let proxy = proxy.restarted();
    assert_eq!(value(&proxy).await, kept);
    assert_eq!(
        proxy.live.table.find(proxy.live.main, "c").map(|reading| reading.value),
        Some(CounterValue::Counter(5.0))
    );
    proxy.clock.pass(Duration::from_secs(366 * 24 * 3600));
    seats::forget_old(&proxy.live).await;
    assert_eq!(proxy.refused("/profiles/get?jobid=old").await, "Failed to get old");
    let proxy = proxy.restarted();
    assert_eq!(proxy.get("/profiles").await, json!([]));
    assert_eq!(
        proxy.live.table.find(proxy.live.main, "c").map(|reading| reading.value),
        Some(CounterValue::Counter(5.0))
    );
}
