use axum::http::HeaderMap;

use super::*;

fn judge(list: &str, origin: Option<&'static str>) -> Verdict {
    let mut headers = HeaderMap::new();
    if let Some(origin) = origin {
        headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
    }
    if list.is_empty() { Cors::default().judge(&headers) } else { Cors::parse(list).unwrap().judge(&headers) }
}

fn admitted(origin: &'static str) -> Verdict {
    Verdict::Admitted(HeaderValue::from_static(origin))
}

#[test]
fn pages_of_the_origins_that_are_named_may_ask_whatever_their_case() {
    let list = "http://Grafana.example:3000, https://b.example";
    assert_eq!(judge(list, Some("http://grafana.example:3000")), admitted("http://grafana.example:3000"));
    assert_eq!(judge(list, Some("HTTPS://B.example")), admitted("HTTPS://B.example"));
    let refused = Verdict::Refused { origin: "http://grafana.example".to_owned() };
    assert_eq!(judge(list, Some("http://grafana.example")), refused);
    assert_eq!(judge("*", Some("http://any.example")), admitted("http://any.example"));
}

#[test]
fn what_names_no_page_is_not_judged_and_neither_is_anything_when_nobody_is_named() {
    assert_eq!(judge("*", None), Verdict::NoPage);
    assert_eq!(judge("*", Some("")), Verdict::NoPage);
    assert_eq!(judge("", Some("http://any.example")), Verdict::NoPage);
}

#[test]
fn a_list_that_makes_no_sense_is_refused_with_the_reason() {
    for (list, why) in [
        ("", "names no origin"),
        (" , ", "names no origin"),
        ("*,http://a", "contains * and origins"),
        ("grafana.example", "'grafana.example' is not an origin"),
        ("http://a/path", "'http://a/path' is not an origin"),
        ("http://", "is not an origin"),
    ] {
        let told = Cors::parse(list).unwrap_err();
        assert!(told.contains(why), "{list}: {told}");
    }
    assert!(Cors::parse(&vec!["http://a"; 1_000].join(",")).is_ok());
    assert!(Cors::parse(&vec!["http://a"; 1_001].join(",")).is_err());
}

#[test]
fn what_is_named_is_shown() {
    assert_eq!(Cors::default().list(), "");
    assert_eq!(Cors::parse("*").unwrap().list(), "*");
    assert_eq!(Cors::parse("http://a, http://B").unwrap().list(), "http://a,http://b");
}
