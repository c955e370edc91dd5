use std::io::{BufReader, Write};
use std::net::TcpListener;
use std::thread;

use crate::bodies::{self, Protocol, render};
use crate::synthetic::Nodes;
use crate::{Data, Failed, http, send};

fn bodies(nodes: Nodes, protocol: Protocol) -> Vec<(u32, Vec<u8>)> {
    let mut all = Vec::new();
    render(&nodes, protocol, u64::MAX, &mut |body| {
        all.push((body.samples, body.bytes));
        Ok(())
    })
    .expect("rendered");
    all
}

const SMALL: Nodes = Nodes { hosts: 3, seconds: 80, jitter_ms: 0 };

#[test]
fn every_host_has_50_series_under_34_names() {
    let mut names = std::collections::HashSet::new();
    let mut series = std::collections::HashSet::new();
    Nodes { hosts: 2, seconds: 1, jitter_ms: 0 }
        .each_row(&mut |row| {
            names.extend((0..row.values.len()).map(|field| row.subject.metric(field)));
            series.extend(row.series.iter().copied());
            Ok(())
        })
        .expect("rows");
    assert_eq!((names.len(), series.len()), (34, 100));
}

#[test]
fn the_same_data_are_made_every_time_and_every_protocol_has_all_of_them() {
    for protocol in [Protocol::Lines, Protocol::Put, Protocol::Remote] {
        let made = bodies(SMALL, protocol);
        assert_eq!(made, bodies(SMALL, protocol), "{protocol:?}");
        assert_eq!(made.iter().map(|(samples, _)| samples).sum::<u32>(), 3 * 50 * 80, "{protocol:?}");
    }
}

#[test]
fn a_line_has_the_fields_of_one_set_of_tags() {
    let (_, body) = bodies(Nodes { hosts: 1, seconds: 1, jitter_ms: 0 }, Protocol::Lines).remove(0);
    let text = String::from_utf8(body).expect("text");
    assert!(text.contains("\ngpu,gpu=0,host=nid00000 utilization="), "{text}");
    assert!(text.contains("mem,host=nid00000 total=540888666112i,used="), "{text}");
    assert!(text.lines().all(|line| line.ends_with(" 1767322800000000000")), "{text}");
}

#[test]
fn points_are_one_array_of_json() {
    let (samples, body) = bodies(SMALL, Protocol::Put).remove(0);
    let text = String::from_utf8(body).expect("text");
    assert!(samples <= 1_000);
    assert_eq!(text.matches("\"metric\"").count(), samples as usize);
    assert!(text.starts_with(r#"[{"metric":"cpu_user","timestamp":1767322800000,"value":"#), "{text}");
    assert!(text.ends_with(r#","tags":{"host":"nid00001"}}]"#), "{text}");
}

#[test]
fn remote_write_begins_with_the_name_of_the_first_series() {
    let (_, body) = bodies(SMALL, Protocol::Remote).remove(0);
    let plain = snap::raw::Decoder::new().decompress_vec(&body).expect("snappy");
    let label = b"\x0a\x08__name__\x12\x08cpu_user";
    assert_eq!(&plain[2..4 + label.len()], [b"\x0a\x14", &label[..]].concat(), "{:?}", &plain[..40]);
}

#[test]
fn jittered_hosts_keep_their_phase_and_are_late_by_no_more_than_told() {
    let nodes = Nodes { hosts: 5, seconds: 20, jitter_ms: 5 };
    nodes
        .each_row(&mut |row| {
            let host: i64 = row
                .subject
                .tags
                .iter()
                .find(|(key, _)| key == "host")
                .map_or(0, |(_, host)| host.trim_start_matches("nid").parse().expect("a number"));
            let late = row.time_ms % 1_000 - host * 7;
            assert!((0..=5).contains(&late), "{late}");
            Ok(())
        })
        .expect("rows");
}

#[test]
fn answers_in_chunks_are_read_to_their_end() -> Result<(), Failed> {
    let mut text =
        &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nHTTP/1.1 204 X\r\n\r\n"[..];
    let mut body = Vec::new();
    let head = http::head(&mut text)?.ok_or("nothing")?;
    http::body(&mut text, &head, &mut body)?;
    assert_eq!(body, b"abc");
    assert_eq!(http::head(&mut text)?.ok_or("nothing")?.first, "HTTP/1.1 204 X");
    Ok(())
}

#[test]
fn a_server_that_closes_every_connection_is_sent_all_bodies() -> Result<(), Failed> {
    let file = std::env::temp_dir().join(format!("telem-load-test-{}", std::process::id()));
    bodies::write(&SMALL, Protocol::Put, &file, u64::MAX)?;
    let wanted = bodies::read(&file, u64::MAX)?.len();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let to = listener.local_addr()?.to_string();
    let server = thread::spawn(move || {
        let mut body = Vec::new();
        for stream in listener.incoming().take(wanted) {
            let stream = stream?;
            let mut request = BufReader::new(stream.try_clone()?);
            let head = http::head(&mut request)?.ok_or("nothing")?;
            http::body(&mut request, &head, &mut body)?;
            (&stream).write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")?;
        }
        Ok::<_, Failed>(())
    });
    let options = send::Options {
        bodies: file.clone(),
        to,
        path: "/".to_owned(),
        connections: 1,
        deadline_s: 60,
        headers: String::new(),
        samples_max: u64::MAX,
    };
    let said = send::send(&options)?;
    std::fs::remove_file(file)?;
    server.join().map_err(|_| "the server died")??;
    assert!(said.contains(&format!(r#""bodies":{wanted},"#)), "{said}");
    Ok(())
}
