//! The pages at the addresses of Metric Proxy. They hold no data: their script asks for it, as anybody may.

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// A page of its own address.
struct ProxyPage {
    name: &'static str,
    title: &'static str,
    body: &'static str,
}

impl ProxyPage {
    const fn new(name: &'static str, title: &'static str) -> Self {
        Self { name, title, body: "" }
    }
}

const PAGES: [ProxyPage; 10] = [
    ProxyPage::new("index", "Metric Proxy"),
    ProxyPage::new("jobs", "Jobs"),
    ProxyPage::new("job_view", "Job"),
    ProxyPage::new("alarms", "Alarms"),
    ProxyPage::new("profiles", "Profiles"),
    ProxyPage::new("trace", "Trace"),
    ProxyPage::new("model", "Models"),
    ProxyPage::new("topology", "Proxy Topology"),
    ProxyPage { name: "doc", title: "API Documentation", body: include_str!("assets/doc.html") },
    // By this address parents find out that they talk to a proxy.
    ProxyPage { name: "is_admire_proxy", title: "A proxy", body: "<p>This is a proxy.</p>" },
];
const TEMPLATE: &str = include_str!("assets/page.html");
const STYLE: &str = include_str!("assets/page.css");
const SCRIPT: &str = include_str!("assets/page.js");
/// As of the built-in page: its own files, its own server, and no markup made of text.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
);

/// Every page but `/`, which is the built-in page's at the common port.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let files = Router::new()
        .route("/proxy_page.css", get(async || file("text/css; charset=utf-8", STYLE.to_owned())))
        .route("/proxy_page.js", get(async || file("text/javascript; charset=utf-8", SCRIPT.to_owned())));
    PAGES.iter().fold(files, |routes, page| {
        routes.route(&format!("/{}.html", page.name), get(async || file("text/html; charset=utf-8", document(page))))
    })
}

/// `/` of a port of the proxy's own.
pub fn root<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/", get(async || file("text/html; charset=utf-8", document(&PAGES[0]))))
}

/// The page by whose address parents find out that they talk to a proxy.
pub async fn mark() -> Response {
    file("text/html; charset=utf-8", document(&PAGES[PAGES.len() - 1]))
}

fn document(page: &ProxyPage) -> String {
    TEMPLATE.replace("{TITLE}", page.title).replace("{PAGE}", page.name).replace("{BODY}", page.body)
}

fn file(kind: &'static str, text: String) -> Response {
    let mut response = ([(header::CONTENT_TYPE, kind)], text).into_response();
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, POLICY);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_whole_and_asks_no_other_origin() {
        for page in &PAGES {
            let text = document(page);
            assert!(text.contains("<html>"), "{}: parents look for these letters", page.name);
            assert!(!text.contains('{') || page.name == "doc", "{}: a placeholder stayed", page.name);
            assert!(!text.contains("http://") && !text.contains("https://"), "{}", page.name);
        }
        for word in ["innerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!SCRIPT.contains(word), "{word}");
        }
    }
}
