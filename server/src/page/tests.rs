//! What browsers get of the shell.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path as FilePath;

use axum::body::Body;
use axum::extract::Request;
use axum::http::Method;
use flate2::read::GzDecoder;

use super::files::{FILES, INDEX};
use super::{PLACEHOLDER, PageShell, is_for_the_shell, lean};
use crate::testing::Served;

fn asking(path: &str, header: (&str, &str)) -> Request<Body> {
    Request::get(path).header(header.0, header.1).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn the_document_names_files_that_are_served_and_kept_for_ever() {
    let served = Served::new();
    let document = served.get("/").await;
    assert_eq!((document.status, document.header("content-type")), (200, "text/html; charset=UTF-8"));
    assert_eq!(document.header("cache-control"), "no-cache");
    let policy = document.header("content-security-policy");
    for part in ["default-src 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!document.text().contains(PLACEHOLDER));
    let hash = PageShell::default().hash;
    assert!(document.text().contains(&format!("page/{hash}/app.js")), "{}", document.text());
    for file in FILES {
        let answer = served.get(&format!("/page/{hash}/{}", file.name)).await;
        assert_eq!((answer.status, answer.text()), (200, &*lean(file.text)), "{}", file.name);
        assert_eq!(answer.header("content-type"), file.media);
        assert!(answer.header("cache-control").contains("immutable"));
    }
    let other = served.get("/page/0123456789ab/app.js").await;
    assert_eq!(other.status, 404);
    assert!(other.text().contains("load / again"), "{}", other.text());
    assert_eq!(served.get(&format!("/page/{hash}/nothing.js")).await.status, 404);
}

#[tokio::test]
async fn a_document_that_a_browser_has_is_not_sent_again() {
    let served = Served::new();
    let tag = served.get("/").await.header("etag").to_owned();
    let again = served.ask(asking("/", ("if-none-match", &tag))).await;
    assert_eq!((again.status, again.body.len()), (304, 0));
    let changed = served.ask(asking("/", ("if-none-match", "\"of another\""))).await;
    assert_eq!(changed.status, 200);
}

#[tokio::test]
async fn who_takes_gzip_gets_it_and_nobody_else() {
    let served = Served::new();
    let packed = served.ask(asking("/", ("accept-encoding", "br, gzip;q=0.5"))).await;
    assert_eq!(packed.header("content-encoding"), "gzip");
    let mut plain = String::new();
    GzDecoder::new(&*packed.body).read_to_string(&mut plain).unwrap();
    assert_eq!(plain, served.get("/").await.text());
    assert_eq!(served.ask(asking("/", ("accept-encoding", "gzip;q=0"))).await.text(), plain);
}

#[tokio::test]
async fn head_tells_what_get_would() {
    let served = Served::new();
    let answer = served.ask(Request::head("/").body(Body::empty()).unwrap()).await;
    assert_eq!((answer.status, answer.body.len()), (200, 0));
    assert_eq!(answer.header("content-type"), "text/html; charset=UTF-8");
}

/// A file that nobody named would be missing from the binary.
#[test]
fn every_file_of_the_folder_is_in_the_binary() {
    let folder = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("src/page/assets");
    let stand: BTreeSet<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let named = FILES.iter().map(|file| file.name.to_owned()).chain(["index.html".to_owned()]);
    assert_eq!(stand, named.collect());
}

/// Below the path of a proxy an address from the root would miss the page.
#[test]
fn the_document_names_only_files_below_its_own_path() {
    let mut named = BTreeSet::new();
    for attribute in ["href=\"", "src=\""] {
        for address in INDEX.split(attribute).skip(1).filter_map(|rest| rest.split('"').next()) {
            match address.strip_prefix("page/{HASH}/") {
                Some(name) => {
                    named.insert(name.to_owned());
                }
                None => assert!(address.starts_with("data:") || address.starts_with('#'), "{address}"),
            }
        }
    }
    let files: BTreeSet<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
    assert!(named.is_subset(&files), "{named:?}");
    assert!(named.contains("style.css") && named.contains("app.js"), "{named:?}");
}

#[test]
fn comments_stay_in_the_source_and_every_line_of_code_is_served() {
    let text = "// What it does.\nlet a = 1; // and why\n  /** One. */\n\n/*\n kept\n*/\nlet url = `http://x`;\n";
    assert_eq!(lean(text), "let a = 1; // and why\n/*\nkept\n*/\nlet url = `http://x`;\n");
    // Text of several lines could have one that looks like a comment.
    for file in FILES.iter().filter(|file| file.name.ends_with(".js")) {
        let odd = file.text.lines().filter(|line| line.matches('`').count() % 2 == 1).count();
        assert_eq!(odd, 0, "{} has a text of several lines", file.name);
    }
}

#[test]
fn only_reading_the_shell_is_for_everybody() {
    for path in ["/", "/page/0123456789ab/app.js", "/page/"] {
        assert!(is_for_the_shell(&Method::GET, path) && is_for_the_shell(&Method::HEAD, path), "{path}");
        assert!(!is_for_the_shell(&Method::POST, path), "{path}");
    }
    for path in ["/api/page", "/api/panels", "/page", "//", "/api/../page/x", "/q"] {
        assert!(!is_for_the_shell(&Method::GET, path), "{path}");
    }
}
