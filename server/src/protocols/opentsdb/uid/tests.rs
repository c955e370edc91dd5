use axum::body::Body;
use telem_engine::Value;

use super::*;
use crate::testing::Served;

async fn get(served: &Served, path: &str) -> String {
    let answer = served.get(path).await;
    format!("{} {}", answer.status, answer.text())
}

async fn send(served: &Served, method: &str, path: &str, body: &'static str) -> String {
    let request = Request::builder().method(method).uri(path).body(Body::from(body)).unwrap();
    let answer = served.ask(request).await;
    format!("{} {}", answer.status, answer.text())
}

fn exact() -> Served {
    Served::with(|state| state.fidelity = Fidelity::OpenTsdb)
}

#[tokio::test]
async fn names_are_assigned_once_and_each_has_a_number_of_its_own() {
    let served = exact();
    assert_eq!(
        get(&served, "/api/uid/assign?metric=b,a&tagk=k").await,
        r#"200 {"metric":{"a":"FFFFFE","b":"FFFFFF"},"tagk":{"k":"FFFFFF"}}"#
    );
    assert_eq!(
        get(&served, "/api/uid/assign?metric=a,c").await,
        r#"400 {"metric":{"c":"FFFFFD"},"metric_errors":{"a":"Name already exists with UID: FFFFFE"}}"#
    );
    let body = r#"{"metric":["d"],"tagk":[],"tagv":["v"],"other":["x"]}"#;
    assert_eq!(
        send(&served, "POST", "/api/uid/assign", body).await,
        r#"200 {"metric":{"d":"FFFFFC"},"tagk":{},"tagv":{"v":"FFFFFF"}}"#
    );
    assert_eq!(
        get(&served, "/api/uid/assign?tagv=,a%20b").await,
        r#"400 {"tagv":{},"tagv_errors":{"":"Invalid tagv: empty string","a b":"Invalid tagv (\"a b\"): illegal character:  "}}"#
    );
    for (method, path, body, text) in [
        ("GET", "/api/uid/assign", "", "Missing values to assign UIDs"),
        ("GET", "/api/uid/assign?metric=", "", "Missing values to assign UIDs"),
        ("POST", "/api/uid/assign", "{}", "Missing values to assign UIDs"),
        ("POST", "/api/uid/assign", "", "Missing message content"),
        ("POST", "/api/uid/assign", "[]", "Unable to parse the given JSON"),
    ] {
        let answer = send(&served, method, path, body).await;
        assert!(answer.starts_with("400 ") && answer.contains(text), "{method} {path}: {answer}");
    }
}

