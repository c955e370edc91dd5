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

/// A terminal has 80 columns and at least 24 lines; what a command needs most is read without scrolling.
#[test]
fn short_help_fits_a_screen_and_long_help_has_everything() {
    const COLUMNS: usize = 80;
    const LONG_COLUMNS: usize = 100;
    let mut command = Cli::command().term_width(COLUMNS);
    command.build();
    let subcommands = command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    for sub in subcommands.chain([&command]) {
        let (name, short) = (sub.get_name(), sub.clone().term_width(COLUMNS).render_help().to_string());
        let lines_max = match name {
            "telem" => 39,
            "run" => 30,
            _ => 28,
        };
        let lines = short.lines().count();
        assert!(lines <= lines_max, "telem {name} -h has {lines} lines:\n{short}");
        // What does not fit is wrapped, and then cannot be copied.
        for (help, columns) in [(sub.get_after_help(), COLUMNS), (sub.get_after_long_help(), LONG_COLUMNS)] {
            let help = help.map(ToString::to_string).unwrap_or_default();
            let wide: Vec<&str> = help.lines().filter(|line| line.chars().count() > columns).collect();
            assert!(wide.is_empty(), "telem {name}: {wide:?}");
        }
        assert!(short.contains("Examples:"), "telem {name} -h:\n{short}");
        let long = sub.clone().render_long_help().to_string();
        for option in sub.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(|arg| arg.get_long()) {
            assert!(long.contains(&format!("--{option}")), "telem {name} --help lacks --{option}");
        }
    }
}

#[test]
fn collectors_start_a_command_that_reads_gpus() {
    let cli = Cli::try_parse_from(["telem", collect::READ_GPUS]).unwrap();
    assert!(matches!(cli.command, Command::ReadGpus));
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
fn a_query_may_begin_with_a_comment_and_other_commands_keep_their_words() {
    let read = |args: &[&str]| words(args.iter().map(OsString::from));
    let query = "-- how many\nSELECT count(*) FROM samples";
    let parsed = Cli::try_parse_from(read(&["telem", "-q", "sql", "./db", query, "--format", "csv"])).unwrap();
    assert!(matches!(parsed.command, Command::Sql(_)));
    for args in [&["telem", "run", "--", "echo", "-- such"][..], &["telem", "sql", "./db", "--strict", "SELECT 1"]] {
        assert_eq!(read(args), args);
    }
    assert!(Cli::try_parse_from(read(&["telem", "sql", "./db", "--unknown"])).is_err());
}

#[test]
fn a_directory_that_serve_is_given_without_an_option_is_told_where_it_belongs() {
    let refused = Cli::try_parse_from(["telem", "serve", "./db"]).unwrap_err().to_string();
    assert!(refused.contains("--data ./db") && refused.contains("telem replay ./db"), "{refused}");
}

#[test]
fn a_reader_that_is_gone_is_no_failure_and_other_errors_are() {
    assert!(matches!(CliFailure::from(io::Error::from(io::ErrorKind::BrokenPipe)), CliFailure::ReaderGone));
    assert!(matches!(CliFailure::from(io::Error::from(io::ErrorKind::StorageFull)), CliFailure::Failed(_)));
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
