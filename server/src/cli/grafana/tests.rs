//! Which files are written for a Grafana, and which are left alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value as Json;

use super::*;

const TOKEN: &str = "0123456789abcdef$HOME";

fn wanted() -> DashboardOptions {
    DashboardOptions { url: "http://localhost:4242".to_owned(), token: None, shown: None }
}

fn written(dir: &Path, wanted: &DashboardOptions) -> Result<(), files::FilesError> {
    files::write(dir, &files::files(dir, wanted).unwrap())
}

fn text(dir: &Path, path: &str) -> String {
    fs::read_to_string(dir.join(path)).unwrap()
}

fn mode(dir: &Path, path: &str) -> u32 {
    fs::metadata(dir.join(path)).unwrap().permissions().mode() & 0o777
}

const SOURCE: &str = "provisioning/datasources/telem.yaml";
const PROVIDER: &str = "provisioning/dashboards/telem.yaml";

#[test]
fn a_grafana_finds_the_data_source_the_dashboards_and_their_place() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), &wanted()).unwrap();
    assert!(text(dir.path(), SOURCE).contains("    url: \"http://localhost:4242/grafana\"\n"));
    let place = format!("      path: \"{}\"\n", dir.path().join("dashboards").display());
    assert!(text(dir.path(), PROVIDER).ends_with(&place), "{}", text(dir.path(), PROVIDER));
    for (uid, own) in files::DASHBOARDS {
        let found: Json = serde_json::from_str(&text(dir.path(), &format!("dashboards/{uid}.json"))).unwrap();
        assert_eq!(found, serde_json::from_str::<Json>(own).unwrap());
        assert_eq!(found["uid"], uid);
    }
}

#[test]
fn a_database_is_no_place_for_the_files_of_a_grafana() {
    let dir = tempfile::tempdir().unwrap();
    Db::open(dir.path(), telem_engine::Options::default()).unwrap().close().unwrap();
    let names = || fs::read_dir(dir.path()).unwrap().count();
    let before = names();
    let args =
        GrafanaArgs { dir: dir.path().into(), db: vec![], url: "http://localhost:4242".to_owned(), token_file: None };
    assert!(matches!(run(args), Err(CliFailure::Usage(told)) if told.contains("is a database")));
    assert_eq!(names(), before);
}

#[test]
fn a_dollar_is_no_variable_of_grafanas_environment() {
    let dir = tempfile::tempdir().unwrap();
    let odd = dir.path().join("a $HOME \"b\"");
    written(&odd, &wanted()).unwrap();
    let provider = text(&odd, PROVIDER);
    assert!(provider.ends_with("/a $$HOME \\\"b\\\"/dashboards\"\n"), "{provider}");
}

#[test]
fn a_token_stands_in_a_file_of_ours_alone_and_is_not_printed() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), &wanted()).unwrap();
    assert_eq!(mode(dir.path(), SOURCE) & 0o077, mode(dir.path(), PROVIDER) & 0o077, "nothing secret yet");
    let file = dir.path().join("token");
    fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let wanted = DashboardOptions { token: Some(token(&file).unwrap()), ..wanted() };
    written(dir.path(), &wanted).unwrap();
    let source = text(dir.path(), SOURCE);
    assert!(source.contains("      httpHeaderName1: Authorization\n    secureJsonData:\n"), "{source}");
    assert!(source.ends_with("      httpHeaderValue1: \"Bearer 0123456789abcdef$$HOME\"\n"), "{source}");
    assert_eq!(mode(dir.path(), SOURCE), 0o600);
    assert!(!report(dir.path(), &[], &wanted).contains(TOKEN));
    assert!(!format!("{wanted:?}").contains(TOKEN));
}

