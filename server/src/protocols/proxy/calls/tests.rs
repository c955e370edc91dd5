use super::*;

#[test]
fn calls_about_the_job_are_told_from_pages_and_those_that_ask_from_those_that_change() {
    let asks = [
        "/job",
        "/job/",
        "/job/list",
        "/joblist",
        "/metrics",
        "/metrics/ignored",
        "/alarms",
        "/alarms/list",
        "/trace/plot",
        "/profiles/get",
        "/percmd",
        "/get",
        "/model/download",
        "/queue/list",
        "/join/list",
        "/topo",
    ];
    for path in asks {
        assert_eq!(ProxyCall::of(path), Some(ProxyCall::Asks), "{path}");
    }
    let changes = [
        "/push",
        "/set",
        "/accumulate/",
        "/alarms/add",
        "/alarms/del/",
        "/join",
        "/join/multiple",
        "/pivot",
        "/leave",
        "/remove",
        "/disconnect",
        "/period",
    ];
    for path in changes {
        assert_eq!(ProxyCall::of(path), Some(ProxyCall::Changes), "{path}");
    }
    for path in ["/", "", "/index.html", "/jobs.html", "/is_admire_proxy.html", "/api/job", "/api/sql", "/jobs", "/q"] {
        assert_eq!(ProxyCall::of(path), None, "{path}");
    }
}
