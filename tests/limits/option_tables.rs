//! Tables of options on pages are made from the command line.

use std::collections::BTreeSet;
use std::fmt::Write;

use clap::Arg;
use telem_server::cli;

use super::stands_on;

/// A table of options, between two comments.
struct OptionTable {
    page: &'static str,
    name: &'static str,
    head: &'static str,
    options: Vec<Arg>,
}

fn tables() -> Vec<OptionTable> {
    let [run, proxy, proxy_run] = ["run", "proxy", "proxy-run"].map(options);
    // `telem proxy` is `telem serve` with more options, which are these.
    let of_serve: BTreeSet<_> = options("serve").iter().map(|option| option.get_id().clone()).collect();
    vec![
        OptionTable {
            page: "docs/storage.md",
            name: "retention",
            head: "option of `serve` and `run`",
            options: options("serve")
                .into_iter()
                .filter(|option| option.get_help_heading() == Some("Retention"))
                .collect(),
        },
        OptionTable {
            page: "docs/runs.md",
            name: "labels",
            head: "option",
            options: run
                .into_iter()
                .filter(|option| ["name", "config", "tag"].contains(&option.get_id().as_str()))
                .collect(),
        },
        OptionTable {
            page: "docs/proxy.md",
            name: "proxy",
            head: "option",
            options: proxy.into_iter().filter(|option| !of_serve.contains(option.get_id())).collect(),
        },
        OptionTable { page: "docs/proxy-client.md", name: "proxy-run", head: "option", options: proxy_run },
    ]
}

/// The options of a command that are its own.
fn options(command: &str) -> Vec<Arg> {
    let all = cli::command();
    let found = all.find_subcommand(command).unwrap_or_else(|| panic!("telem has no {command}"));
    let is_own = |option: &&Arg| !option.is_positional() && !option.is_global_set() && option.get_id() != "help";
    found.get_arguments().filter(is_own).filter(|option| option.get_id() != "version").cloned().collect()
}

/// As it is typed: `-p`, `--port PORT`. A value with several forms is that many options.
fn typed(option: &Arg) -> String {
    let long = option.get_long().map(|long| format!("--{long}"));
    let forms = if option.get_action().takes_values() { option.get_value_names() } else { None };
    let forms: Vec<&str> = forms.and_then(<[_]>::first).map_or(Vec::new(), |name| name.split('|').collect());
    let mut words: Vec<String> = option.get_short().map(|short| format!("`-{short}`")).into_iter().collect();
    match &*forms {
        [] => words.extend(long.map(|long| format!("`{long}`"))),
        forms => words.extend(forms.iter().filter_map(|form| Some(format!("`{} {form}`", long.as_ref()?)))),
    }
    words.join(", ")
}

/// What it means: all of its help as one text, with its default at the end.
fn meaning(option: &Arg) -> String {
    let help = option.get_long_help().or_else(|| option.get_help()).unwrap_or_else(|| panic!("{option} has no help"));
    let mut defaults: Vec<String> =
        option.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if !option.get_action().takes_values() {
        defaults.clear();
    }
    let mut sentences = Vec::new();
    for paragraph in help.to_string().split("\n\n") {
        let (text, rest) = paragraph.split_once(" [default: ").unwrap_or((paragraph, ""));
        defaults.extend(rest.split_once(']').map(|(default, _)| default.to_owned()));
        sentences.push(text.trim().trim_end_matches('.').to_owned());
    }
    let mut text = sentences.join(". ");
    if let Some(variable) = option.get_env() {
        write!(text, "; also from {}", variable.display()).unwrap();
    }
    if let Some(default) = defaults.first() {
        write!(text, " (default: {default})").unwrap();
    }
    let mut words: Vec<String> = text.split_whitespace().map(marked).collect();
    if let Some(first) = words.first_mut().filter(|word| !word.chars().skip(1).any(char::is_uppercase)) {
        *first = first.to_lowercase();
    }
    words.join(" ")
}

/// A word of a help as pages have it: what is typed, and names of variables and files, in backticks.
fn marked(word: &str) -> String {
    let bare = word.trim_start_matches('(').trim_end_matches(|char| "(),;:.".contains(char));
    let is_name = |char: char| char.is_ascii_uppercase() || char.is_ascii_digit() || "_:[]@".contains(char);
    let begins = |with: &str| {
        bare.strip_prefix(with).is_some_and(|rest| rest.starts_with(|char: char| char.is_alphabetic() || char == '.'))
    };
    let is_code = ["--", "-", "/", "~/", "."].iter().any(|with| begins(with))
        || bare.contains(['_', ':', '=']) && (bare.chars().all(is_name) || bare.contains('='));
    if is_code && !bare.contains('`') { word.replacen(bare, &format!("`{bare}`"), 1) } else { word.to_owned() }
}

/// UPDATE_EXPECT=1 writes them anew.
#[test]
fn tables_of_options_say_what_the_command_line_knows() {
    for OptionTable { page, name, head, options } in tables() {
        assert!(options.len() >= 2, "{page}: {name} has {} options", options.len());
        let mut made = format!("| {head} | meaning |\n|---|---|\n");
        for option in options {
            writeln!(made, "| {} | {} |", typed(&option), meaning(&option)).unwrap();
        }
        stands_on(page, name, &made);
    }
}

#[test]
fn what_is_typed_stands_in_backticks() {
    for (word, expected) in [
        ("(.toml).", "(`.toml`)."),
        ("--data", "`--data`"),
        ("PROXY_PATH,", "`PROXY_PATH`,"),
        ("HOST:PORT[@MS],...", "`HOST:PORT[@MS]`,..."),
        ("/tmp/a.socket)", "`/tmp/a.socket`)"),
        ("mpi=FILE", "`mpi=FILE`"),
        ("`model.depth`;", "`model.depth`;"),
        ("JSON,", "JSON,"),
        ("~/.cache/telem;", "`~/.cache/telem`;"),
        ("this:", "this:"),
        ("...", "..."),
    ] {
        assert_eq!(marked(word), expected);
    }
}
