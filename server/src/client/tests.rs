//! Addresses, refusals, and answers that never end.

use axum::Router;
use axum::routing::{get, post};
use tokio::net::TcpListener;

use super::*;
use crate::http::ApiError;

#[test]
fn addresses_are_urls_and_socket_paths() {
    let at = |tls, authority: &str, prefix: &str| Address::Tcp {
        tls,
        authority: authority.to_owned(),
        prefix: prefix.to_owned(),
    };
    let tcp = |authority, prefix| at(false, authority, prefix);
    for (text, expected) in [
        ("http://127.0.0.1:4242", tcp("127.0.0.1:4242", "")),
        ("http://node7:4242/", tcp("node7:4242", "")),
        ("http://[::1]:4242/telem/", tcp("[::1]:4242", "/telem")),
        ("http://node7", tcp("node7:80", "")),
        ("https://node7", at(true, "node7:443", "")),
        ("https://[fd00::1]:4242", at(true, "[fd00::1]:4242", "")),
        ("unix:/run/a.sock", Address::Unix("/run/a.sock".into())),
        ("unix:///run/a.sock", Address::Unix("/run/a.sock".into())),
    ] {
        assert!(Address::is_meant(text));
        assert_eq!(Address::parse(text).unwrap(), expected, "{text}");
    }
    for bad in ["unix:", "http://", "https://", "ftp://x"] {
        assert!(Address::parse(bad).is_err(), "{bad}");
    }
    for directory in ["./trial", "/data/http", "trial", "C:"] {
        assert!(!Address::is_meant(directory), "{directory}");
    }
}

async fn server(router: Router) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address =
        Address::Tcp { tls: false, authority: listener.local_addr().unwrap().to_string(), prefix: String::new() };
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = hyper_util::service::TowerToHyperService::new(router.clone());
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

#[tokio::test]
async fn a_question_goes_out_with_the_token_and_the_answer_comes_back() {
    let router = Router::new().route(
        "/echo",
        post(|request: axum::extract::Request| async move {
            let token = request.headers()["authorization"].to_str().unwrap().to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            format!("{token}|{}", String::from_utf8_lossy(&body))
        }),
    );
    let client = Client::with_token(server(router).await, Some("secret"));
    let answer = client.post("/echo", Bytes::from("SELECT 1")).await.unwrap().read(1 << 20).await.unwrap();
    assert_eq!(answer, b"Bearer secret|SELECT 1");
    assert!(!format!("{client:?}").contains("secret"), "no log shows the token");
}

#[tokio::test]
async fn a_refusal_says_what_the_server_said() {
    let router = Router::new().route("/no", get(|| async { ApiError::new(StatusCode::BAD_REQUEST, "not like this") }));
    let client = Client::with_token(server(router).await, None);
    let refusal = client.get("/no").await.unwrap_err();
    assert!(matches!(&refusal, ClientError::Refused { status, .. } if status.as_u16() == 400));
    assert!(refusal.to_string().starts_with("not like this ("), "{refusal}");
}

#[tokio::test]
async fn who_is_no_telem_or_speaks_no_tls_is_told_so() {
    let router = Router::new()
        .route("/page", get(|| async { (StatusCode::NOT_FOUND, "<!DOCTYPE HTML>\n<html>") }))
        .route("/empty", get(|| async { StatusCode::NOT_FOUND }));
    let address = server(router).await;
    let refused = async |address: &Address, path: &str| {
        Client::with_token(address.clone(), None).get(path).await.unwrap_err().to_string()
    };
    let said = refused(&address, "/page").await;
    assert!(said.starts_with("it says '<!DOCTYPE HTML>', which no telem does; name the address that"), "{said}");
    let said = refused(&address, "/empty").await;
    assert!(said.starts_with("it is no telem; name the address that telem prints"), "{said}");

    let Address::Tcp { authority, prefix, .. } = address else { panic!("it listens on TCP") };
    let said = refused(&Address::Tcp { tls: true, authority, prefix }, "/page").await;
    assert!(said.contains(" speaks no TLS; ") && said.contains("write http://"), "{said}");
}

#[tokio::test]
async fn an_answer_without_its_end_is_an_error() {
    let cut = || async {
        let chunks = futures::stream::iter([Ok("half"), Err(io::Error::other("the query failed"))]);
        crate::http::streamed(chunks)
    };
    let client = Client::with_token(server(Router::new().route("/cut", get(cut))).await, None);
    // Where the end comes early, not even the head was sent.
    let broken = async { client.get("/cut").await?.read(1 << 20).await }.await.unwrap_err();
    assert!(matches!(broken, ClientError::Broken { .. }), "{broken}");
}

#[tokio::test]
async fn a_server_that_hangs_is_waited_for_as_long_as_was_said() {
    // Nobody accepts: the system connects, and no answer ever comes.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address =
        Address::Tcp { tls: false, authority: listener.local_addr().unwrap().to_string(), prefix: String::new() };
    let silence = Duration::from_millis(20);
    let silent = Client::with_token(address, None).with_silence(silence).get("/").await.unwrap_err();
    assert!(matches!(silent, ClientError::Silent { after, .. } if after == silence), "{silent}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    drop(listener);
    let client =
        Client::with_token(Address::Tcp { tls: false, authority: authority.clone(), prefix: String::new() }, None);
    let error = client.get("/").await.unwrap_err().to_string();
    assert!(error.contains(&authority) && error.contains("is the server running?"), "{error}");
}
