use super::*;

fn shown(log: &QueryLog) -> String {
    String::from_utf8(log.render(0)).unwrap()
}

fn start<'a>(log: &'a QueryLog, text: &str, second: i64) -> Running<'a> {
    log.start(text.to_owned(), Timestamp::from_seconds(second))
}

#[test]
fn a_query_runs_until_it_ended_or_was_given_up() {
    let log = QueryLog::default();
    let first = start(&log, "GET /api/query?a", 1);
    let second = start(&log, "GET /api/query?b", 2);
    let third = start(&log, "GET /api/query?c", 3);
    first.ended(StatusCode::OK, Timestamp::from_seconds(4));
    drop(second);
    assert_eq!(
        shown(&log),
        r#"{"running":[{"query":"GET /api/query?c","queryStartTimestamp":3000}],"completed":[{"query":"GET /api/query?b","queryStartTimestamp":2000,"queryCompletedTimestamp":2000,"sentToClient":false},{"query":"GET /api/query?a","queryStartTimestamp":1000,"queryCompletedTimestamp":4000,"sentToClient":true,"httpResponse":{"code":200}}]}"#
    );
    drop(third);
    assert!(shown(&log).starts_with(r#"{"running":[],"#));
    assert!(log.render(2).ends_with(br#","leftBehind":2}"#));
}

#[test]
fn the_latest_are_remembered_as_far_as_there_is_room_and_no_text_longer_than_its_limit() {
    let log = QueryLog::default();
    for number in 0..=ENDED_MAX {
        start(&log, &format!("query {number}."), 1).ended(StatusCode::OK, Timestamp::from_seconds(1));
    }
    let told = shown(&log);
    assert_eq!(told.matches("\"query\"").count(), ENDED_MAX);
    assert!(told.contains("query 100.") && told.contains("query 1.") && !told.contains("query 0."));

    let log = QueryLog::default();
    let _long = start(&log, &"é".repeat(TEXT_BYTES_MAX), 1);
    assert_eq!(shown(&log).matches('é').count(), TEXT_BYTES_MAX / 2);
}
