//! The pages of limits are made from the limits, and what pages say of options is what the command line knows.

mod option_tables;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use expect_test::expect_file;
use telem_engine::limits::LimitRow;
use telem_server::limits::{jobs, protocols};

/// A table of docs/limits.md.
struct LimitTable {
    title: &'static str,
    rows: Vec<LimitRow>,
    /// What stands below it.
    note: &'static str,
}

/// A table on another page, between two comments.
struct TablePlace {
    page: &'static str,
    name: &'static str,
    head: &'static str,
    rows: Vec<LimitRow>,
}

const HEAD: &str = "\
# Limits

Every queue, buffer, body, name and wait has a limit with a name. What is over one is refused with an error that names
the limit and what was found; what was accepted before stays.
\"Command line\" says how `telem serve` and `telem run` set a limit; the others are fields of the named struct for
programs that embed a crate, and constants where nothing reasonable needs another value. This page is made from the
code, see [CONTRIBUTING.md](../CONTRIBUTING.md#a-limit).
";

const AFTER_QUERIES: &str = "\
What functions make counts towards the memory of all queries for as long as it lives. A query whose time is over holds
no place: its code stops at the next point where it can. Where it has none, it goes on at the lowest priority and is
counted by `telem_query_queries_left_behind`.
";

fn tables() -> Vec<LimitTable> {
    use telem_server::limits;
    let table = |title, rows| LimitTable { title, rows, note: "" };
    let storage = [telem_engine::limits::storage(), limits::storage()].concat();
    vec![
        table("Names and series (`engine`)", telem_engine::limits::names()),
        table("Taking samples in (`ingest`)", telem_ingest::limits::samples()),
        table("Reading exporters (`ingest`)", telem_ingest::limits::scraped()),
        table("Collecting (`ingest`)", telem_ingest::limits::collected()),
        table("Storage (`engine`, `Options`)", storage),
        LimitTable {
            note: "Of each protocol: [opentsdb.md](opentsdb.md#limits), [influx.md](influx.md#limits).\n\
                   Of nodes: [nodes.md](nodes.md#limits).\n",
            ..table("HTTP (`server`, `ServerLimits`)", limits::http())
        },
        table("The page (`server`, `protocols/page`)", limits::page()),
        table("OpenTSDB's telnet (`server`, `TelnetLimits`)", limits::telnet()),
        table("The client protocol (`server`, `ClientLimits`)", limits::clients()),
        table("Dragon's node server, and tunnels (`server`)", limits::dragon()),
        table("Metric Proxy (`server`, `protocols/proxy`)", limits::proxy()),
        LimitTable {
            note: AFTER_QUERIES,
            ..table("Queries (`query`, `QueryOptions`)", telem_query::limits::queries())
        },
        LimitTable {
            note: "Of launching: [launching.md](launching.md#limits).\n",
            ..table("A job (`server`)", jobs::job())
        },
        table("Imports (`telem import`)", limits::imports()),
        table("Tables on a terminal (`telem sql`, `telem info`)", limits::tables()),
    ]
}

fn places() -> Vec<TablePlace> {
    const NAMED: &str = "| limit | value | over it |\n|---|---|---|\n";
    const PLAIN: &str = "| | at most | beyond |\n|---|---|---|\n";
    let nodes = [jobs::nodes(), telem_query::limits::nodes()].concat();
    vec![
        TablePlace { page: "docs/launching.md", name: "launching", head: NAMED, rows: jobs::launching() },
        TablePlace { page: "docs/nodes.md", name: "nodes", head: NAMED, rows: nodes },
        TablePlace { page: "docs/opentsdb.md", name: "opentsdb", head: PLAIN, rows: protocols::opentsdb() },
        TablePlace { page: "docs/influx.md", name: "influx", head: PLAIN, rows: protocols::influx() },
    ]
}

/// The rows of all tables that name what they tell of.
fn named_rows() -> Vec<LimitRow> {
    let tables = tables().into_iter().map(|table| table.rows);
    tables.chain([jobs::launching(), jobs::nodes(), telem_query::limits::nodes()]).flatten().collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for LimitTable { title, rows, note } in tables() {
        write!(page, "\n## {title}\n| limit | default | over it | command line |\n|---|---|---|---|\n").unwrap();
        for LimitRow { what, default, over_it, flag } in rows {
            let flag = flag.map(|flag| format!(" `{flag}`")).unwrap_or_default();
            let over_it = if over_it.is_empty() { over_it } else { format!(" {over_it}") };
            writeln!(page, "| {what} | {default} |{over_it} |{flag} |").unwrap();
        }
        if !note.is_empty() {
            write!(page, "\n{note}").unwrap();
        }
    }
    page
}

/// Fails unless the table `name` of a page is `made`; UPDATE_EXPECT=1 writes it there.
fn stands_on(page: &str, name: &str, made: &str) {
    let path = root().join(page);
    let text = std::fs::read_to_string(&path).unwrap();
    let (from, to) = (format!("<!-- made from the code: {name} -->\n"), "<!-- end -->\n");
    let (before, rest) = text.split_once(&from).unwrap_or_else(|| panic!("{page} lacks '{from}'"));
    let (found, after) = rest.split_once(to).unwrap_or_else(|| panic!("{page} lacks '{to}'"));
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, format!("{before}{from}{made}{to}{after}")).unwrap();
    } else {
        assert_eq!(found, made, "{page}: UPDATE_EXPECT=1 writes it anew");
    }
}

/// UPDATE_EXPECT=1 writes it anew.
#[test]
fn the_page_of_limits_says_what_the_limits_are() {
    expect_file!["../docs/limits.md"].assert_eq(&page());
}

