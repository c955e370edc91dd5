//! OpenTSDB's API where the wire and the command line matter: bodies in chunks, pages of other origins.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::process::{PATIENCE, Server};

#[test]
fn a_body_in_chunks_is_taken_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(&dir.path().join("db"), &[]);
    let body = r#"[{"metric":"m","timestamp":1356998400,"value":1,"tags":{"host":"a"}}]"#;
    for size in [1, 10, body.len()] {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = "POST /api/put?details&sync&sync_timeout=60000 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
        let mut sent = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
        for chunk in body.as_bytes().chunks(size) {
            write!(sent, "{:x}\r\n", chunk.len()).unwrap();
            sent.extend_from_slice(chunk);
            sent.extend_from_slice(b"\r\n");
        }
        sent.extend_from_slice(b"0\r\n\r\n");
        stream.write_all(&sent).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{size}: {answer}");
        assert!(answer.contains(r#"{"success":1,"failed":0,"errors":[]}"#), "{size}: {answer}");
    }
}

#[test]
fn a_page_of_another_origin_asks_where_it_is_named_and_is_turned_away_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let page = "https://board.example";
    let ask = |server: &Server, method: &str, origin: &str| {
        let headers = [("Origin", origin), ("Sec-Fetch-Site", "cross-site")];
        let answer = server.connect().request(method, "/api/aggregators", &headers, b"").unwrap();
        (answer.status, answer.header("access-control-allow-origin").map(str::to_owned))
    };
    let server = Server::serve(&dir.path().join("closed"), &[]);
    assert_eq!(ask(&server, "GET", page), (403, None));
    assert_eq!(ask(&server, "OPTIONS", page), (403, None));
    let server = Server::serve(&dir.path().join("open"), &["--cors-domains", page]);
    for method in ["GET", "OPTIONS"] {
        assert_eq!(ask(&server, method, page), (200, Some(page.to_owned())));
        assert_eq!(ask(&server, method, "https://evil.example"), (403, None));
    }
}