#[test]
fn a_token_comes_from_a_connection_file_too_and_from_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("connection.json");
    let connection = serde_json::json!({"url": "http://127.0.0.1:4242", "socket": null, "token": TOKEN, "pid": 1,
        "job": "j", "node": "n", "data": "/d"});
    fs::write(&file, connection.to_string()).unwrap();
    assert_eq!(token(&file).unwrap().secret(), TOKEN);
    for content in ["", "short", "with a blank in it", "{\"url\": \"x\"}"] {
        fs::write(&file, content).unwrap();
        assert!(matches!(token(&file), Err(CliFailure::Usage(_))), "{content}");
    }
    assert!(matches!(token(Path::new("/nowhere")), Err(CliFailure::Failed(_))));
}

#[test]
fn our_own_files_are_overwritten_and_others_stop_the_whole() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), &wanted()).unwrap();
    let other = DashboardOptions { url: "http://localhost:4300".to_owned(), ..wanted() };
    written(dir.path(), &other).unwrap();
    assert!(text(dir.path(), SOURCE).contains("4300"));

    for (path, content) in [
        ("dashboards/telem-custom.json", "{\"uid\": \"mine\"}"),
        ("dashboards/telem-custom.json", "no JSON"),
        (PROVIDER, "apiVersion: 1\n"),
    ] {
        let before = text(dir.path(), path);
        fs::write(dir.path().join(path), content).unwrap();
        let error = written(dir.path(), &wanted()).unwrap_err().to_string();
        assert!(error.contains(path) && error.contains("not written by telem"), "{error}");
        assert_eq!(text(dir.path(), path), content);
        assert!(text(dir.path(), SOURCE).contains("4300"), "what comes before it was written all the same");
        fs::write(dir.path().join(path), before).unwrap();
    }
    let left: Vec<_> = fs::read_dir(dir.path().join("dashboards")).unwrap().collect();
    assert_eq!(left.len(), files::DASHBOARDS.len(), "{left:?}");
}

#[test]
fn dashboards_open_at_the_whole_seconds_around_what_is_saved() {
    let dir = tempfile::tempdir().unwrap();
    let micros = Timestamp::from_micros;
    let shown = DashboardRange::around(micros(1_767_225_600_250_000), micros(1_767_225_605_000_000));
    let wanted = DashboardOptions { shown, ..wanted() };
    written(dir.path(), &wanted).unwrap();
    for (uid, own) in files::DASHBOARDS {
        let mut found: Json = serde_json::from_str(&text(dir.path(), &format!("dashboards/{uid}.json"))).unwrap();
        assert_eq!(found["time"]["from"], "2026-01-01T00:00:00.000Z");
        assert_eq!(found["time"]["to"], "2026-01-01T00:00:06.000Z");
        assert_eq!(found["refresh"], "");
        let own: Json = serde_json::from_str(own).unwrap();
        for changed in ["time", "refresh"] {
            found[changed] = own[changed].clone();
        }
        assert_eq!(found, own, "and nothing else differs");
    }
    let said = report(Path::new("/g"), &["a b".into(), "c".into()], &wanted);
    assert!(said.contains("  telem replay 'a b' c\n"), "{said}");
    assert!(said.contains("/d/telem-node?from=1767225600000&to=1767225606000\n"), "{said}");
    assert_eq!(DashboardRange::around(micros(0), micros(i64::MAX)), None, "no calendar holds that");
}

#[test]
fn a_replay_on_another_port_is_told_so() {
    let of = |url: &str| report(Path::new("/g"), &["a".into()], &DashboardOptions { url: url.to_owned(), ..wanted() });
    assert!(of("http://localhost:4300").contains("  telem replay a --listen :4300\n"));
    assert!(of("http://localhost:4242").contains("  telem replay a\n"));
    assert!(of("http://head:4300").contains("  telem replay a\n"), "not on this machine");
}

#[test]
fn a_url_is_one_of_a_telem() {
    for good in ["http://localhost:4242", "https://head/telem", "http://[::1]:4242"] {
        assert_eq!(url(good).unwrap(), good);
    }
    assert_eq!(url("http://localhost:4242/").unwrap(), "http://localhost:4242");
    for bad in ["localhost:4242", "ftp://x", "http://", "unix:/run/x.sock", "http://me:secret@head:4242", ""] {
        let why = url(bad).unwrap_err();
        assert!(why.contains("http://HOST:PORT"), "{why}");
    }
}
