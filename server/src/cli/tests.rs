//! The command line as users type it.

use clap::CommandFactory;

use super::*;

#[test]
fn the_command_line_is_well_formed_and_every_command_has_examples() {
    let mut command = Cli::command();
    command.build();
    command.clone().debug_assert();
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        let help = sub.clone().render_long_help().to_string();
        assert!(help.contains("Examples:"), "telem {} --help:\n{help}", sub.get_name());
    }
}

#[test]
fn telemetry_level_is_level_and_levels_end_at_4() {
    for args in [["serve", "--level", "4"], ["serve", "--telemetry-level", "0"]] {
        assert!(Cli::try_parse_from(["telem"].into_iter().chain(args)).is_ok(), "{args:?}");
    }
    assert!(Cli::try_parse_from(["telem", "serve", "--level", "5"]).is_err());
}

#[test]
fn a_listening_address_may_be_short() {
    for (text, ok) in [
        ("127.0.0.1:0", true),
        (":4242", true),
        ("[::1]:4242", true),
        ("localhost:4242", true),
        ("4242", false),
        ("127.0.0.1", false),
        ("127.0.0.1:99999", false),
    ] {
        assert_eq!(Cli::try_parse_from(["telem", "serve", "--listen", text]).is_ok(), ok, "{text}");
    }
}

#[test]
fn retention_is_an_age_and_a_number_of_bytes() {
    for command in [&["serve"][..], &["run"]] {
        let parse = |args: &[&str]| {
            let args = command.iter().chain(args).chain(if command == ["run"] { &["--", "true"][..] } else { &[] });
            Cli::try_parse_from(["telem"].iter().chain(args)).is_ok()
        };
        assert!(parse(&["--retention-age", "30d", "--retention-bytes", "10GiB"]));
        assert!(!parse(&["--retention-age", "0d"]) && !parse(&["--retention-bytes", "0"]));
    }
    assert!(Cli::try_parse_from(["telem", "replay", "./a", "--retention-age", "1d"]).is_err(), "nothing is dropped");
}

#[test]
fn a_query_comes_from_one_place() {
    let parse = |args: &[&str]| Cli::try_parse_from(["telem", "sql", "./db"].iter().chain(args)).is_ok();
    assert!(parse(&["SELECT 1"]) && parse(&["-"]) && parse(&["--file", "q.sql"]) && parse(&["./db2", "SELECT 1"]));
    assert!(Cli::try_parse_from(["telem", "sql"]).is_err());
}

#[test]
fn a_reader_that_is_gone_is_no_failure_and_other_errors_are() {
    assert!(matches!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)), Failure::ReaderGone));
    assert!(matches!(Failure::from(io::Error::from(io::ErrorKind::StorageFull)), Failure::Failed(_)));
}

#[test]
fn replay_takes_directories_and_what_serve_takes_of_those_who_ask() {
    let parse = |args: &[&str]| Cli::try_parse_from(["telem", "replay"].iter().chain(args)).is_ok();
    assert!(parse(&[
        "./a",
        "./b",
        "--listen",
        ":0",
        "--opentsdb-exact",
        "--allow-user",
        "0",
        "--query-memory",
        "1GiB"
    ]));
    assert!(parse(&["./a", "--grafana-url", "https://graphs.example/grafana/"]));
    assert!(!parse(&[]) && !parse(&["./a", "--grafana-url", "localhost:3000"]));
    assert!(!parse(&["./a", "--data", "./b"]) && !parse(&["./a", "--level", "2"]), "nothing is taken");
}
