//! Alarms through the API, over ticks and restarts.

use std::fs;

use telem_query::alarm::history::AlarmRise;

use super::super::testing::TestProxy;
use super::super::{ProxyOptions, alarms, seats};
use super::*;

async fn add(proxy: &TestProxy, name: &str, target: &str, metric: &str, rest: &str) -> (bool, String) {
    let body = format!(r#"{{"name": "{name}", "target": "{target}", "metric": "{metric}", {rest}}}"#);
    proxy.post("/alarms/add", &body).await
}

const ABOVE_5: &str = r#""operation": ">", "value": 5"#;

/// The names of the alarms of a job in an answer.
async fn names(proxy: &TestProxy, path: &str, job: &str) -> Vec<String> {
    let answer = proxy.get(path).await;
    let of_job = answer[job].as_array().unwrap_or_else(|| panic!("{job} is no key of {answer}"));
    of_job.iter().map(|alarm| alarm["name"].as_str().unwrap().to_owned()).collect()
}

fn rises(proxy: &TestProxy) -> Vec<String> {
    let all = AlarmRise::all(proxy.live.state.db.snapshot().meta());
    let show = |rise: AlarmRise| {
        let end = rise.ended.map_or("raised".to_owned(), |(_, end)| end.name().to_owned());
        format!("{} of {}: {} {} at {}, {end}", rise.alarm, rise.job, rise.metric, rise.condition, rise.value)
    };
    all.into_iter().map(show).collect()
}

#[tokio::test]
async fn an_alarm_is_defined_shown_and_deleted_in_the_words_of_the_original() {
    let proxy = TestProxy::new();
    let seat = proxy.join("j", "./app", 1).await;
    proxy.count(&seat, "c{a=\"1\"}", 4.0);
    proxy.set(&seat, "g", 7.0);
    assert_eq!(add(&proxy, "low", "j", "c{a=\\\"1\\\"}", ABOVE_5).await, (true, "alarm registered".into()));
    assert!(add(&proxy, "high", "main", "g", ABOVE_5).await.0);
    assert_eq!(names(&proxy, "/alarms", "j").await, [""; 0]);
    assert_eq!(names(&proxy, "/alarms", "main").await, ["high"], "it is looked at as soon as it is there");
    let shown = proxy.get("/alarms/list").await;
    let low = &shown["j"][0];
    assert_eq!(low["operator"], serde_json::json!({"More": 5.0}));
    assert_eq!((low["current"].as_f64(), low["active"].as_bool()), (Some(4.0), Some(false)));
    let pretty = low["pretty"].as_str().unwrap();
    assert!(pretty.starts_with("low : c{a=\"1\"} (a doc) = 17956") && pretty.ends_with(" 4 COUNTER > 5"), "{pretty}");
    assert_eq!(low.as_object().unwrap().len(), 6);
    let pretty = "high : g (a doc) = 7 (Min: 7, Max : 7, Hits: 1, Total : 7) GAUGE > 5";
    assert_eq!(shown["main"][0]["pretty"], pretty);

    for (name, target, metric, rest, expected) in [
        ("low", "j", "g", ABOVE_5, "Alarm low is already defined"),
        ("x", "j", "g", r#""operation": ">=", "value": 5"#, "No operator for >= only has = < and >"),
        ("x", "nobody", "g", ABOVE_5, "Failed to locate job nobody"),
        ("x", "j", "nothing", ABOVE_5, "No such key nothing cannot get it"),
        ("x", "j", "c{a=2}", ABOVE_5, "Failed to get in metric group"),
        ("x", "j", "g", r#""operation": ">""#, "error while parsing the JSON body"),
    ] {
        assert_eq!(add(&proxy, name, target, metric, rest).await, (false, expected.to_owned()));
    }
    let (_, why) = add(&proxy, "x", "j", "g", r#""operation": ">", "value": 5, "clear": 6"#).await;
    assert!(why.starts_with("\"clear\" is 6: expected a finite number"), "{why}");
    assert_eq!(proxy.refused("/alarms/add?name=x").await, "the request didn't have a JSON content type");
    assert_eq!(proxy.refused("/alarms/nosuch").await, "/alarms/nosuch");

    assert_eq!(proxy.refused("/alarms/del?name=x").await, "Missing 'name' GET parameter");
    let missing = "Failed to delete Failed to remove alarm x";
    assert_eq!(proxy.refused("/alarms/del?targetjob=j&name=x").await, missing);
    let nobody = "Failed to delete Failed to locate job nobody";
    assert_eq!(proxy.refused("/alarms/del?targetjob=nobody&name=x").await, nobody);
    let (_, why) = proxy.post("/alarms/del", "{}").await;
    assert_eq!(why, "Failed to parse json error while parsing the JSON body");
    assert_eq!(proxy.get("/alarms/del?targetjob=j&name=low").await["operation"], "Deleted low from j");
    let deleted = proxy.post("/alarms/del", r#"{"target": "main", "name": "high"}"#).await;
    assert_eq!(deleted, (true, "Deleted high from main".to_owned()));
    assert_eq!(names(&proxy, "/alarms/list", "main").await, [""; 0]);
    assert_eq!(rises(&proxy), ["high of main: g > 5 at 7, deletion"]);
}

#[tokio::test]
async fn an_alarm_is_watched_at_ticks_and_not_when_somebody_asks() {
    let proxy = TestProxy::new();
    let seat = proxy.join("j", "./app", 1).await;
    proxy.set(&seat, "g", 1.0);
    assert!(add(&proxy, "a", "main", "g", r#""operation": ">", "value": 5, "for": 2, "clear": 3"#).await.0);
    let shown = &proxy.get("/alarms/list").await["main"][0];
    assert_eq!((shown["for"].as_f64(), shown["clear"].as_f64()), (Some(2.0), Some(3.0)));
    for (value, raised) in [(6.0, 0), (6.0, 0), (7.0, 1), (4.0, 1), (3.0, 0), (6.0, 0), (f64::NAN, 0), (6.0, 0)] {
        proxy.set(&seat, "g", value);
        let before = names(&proxy, "/alarms", "main").await;
        assert_eq!(names(&proxy, "/alarms", "main").await, before);
        proxy.tick().await;
        assert_eq!(names(&proxy, "/alarms", "main").await.len(), raised, "{value}");
    }
    assert_eq!(rises(&proxy), ["a of main: g > 5 at 7, value"]);
    let rows = proxy.sql("SELECT job, node, alarm, metric, condition, value, ended_by FROM alarms").await;
    let text = serde_json::to_string(&rows).unwrap();
    for word in ["main", "n1", "\"a\"", "\"g\"", "> 5", "7", "value"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[tokio::test]
async fn a_restart_ends_no_alarm_and_raises_none_twice() {
    let proxy = TestProxy::new();
    let seat = proxy.join("j", "./app", 1).await;
    proxy.count(&seat, "c", 6.0);
    let holding = r#""operation": ">", "value": 5, "for": 3"#;
    assert!(add(&proxy, "now", "main", "c", ABOVE_5).await.0);
    assert!(add(&proxy, "later", "main", "c", holding).await.0);
    proxy.tick().await;
    assert_eq!(rises(&proxy), ["now of main: c > 5 at 6, raised"]);
    let proxy = proxy.restarted();
    assert_eq!(names(&proxy, "/alarms/list", "main").await.len(), 2);
    assert_eq!(names(&proxy, "/alarms", "main").await, ["now"], "before the first tick");
    proxy.tick().await;
    proxy.tick().await;
    let expected = ["now of main: c > 5 at 6, raised", "later of main: c > 5 at 6, raised"];
    assert_eq!(rises(&proxy), expected, "what held before the restart counts");
    assert!(proxy.get("/alarms/del?targetjob=main&name=now").await["success"].as_bool().unwrap());
    let proxy = proxy.restarted();
    assert_eq!(names(&proxy, "/alarms/list", "main").await, ["later"]);
}

#[tokio::test]
async fn the_alarms_of_a_job_end_with_it_and_stay_in_the_table() {
    let proxy = TestProxy::new();
    let seat = proxy.join("j", "./app", 1).await;
    proxy.count(&seat, "c", 6.0);
    assert!(add(&proxy, "a", "j", "c", ABOVE_5).await.0);
    proxy.tick().await;
    proxy.leave(seat).await;
    proxy.tick().await;
    assert_eq!(rises(&proxy), ["a of j: c > 5 at 6, raised"], "its job may go on");
    let seat = proxy.join("j", "./app", 1).await;
    proxy.tick().await;
    assert_eq!(names(&proxy, "/alarms", "j").await, ["a"]);
    proxy.leave(seat).await;
    proxy.clock.pass(Duration::from_secs(61));
    seats::forget_old(&proxy.live).await;
    proxy.tick().await;
    assert_eq!(rises(&proxy), ["a of j: c > 5 at 6, job"]);
    let ended = AlarmRise::all(proxy.live.state.db.snapshot().meta())[0].ended.unwrap().0;
    assert_eq!(ended, proxy.live.runs.finished_one("j", None).unwrap().end, "when its job ended");
    let proxy = proxy.restarted();
    let _seat = proxy.join("j", "./app", 1).await;
    assert_eq!(names(&proxy, "/alarms/list", "j").await, [""; 0]);
}

#[tokio::test]
async fn there_are_only_so_many() {
    let proxy = TestProxy::new();
    let seat = proxy.join("j", "./app", 1).await;
    proxy.count(&seat, "c", 1.0);
    let alarm = |name: String| {
        Alarm::new(AlarmDefinition {
            name,
            target: "j".to_owned(),
            metric: "c".to_owned(),
            condition: AlarmCondition::More(5.0),
            hold_s: 0.0,
            clear: None,
        })
    };
    *lock(&proxy.parts.alarms.alarms) = (1..ALARMS_MAX).map(|number| alarm(number.to_string())).collect();
    assert!(add(&proxy, "last", "j", "c", ABOVE_5).await.0);
    let (_, why) = add(&proxy, "more", "j", "c", ABOVE_5).await;
    assert_eq!(why, "there are 1000 alarms, and there can be no more; delete one");
}

#[tokio::test]
async fn the_command_of_an_alarm_is_told_what_happened() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("told");
    let command = format!(
        "echo \"$TELEM_ALARM|$TELEM_ALARM_STATE|$TELEM_ALARM_JOB|$TELEM_ALARM_METRIC|$TELEM_ALARM_CONDITION|\
         $TELEM_ALARM_VALUE\" >> {}",
        file.display()
    );
    let options =
        ProxyOptions { on_alarm: Some(command), period: Duration::from_millis(20), ..ProxyOptions::default() };
    let proxy = TestProxy::with(options);
    let seat = proxy.join("j", "./app", 1).await;
    proxy.set(&seat, "g", 6.0);
    let told = async |lines: usize| {
        let until = tokio::time::Instant::now() + Duration::from_secs(30);
        loop {
            let text = fs::read_to_string(&file).unwrap_or_default();
            if text.lines().count() == lines {
                return text;
            }
            assert!(tokio::time::Instant::now() < until, "{text}");
            tokio::task::yield_now().await;
        }
    };
    let script = async {
        assert!(add(&proxy, "it's $(hot)", "j", "g", ABOVE_5).await.0);
        let first = told(1).await;
        proxy.set(&seat, "g", 5.0);
        (first, told(2).await)
    };
    let (first, second) = tokio::select! {
        told = script => told,
        () = alarms::watch(Arc::clone(&proxy.live), Arc::clone(&proxy.parts.alarms)) => panic!("it watches for ever"),
    };
    assert_eq!(first, "it's $(hot)|raised|j|g|> 5|6\n");
    assert_eq!(second.lines().last(), Some("it's $(hot)|cleared|j|g|> 5|5"));
}

#[tokio::test]
async fn an_alarm_that_comes_and_goes_does_not_fill_the_database() {
    let proxy = TestProxy::new();
    let seat = proxy.join("j", "./app", 1).await;
    proxy.set(&seat, "g", 6.0);
    let rise = AlarmRise {
        node: "n1".into(),
        job: "j".into(),
        alarm: "earlier".to_owned(),
        metric: "g".to_owned(),
        condition: "> 1".to_owned(),
        value: 2.0,
        raised: Timestamp::from_micros(0),
        ended: None,
    };
    for at in 1..=RISES_MAX as i64 {
        let raised = Timestamp::from_micros(at);
        let ended = Some((raised, AlarmEnd::Value));
        let earlier = AlarmRise { raised, ended, ..rise.clone() };
        proxy.live.state.db.put_meta(earlier.change(), Durability::Buffered).unwrap();
    }
    assert!(add(&proxy, "now", "j", "g", ABOVE_5).await.0);
    let known = AlarmRise::all(proxy.live.state.db.snapshot().meta());
    assert_eq!((known.len(), known[0].raised.micros()), (RISES_MAX, 2));
    assert_eq!(known.last().unwrap().alarm, "now");
}