#[tokio::test]
async fn an_assigned_name_is_known_wherever_names_are_asked_for_and_nothing_is_found_under_it() {
    let served = exact();
    served.store("m.used", &[("host", "a")], &[(1_356_998_400, Value::Int(1))]);
    get(&served, "/api/uid/assign?metric=m.b,m.z&tagk=rack&tagv=r1").await;
    for (path, expected) in [
        ("/api/suggest?type=metrics&q=m.", r#"200 ["m.b","m.used","m.z"]"#),
        ("/api/suggest?type=metrics&q=m.&max=2", r#"200 ["m.b","m.used"]"#),
        ("/api/suggest?type=tagk", r#"200 ["host","rack"]"#),
        ("/api/suggest?type=tagv&q=r", r#"200 ["r1"]"#),
        ("/api/query?start=1356998400&m=sum:m.b", "200 []"),
        ("/api/query?start=1356998400&m=sum:m.used%7Brack=*%7D", "200 []"),
        ("/api/query/last?timeseries=m.b", "200 []"),
        (
            "/api/uid/uidmeta?type=metric&uid=fffffe",
            r#"200 {"uid":"FFFFFE","type":"METRIC","name":"m.z","description":"","notes":"","created":0,"custom":null,"displayName":""}"#,
        ),
        (
            "/api/uid/uidmeta?type=tagk&uid=000001",
            r#"200 {"uid":"000001","type":"TAGK","name":"host","description":"","notes":"","created":0,"custom":null,"displayName":""}"#,
        ),
    ] {
        assert_eq!(get(&served, path).await, expected, "{path}");
    }
    let lookup = get(&served, "/api/search/lookup?m=m.b").await;
    assert!(
        lookup.starts_with("200 ") && lookup.ends_with(r#""results":[],"startIndex":0,"totalResults":0}"#),
        "{lookup}"
    );
    // Notes on nothing but the time do not come across them.
    assert_eq!(get(&served, "/api/annotations?start_time=1").await, "200 []");
    let gone =
        send(&served, "DELETE", "/api/annotation/bulk", r#"{"startTime":"1","endTime":"2","global":true}"#).await;
    assert!(gone.ends_with(r#""totalDeleted":0}"#), "{gone}");
    // With its first series it has a number as every other.
    served.store("m.b", &[("host", "a")], &[(1_356_998_400, Value::Int(1))]);
    assert!(get(&served, "/api/uid/uidmeta?type=metric&uid=2").await.contains(r#""name":"m.b""#));
    assert_eq!(get(&served, "/api/suggest?type=metrics&q=m.b").await, r#"200 ["m.b"]"#);
}

#[tokio::test]
async fn a_name_is_renamed_as_long_as_no_series_carries_it() {
    let served = exact();
    served.store("used", &[("host", "a")], &[(1_356_998_400, Value::Int(1))]);
    get(&served, "/api/uid/assign?metric=a,b").await;
    assert_eq!(
        send(&served, "POST", "/api/uid/rename", r#"{"metric":"a","name":"c"}"#).await,
        r#"200 {"result":"true"}"#
    );
    assert_eq!(get(&served, "/api/uid/rename?metric=b&name=d").await, r#"200 {"result":"true"}"#);
    assert_eq!(get(&served, "/api/suggest?type=metrics").await, r#"200 ["c","d","used"]"#);
    assert!(get(&served, "/api/uid/uidmeta?type=metric&uid=FFFFFF").await.contains(r#""name":"c""#));
    for (body, error) in [
        (r#"{"metric":"nope","name":"x"}"#, r#"Name(\"nope\") does not exist"#),
        (r#"{"metric":"c","name":"d"}"#, "'d' already has the UID FFFFFE"),
        (r#"{"metric":"c","name":"used"}"#, "'used' already has the UID 000001"),
        (r#"{"metric":"used","name":"x"}"#, "'used' is carried by series"),
        (r#"{"metric":"c","name":"a b"}"#, "illegal character"),
        (r#"{"metrik":"c","name":"x"}"#, "Unknown type name"),
    ] {
        let answer = send(&served, "POST", "/api/uid/rename", body).await;
        assert!(answer.starts_with(r#"400 {"result":"false","error":""#) && answer.contains(error), "{body}: {answer}");
    }
    for body in [r#"{"metric":"c"}"#, r#"{"name":"x"}"#, "{}"] {
        let answer = send(&served, "POST", "/api/uid/rename", body).await;
        assert!(answer.contains("Missing necessary values to rename UID"), "{body}: {answer}");
    }
}

#[tokio::test]
async fn a_question_for_the_metadata_of_a_name_that_makes_no_sense_is_refused_with_the_reason() {
    let served = exact();
    let nobody = get(&served, "/api/uid/uidmeta?type=metric&uid=000005").await;
    assert!(nobody.starts_with("404 ") && nobody.contains("Could not find the requested UID"), "{nobody}");
    for (path, status, text) in [
        ("type=metric", "400", "Missing parameter <code>uid</code>"),
        ("uid=1", "400", "Missing parameter <code>type</code>"),
        ("uid=1&type=x", "500", "Invalid type requested: x"),
        ("uid=zz&type=tagv", "500", "holds more than hexadecimal digits"),
        ("uid=1&type=x&exact=false", "400", "Invalid type requested: x"),
    ] {
        let answer = get(&served, &format!("/api/uid/uidmeta?{path}")).await;
        assert!(answer.starts_with(status) && answer.contains(text), "{path}: {answer}");
    }
}

#[tokio::test]
async fn what_is_told_about_a_name_is_merged_by_post_replaced_by_put_and_gone_when_deleted() {
    let served = exact();
    served.store("m", &[("host", "a")], &[(1_356_998_400, Value::Int(1))]);
    get(&served, "/api/uid/assign?tagk=rack").await;
    let path = "/api/uid/uidmeta";
    let shown = |description: &str, notes: &str, custom: &str, display_name: &str| {
        format!(
            r#"200 {{"uid":"000001","type":"METRIC","name":"m","description":"{description}","notes":"{notes}","created":0,"custom":{custom},"displayName":"{display_name}"}}"#
        )
    };
    let first = r#"{"uid":"000001","type":"metric","description":"d","custom":{"uid":"x","owner":"y"}}"#;
    let custom = r#"{"owner":"y","uid":"x"}"#;
    assert_eq!(send(&served, "POST", path, first).await, shown("d", "", custom, ""));
    let second = r#"{"uid":"1","type":"metrics","notes":"n","displayName":"M","description":""}"#;
    assert_eq!(send(&served, "POST", path, second).await, shown("d", "n", custom, "M"));
    assert_eq!(get(&served, "/api/uid/uidmeta?type=metric&uid=000001").await, shown("d", "n", custom, "M"));
    assert_eq!(send(&served, "POST", path, r#"{"uid":"000001","type":"metric"}"#).await, "304 ");
    let replaced = "/api/uid/uidmeta?uid=000001&type=metric&notes=o&method_override=put";
    assert_eq!(get(&served, replaced).await, shown("", "o", "null", ""));
    assert_eq!(send(&served, "DELETE", "/api/uid/uidmeta?uid=000001&type=metric", "").await, "204 ");
    assert_eq!(get(&served, "/api/uid/uidmeta?type=metric&uid=000001").await, shown("", "", "null", ""));
    // A name that was assigned keeps its number.
    let told = send(&served, "POST", path, r#"{"uid":"FFFFFF","type":"tagk","notes":"where"}"#).await;
    assert!(told.contains(r#""name":"rack","description":"","notes":"where""#), "{told}");
    assert_eq!(send(&served, "DELETE", path, r#"{"uid":"FFFFFF","type":"tagk"}"#).await, "204 ");
    assert!(
        get(&served, "/api/uid/uidmeta?type=tagk&uid=FFFFFF")
            .await
            .contains(r#""name":"rack","description":"","notes":"""#)
    );
    for (method, body, status, text) in [
        ("POST", r#"{"type":"metric","notes":"n"}"#, "400", "Missing UID"),
        ("PUT", r#"{"uid":"000001","notes":"n"}"#, "400", "Missing type"),
        ("DELETE", r#"{"uid":"000001"}"#, "400", "Unable to delete UIDMeta information"),
        ("POST", r#"{"uid":"000001","type":"x"}"#, "400", "Unable to parse the given JSON"),
        ("POST", "{", "400", "Unable to parse the given JSON"),
        ("POST", "", "400", "Missing parameter <code>uid</code>"),
        ("POST", r#"{"uid":"000009","type":"metric","notes":"n"}"#, "404", "Could not find the requested UID"),
        ("DELETE", r#"{"uid":"000009","type":"metric"}"#, "404", "Could not find the requested UID"),
    ] {
        let answer = send(&served, method, path, body).await;
        assert!(answer.starts_with(status) && answer.contains(text), "{method} {body}: {answer}");
    }
}

#[tokio::test]
async fn metadata_of_a_series_is_that_of_an_opentsdb_that_tracks_none_or_what_telem_knows() {
    let served = exact();
    served.store("m", &[("host", "a")], &[(1_356_998_400, Value::Int(1))]);
    let none = r#"404 {"error":{"code":404,"message":"Could not find Timeseries meta data"}}"#;
    let number = "/api/uid/tsmeta?tsuid=000001000001000001";
    assert_eq!(get(&served, number).await, none);
    assert_eq!(get(&served, "/api/uid/tsmeta?m=m").await, "200 []");
    let name = |uid: &str, kind: &str, name: &str| {
        format!(
            r#"{{"uid":"{uid}","type":"{kind}","name":"{name}","description":"","notes":"","created":0,"custom":null,"displayName":""}}"#
        )
    };
    let series = format!(
        r#"{{"tsuid":"000001000001000001","metric":{},"tags":[{},{}],"description":"","notes":"","created":0,"units":"","retention":0,"max":"NaN","min":"NaN","displayName":"","dataType":"","lastReceived":1356998400,"totalDatapoints":0}}"#,
        name("000001", "METRIC", "m"),
        name("000001", "TAGK", "host"),
        name("000001", "TAGV", "a")
    );
    assert_eq!(get(&served, &format!("{number}&exact=false")).await, format!("200 {series}"));
    assert_eq!(get(&served, "/api/uid/tsmeta?m=m%7Bhost=a%7D&exact=false").await, format!("200 [{series}]"));
    for (query, status, text) in [
        ("tsuid=000009000001000001&exact=false", "404", "Could not find Timeseries meta data"),
        ("tsuid=zz&exact=false", "400", "begin 0, end 6, length 2"),
        ("m=nope", "404", "Unable to find one or more UIDs"),
        ("m=m%7Bhost", "400", "Missing '}' at the end of: m{host"),
        ("", "400", "Missing parameter <code>m</code>"),
    ] {
        let answer = get(&served, &format!("/api/uid/tsmeta?{query}")).await;
        assert!(answer.starts_with(status) && answer.contains(text), "{query}: {answer}");
    }
    let body = r#"{"tsuid":"000001000001000001","notes":"n"}"#;
    for method in ["POST", "PUT"] {
        let answer = send(&served, method, "/api/uid/tsmeta", body).await;
        assert!(answer.starts_with("400 ") && answer.contains("Requested TSMeta did not exist"), "{answer}");
    }
    assert_eq!(send(&served, "DELETE", "/api/uid/tsmeta", body).await, "204 ");
    assert!(send(&served, "POST", "/api/uid/tsmeta", "{").await.contains("Unable to parse the given JSON"));
}

#[tokio::test]
async fn a_database_that_is_served_read_only_assigns_nothing() {
    // The writer lives on: with it goes the database.
    let mut writer = None;
    let served = Served::with(|state| writer = state.writer.take());
    served.store("m", &[("host", "a")], &[(1_356_998_400, Value::Int(1))]);
    let described = "/api/uid/uidmeta?uid=1&type=metric&notes=n&method_override=post";
    for path in ["/api/uid/assign?metric=a", "/api/uid/rename?metric=a&name=b", described] {
        let answer = get(&served, path).await;
        assert!(answer.starts_with("403 ") && answer.contains("read-only"), "{answer}");
    }
}

#[tokio::test]
async fn names_are_assigned_up_to_a_limit_and_the_ones_beyond_are_told() {
    let served = Served::new();
    let names =
        |from: usize, count: usize| (from..from + count).map(|at| format!("m{at}")).collect::<Vec<_>>().join(",");
    let beyond = get(&served, &format!("/api/uid/assign?metric={}", names(0, NAMES_MAX + 1))).await;
    assert_eq!(beyond, r#"400 {"error":{"code":400,"message":"more than 1000 names of kind metric in one request"}}"#);
    for at in 0..names::NOTED_MAX / NAMES_MAX {
        let answer = get(&served, &format!("/api/uid/assign?metric={}", names(at * NAMES_MAX, NAMES_MAX))).await;
        assert!(answer.starts_with("200 "), "{answer}");
    }
    let answer = get(&served, "/api/uid/assign?tagk=one").await;
    assert!(answer.starts_with(r#"400 {"tagk":{},"tagk_errors":{"one":"10000 names are assigned"#), "{answer}");
    let many = get(&served, "/api/suggest?type=metrics&q=m&max=20000").await;
    assert_eq!(many.matches("\"m").count(), names::NOTED_MAX);
}