/// UPDATE_EXPECT=1 writes them anew.
#[test]
fn tables_of_limits_on_other_pages_say_what_the_limits_are() {
    for TablePlace { page, name, head, rows } in places() {
        let mut made = head.to_owned();
        for LimitRow { what, default, over_it, flag } in rows {
            let flag = flag.map(|flag| format!(" (`{flag}`)")).unwrap_or_default();
            let over_it = if over_it.is_empty() { over_it } else { format!(" {over_it}") };
            writeln!(made, "| {what} | {default}{flag} |{over_it} |").unwrap();
        }
        stands_on(page, name, &made);
    }
}

/// The words of a text that stand in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The code of all crates.
fn code() -> String {
    let (mut code, mut dirs) =
        (String::new(), Vec::from(["engine", "ingest", "query", "server"].map(|of| root().join(of).join("src"))));
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") && path.file_stem().unwrap() != "limits" {
                code.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    code
}

/// Names on the page that are SQL's.
const OF_SQL: [&str; 3] = ["array_agg", "levenshtein", "unnest"];

#[test]
fn every_limit_is_named_as_in_the_code() {
    let code = code();
    let words: BTreeSet<&str> = code.split(|char: char| !char.is_alphanumeric() && char != '_').collect();
    let mut found = 0;
    for row in named_rows() {
        let names = quoted(row.what).chain(quoted(&row.default)).chain(quoted(&row.over_it));
        let is_name = |name: &str| name.chars().all(|char| char.is_alphanumeric() || char == '_' || char == ':');
        for name in names.filter(|name| is_name(name) && !OF_SQL.contains(name)) {
            assert!(name.split("::").all(|part| words.contains(part)), "{}: there is no `{name}`", row.what);
            let is_const = name.chars().all(|char| char.is_ascii_uppercase() || char == '_');
            assert!(!is_const || code.contains(&format!("const {name}: ")), "{}: there is no `{name}`", row.what);
            found += 1;
        }
    }
    assert!(found > 100, "{found} names");
}

/// What the help of each option says, of all commands that have it.
fn options() -> BTreeMap<String, Vec<String>> {
    let mut options = BTreeMap::<String, Vec<String>>::new();
    let command = telem_server::cli::command();
    let commands = command.get_subcommands().flat_map(|sub| sub.get_subcommands().chain([sub])).chain([&command]);
    for arg in commands.flat_map(|command| command.get_arguments()) {
        let mut names = arg.get_long_and_visible_aliases().unwrap_or_default();
        names.extend(arg.get_all_aliases().unwrap_or_default());
        let text = |help: Option<&clap::builder::StyledStr>| help.map(ToString::to_string).unwrap_or_default();
        let mut help = format!("{} {}", text(arg.get_help()), text(arg.get_long_help()));
        for default in arg.get_default_values() {
            write!(help, " [default: {}]", default.to_string_lossy()).unwrap();
        }
        for name in names {
            options.entry(format!("--{name}")).or_default().push(help.clone());
        }
    }
    options
}

/// The amounts in a text, in one spelling: `64 MiB`, `1,048,576` and `60 s` as `64MiB`, `1048576` and `60s`.
fn amounts(text: &str) -> Vec<String> {
    let words = text.split([' ', ';', '[', ']', '(', ')']).map(|word| word.trim_end_matches([',', '.', ':']));
    let words: Vec<String> = words.filter(|word| !word.is_empty()).map(|word| word.replace(',', "")).collect();
    let mut amounts = Vec::new();
    for (at, word) in words.iter().enumerate().filter(|(_, word)| word.starts_with(|char: char| char.is_ascii_digit()))
    {
        let units = ["bytes", "KiB", "MiB", "GiB", "ms", "s", "min", "h"];
        let unit = words.get(at + 1).filter(|next| units.contains(&&***next));
        let unit = unit.map_or("", |unit| if unit == "min" { "m" } else { unit });
        amounts.push(format!("{word}{unit}"));
    }
    amounts
}

#[test]
fn options_that_set_a_limit_have_its_default() {
    let (options, mut compared) = (options(), 0);
    for row in named_rows() {
        let Some(flag) = row.flag else { continue };
        let helps = options.get(flag).unwrap_or_else(|| panic!("{}: there is no {flag}", row.what));
        let defaults: Vec<String> = helps
            .iter()
            .filter_map(|help| help.split_once("[default: ")?.1.split(']').next())
            .flat_map(amounts)
            .collect();
        if let Some(stated) = amounts(&row.default).first() {
            assert!(defaults.contains(stated), "{flag}: {stated} is the default, and its help says {defaults:?}");
            compared += 1;
        }
    }
    assert!(compared >= 10, "{compared} defaults");
}

/// Options of other programs that pages name.
const OF_OTHERS: [&str; 0] = [];

#[test]
fn every_option_on_a_page_is_an_option_of_telem() {
    let options = options();
    let mut pages = vec![root().join("README.md")];
    pages.extend(std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path()));
    let mut found = 0;
    for page in pages.iter().filter(|page| page.extension().is_some_and(|end| end == "md")) {
        let text = std::fs::read_to_string(page).unwrap();
        // Examples are run, by `pages`; here it is about what stands in sentences and tables.
        let prose: String = text.split("```").step_by(2).collect();
        for words in quoted(&prose).filter(|words| words.starts_with("--") || words.starts_with("telem ")) {
            let own = words.split(" -- ").next().unwrap();
            for word in own.split([' ', '[', ']', '|', '=']).filter(|word| word.starts_with("--") && word.len() > 2) {
                let known = options.contains_key(word) || OF_OTHERS.contains(&word);
                assert!(known, "{}: telem has no {word}", page.display());
                found += 1;
            }
        }
    }
    assert!(found > 60, "{found} options");
}
