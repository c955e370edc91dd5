use super::*;

#[test]
fn what_asks_goes_to_the_head_and_what_tells_stays() {
    let asks = [
        "/api/query",
        "/api/query/",
        "/api/query/last",
        "/api/query/gexp",
        "/api/v1/query",
        "/API/Query",
        "/grafana/api/query",
        "/grafana/api/suggest",
        "/dragon/api/query",
        "/dragon/api/suggest",
        "/api/search/lookup",
        "/api/suggest",
        "/api/sql",
        "/api/nodes",
        "/suggest",
        "/q",
    ];
    for path in asks {
        assert!(is_question(&Method::GET, path), "{path}");
    }
    let others = [
        "/",
        "/api",
        "/api/put",
        "/write",
        "/api/v2/write",
        "/api/v1/put",
        "/api/version",
        "/dragon/api/aggregators",
        "/dragon/api/reboot",
        "/api/stats",
        "/api/info",
        "/api/nodes/join",
        "/api/sql/more",
        "/query",
        "/sql",
    ];
    for path in others {
        assert!(!is_question(&Method::GET, path), "{path}");
    }
    assert!(!is_question(&Method::POST, "/api/nodes"));
    assert!(is_question(&Method::POST, "/api/sql"));
}
