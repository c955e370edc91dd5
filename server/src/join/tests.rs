//! The information for an agent is whole, private, and of its own version.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use super::*;

const TOKEN: &str = "5ec2e75ec2e75ec2e75ec2e75ec2e75e";

fn join() -> Join {
    Join {
        dragon: None,
        job: "4711".to_owned(),
        token: TOKEN.to_owned(),
        head: vec!["http://127.0.0.1:4243".to_owned(), "http://[::1]:4243".to_owned()],
        certificate: None,
        key: None,
        version: VERSION.to_owned(),
        level: 2,
        interval: Duration::from_millis(1500),
        save: Some("/scratch/telem-4711".into()),
        save_interval: Duration::from_secs(5),
        save_timeout: Duration::from_secs(300),
        head_gone_timeout: HEAD_GONE_TIMEOUT,
        orphan_timeout: None,
        query_memory: Some(128 << 20),
    }
}

fn with_tls() -> Join {
    let (certificate, key) = (Some("CERTIFICATE".to_owned()), Some("PRIVATE".to_owned()));
    Join { head: vec!["https://n01:4243".to_owned()], certificate, key, ..join() }
}

/// What is said about a file with this in it.
fn refusal(content: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("join");
    private_file::write(&path, content.as_bytes()).unwrap();
    Join::read(&path).unwrap_err().to_string()
}

fn text(join: &Join) -> String {
    String::from_utf8(join.to_json().unwrap()).unwrap()
}

#[test]
fn what_a_head_wrote_an_agent_reads_and_it_goes_with_the_head() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("join");
    for join in [join(), with_tls(), Join { orphan_timeout: Some(Duration::ZERO), ..join() }] {
        let file = join.publish(&path).unwrap();
        assert_eq!(Join::read(file.path()).unwrap(), join);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(file);
        assert!(!path.exists());
    }
}

#[test]
fn the_file_of_a_head_that_came_after_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("join");
    let first = join().publish(&path).unwrap();
    let _second = with_tls().publish(&path).unwrap();
    drop(first);
    assert_eq!(Join::read(&path).unwrap(), with_tls());
}

#[test]
fn a_file_that_another_head_had_before_is_put_back_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("join");
    let first = join().publish(&path).unwrap();
    let (_, text) = Join::read_with_text(&path).unwrap();
    let second = with_tls().publish(&path).unwrap();
    second.leave_to(&text);
    assert_eq!(fs::read(&path).unwrap(), text);
    drop(first);
    assert!(!path.exists(), "it is the first one's again");
}

#[test]
fn a_file_that_others_may_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("join");
    let _file = join().publish(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let error = Join::read(&path).unwrap_err().to_string();
    assert!(error.contains("mode 0644") && error.contains("chmod 600"), "{error}");
}

#[test]
fn what_is_no_join_file_is_refused_with_the_reason() {
    let without = |what: &str| text(&join()).replace(what, "\"x\"");
    let with = |change: fn(&mut Join)| {
        let mut join = join();
        change(&mut join);
        text(&join)
    };
    for (content, said) in [
        (String::new(), "it is empty"),
        ("  \n".to_owned(), "it is empty"),
        ("token".to_owned(), "expected"),
        ("{}".to_owned(), "missing field `job`"),
        (without("\"level\""), "missing field `level`"),
        (with(|join| join.job = "../x".to_owned()), "job '../x' is not a name"),
        (with(|join| join.token.clear()), "no token"),
        (with(|join| join.head.clear()), "no address of a head"),
        (with(|join| join.head = vec![join.head[0].clone(); 65]), "more than 64"),
        (with(|join| join.head = vec!["n01:4243".to_owned()]), "neither http nor https"),
        (with(|join| join.head = vec!["//".to_owned()]), "is not a URL"),
        (with(|join| join.head = vec!["http://n01:4243".to_owned()]), "without TLS and not on loopback"),
        (with(|join| join.head = vec!["https://n01:4243".to_owned()]), "needs a certificate"),
        (with(|join| join.key = Some("k".to_owned())), "without its certificate"),
        (text(&join()).replace("1.5", "-1"), "-1 is not a time"),
    ] {
        let error = refusal(&content);
        assert!(error.contains(said), "{said}: {error}");
        assert!(!error.contains(TOKEN), "{error}");
    }
}

#[test]
fn a_file_of_another_version_names_both() {
    let error = refusal(&text(&Join { version: "0.2.0".to_owned(), ..join() }));
    assert!(error.contains("telem 0.2.0") && error.contains(&format!("telem {VERSION}")), "{error}");
    for (one, other, is) in [
        ("0.1.0", "0.1.9", true),
        ("1.4.0-rc1", "1.4.2", true),
        ("0.1.0", "0.2.0", false),
        ("1.1.0", "0.1.0", false),
        ("", "", false),
        ("x", "x", false),
    ] {
        assert_eq!(is_compatible(one, other), is, "{one} {other}");
    }
}

#[test]
fn fields_of_later_versions_are_passed_over() {
    let later = text(&join()).replacen('{', "{\"news\": [1],", 1);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("join");
    private_file::write(&path, later.as_bytes()).unwrap();
    assert_eq!(Join::read(&path).unwrap(), join());
}

#[test]
fn the_end_of_standard_input_is_not_waited_for() {
    /// Gives one object, and then must not be asked again.
    struct Open(io::Cursor<Vec<u8>>);
    impl Read for Open {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buf)? {
                0 => panic!("somebody waits for more"),
                bytes => Ok(bytes),
            }
        }
    }
    let text = join().to_json().unwrap();
    assert_eq!(Join::first_of(Open(io::Cursor::new(text))).unwrap(), join());
    let nothing = Join::first_of(io::empty()).unwrap_err().to_string();
    assert!(nothing.contains("it is empty"), "{nothing}");
}

#[test]
fn no_log_shows_a_secret() {
    let shown = format!("{:?}", with_tls());
    assert!(shown.contains("4711") && !shown.contains(TOKEN) && !shown.contains("PRIVATE"), "{shown}");
}
