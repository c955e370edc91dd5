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
/// Modules, by the names under which they import each other.
const SCRIPTS: [(&str, &str); 3] = [
    ("/proxy_page.js", include_str!("assets/page.js")),
    ("/proxy_parts.js", include_str!("assets/parts.js")),
    ("/proxy_chart.js", include_str!("assets/chart.js")),
];
/// As of the built-in page: its own files, its own server, and no markup made of text.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
);

/// Every page but `/`, which is the built-in page's at the common port.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let style = Router::new().route("/proxy_page.css", get(async || file("text/css; charset=utf-8", STYLE.to_owned())));
    let files = SCRIPTS.iter().fold(style, |routes, (path, text)| {
        routes.route(path, get(async || file("text/javascript; charset=utf-8", (*text).to_owned())))
    });
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
        for (path, script) in SCRIPTS {
            for word in ["innerHTML", "insertAdjacentHTML", "document.write", "eval("] {
                assert!(!script.contains(word), "{path}: {word}");
            }
        }
    }

    #[test]
    fn the_documentation_names_every_address_of_the_api() {
        let documentation = include_str!("assets/doc.html");
        for path in [
            "job",
            "job/list",
            "metrics",
            "push",
            "set",
            "accumulate",
            "alarms",
            "alarms/list",
            "alarms/add",
            "alarms/del",
            "profiles",
            "profiles/percmd",
            "profiles/get",
            "profiles/points",
            "profiles/extrap",
            "model/get",
            "model/plot",
            "model/download",
            "model/ftio",
            "trace/list",
            "trace/metrics",
            "trace/read",
            "trace/plot",
            "trace/json",
            "trace/size",
            "trace/ftio",
            "queue/list",
            "queue/model",
            "join",
            "join/list",
            "join/multiple",
            "pivot",
            "topo",
            "leave",
            "period",
            "remove",
            "disconnect",
            "joblist",
            "percmd",
            "get",
        ] {
            let is_named = |end: char| documentation.contains(&format!("/{path}{end}"));
            assert!(['<', '?', ',', ' ', '.'].into_iter().any(is_named), "/{path}");
        }
        assert!(documentation.contains("COMMENT"), "of which /queue/model makes the command");
    }
}
