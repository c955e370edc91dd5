//! The "How to add" sections of CONTRIBUTING.md, followed for something that was added that way: every place that they
//! name exists, and everything of that kind in the tree is in the lists that they name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// One list of the page, and something that stands in the tree by it.
struct Recipe {
    heading: &'static str,
    /// What `NAME` is.
    example: &'static str,
    /// What the page names, and what of the example stands there.
    places: &'static [(&'static str, &'static str)],
}

const RECIPES: [Recipe; 7] = [
    Recipe {
        heading: "A collector",
        example: "pressure",
        places: &[
            ("ingest/src/collect/NAME.rs", "impl Subject for Pressure"),
            ("ingest/src/collect/subject.rs", "pub trait Subject"),
            ("ingest/src/collect/mod.rs", "mod pressure;"),
            ("ingest/src/collect/sampler.rs", "Box::new(pressure::Pressure::new(&tree))"),
            ("ingest/src/collect/catalog.rs", "node_pressure_cpu_waiting_seconds_total"),
            ("fixtures/proc/", ""),
            ("fixtures/machines/", ""),
            ("docs/metrics.md", "node_pressure_cpu_waiting_seconds_total"),
            ("ingest/src/collect/tests/garbage.rs", "pressure::parse"),
        ],
    },
    Recipe {
        heading: "A protocol",
        example: "influx",
        places: &[
            ("server/src/protocols/NAME/mod.rs", "impl Protocol for Influx"),
            ("server/src/protocol.rs", "pub trait Protocol"),
            ("server/src/http.rs", "pub mod body;"),
            ("server/src/state.rs", "pub struct State"),
            ("server/src/protocols/mod.rs", "pub mod influx;"),
            ("server/src/service/router.rs", "Arc::new(Influx::new(state()))"),
            ("server/src/cli/service.rs", "protocols: ProtocolOptions"),
            ("ingest/src/decode/line.rs", "pub "),
            ("server/src/net/access.rs", "pub struct Rules"),
            ("server/src/limits.rs", "pub fn telnet()"),
            ("server/src/protocols/NAME/tests.rs", "/write"),
            ("server/src/net/tests/own_ports.rs", "listen::bind("),
        ],
    },
    Recipe {
        heading: "An aggregator",
        example: "pfsum",
        places: &[
            ("query/src/question/aggregator.rs", "PfSum,"),
            ("query/src/question/aggregator/table.rs", "\"pfsum\""),
            ("query/src/question/aggregator/evaluate.rs", "Aggregator::PfSum"),
            ("query/src/plan/pushdown.rs", "Parts::Sum"),
            ("query/src/leaf/series/buckets.rs", "Parts::EachSeries"),
            ("tests/oracle/reduce.rs", "PfSum"),
            ("tests/real.rs", "Aggregator::PfSum"),
            ("docs/opentsdb.md", "all 35 aggregators"),
        ],
    },
    Recipe {
        heading: "A command",
        example: "compact",
        places: &[
            ("server/src/cli/NAME.rs", "pub fn run("),
            ("server/src/cli/mod.rs", "Command::Compact(args) => compact::run(&args)"),
            ("tests/NAME.rs", "compact"),
            ("tests/it.rs", "mod compact;"),
            ("tests/pages.rs", "help"),
            ("tests/limits/option_tables.rs", "fn meaning("),
        ],
    },
    Recipe {
        heading: "A SQL function",
        example: "time_bucket",
        places: &[
            ("query/src/functions/NAME.rs", "time_bucket"),
            ("query/src/guard/", ""),
            ("query/src/functions/mod.rs", "time_bucket::time_bucket()"),
            ("docs/sql.md", "`time_bucket("),
            ("tests/slt/", ""),
        ],
    },
    Recipe {
        heading: "A limit",
        example: "question_bytes_max",
        places: &[
            ("server/src/state.rs", "pub question_bytes_max: usize"),
            ("server/src/http/tests.rs", "up_to_its_limit_and_not_one_byte_further"),
            ("server/src/limits.rs", "bytes(question_bytes_max)"),
            ("docs/limits.md", "`question_bytes_max`"),
            ("server/src/cli/service.rs", "fn server_limits"),
            ("tests/limits.rs", "fn options_that_set_a_limit_have_its_default"),
        ],
    },
    Recipe {
        heading: "A dashboard",
        example: "node",
        places: &[
            ("grafana/write.py", "for built in [node(),"),
            ("grafana/dashboards/telem-NAME.json", "\"uid\": \"telem-node\""),
            ("server/src/cli/grafana/files.rs", "dashboards/telem-node.json"),
            ("tests/dashboards/mod.rs", "\"telem-node\""),
            ("grafana/README.md", "`telem-node`"),
        ],
    },
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The names in a folder, without their endings.
fn stems(folder: &str, ending: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.extension().is_some_and(|end| end == ending));
    files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// What stands under a heading of the page.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let from = page.find(&format!("\n### {heading}\n")).unwrap_or_else(|| panic!("no '### {heading}' on the page"));
    let rest = &page[from + 5..];
    &rest[..rest.find("\n#").unwrap_or(rest.len())]
}

/// The paths of files that a text names in backticks; those of HTTP begin with `/`.
fn paths(text: &str) -> BTreeSet<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|word| word.contains('/') && !word.starts_with('/') && !word.contains(' ')).collect()
}

#[test]
fn the_page_names_every_place_and_every_place_is_there() {
    let page = read("CONTRIBUTING.md");
    for Recipe { heading, example, places } in &RECIPES {
        let named = paths(section(&page, heading));
        assert_eq!(named, places.iter().map(|(path, _)| *path).collect(), "{heading}");
        for (path, text) in *places {
            let path = path.replace("NAME", example);
            if path.ends_with('/') {
                assert!(root().join(&path).is_dir(), "{heading}: {path}");
            } else {
                assert!(read(&path).contains(text), "{heading}: '{text}' does not stand in {path}");
            }
        }
    }
}

#[test]
fn every_collector_has_its_line() {
    let (modules, sampler) = (read("ingest/src/collect/mod.rs"), read("ingest/src/collect/sampler.rs"));
    let mut found = 0;
    for stem in stems("ingest/src/collect", "rs") {
        let text = read(&format!("ingest/src/collect/{stem}.rs"));
        let Some((_, rest)) = text.split_once("\nimpl Subject for ") else { continue };
        let subject = rest.split(' ').next().unwrap();
        assert!(modules.contains(&format!("mod {stem};")), "{stem}");
        assert!(sampler.contains(&format!("{subject}::new(")), "{subject} has no line in Sampler::new");
        found += 1;
    }
    // Some subjects have several: one for each vendor.
    let lines = sampler.matches("        add(Part::").count();
    assert!(found >= 13 && lines >= found, "{lines} lines for {found} subjects");
}

#[test]
fn every_protocol_has_its_line_and_nothing_else_lists_them() {
    let folders = std::fs::read_dir(root().join("server/src/protocols")).unwrap().map(|entry| entry.unwrap().path());
    let folders: Vec<PathBuf> = folders.filter(|path| path.is_dir()).collect();
    let (modules, router) = (read("server/src/protocols/mod.rs"), read("server/src/service/router.rs"));
    assert!(folders.len() >= 4);
    for folder in &folders {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let text = read(&format!("server/src/protocols/{name}/mod.rs"));
        let (_, rest) = text.split_once("\nimpl Protocol for ").unwrap_or_else(|| panic!("{name} is no Protocol"));
        let protocol = rest.split(' ').next().unwrap();
        assert!(modules.contains(&format!("pub mod {name};")), "{name}");
        assert!(router.contains(&format!("Arc::new({protocol}::new(")), "{protocol} has no line in the router");
    }
    let (_, list) = router.split_once("\n    vec![\n").unwrap();
    let list = list.split("\n    ]").next().unwrap();
    assert_eq!(list.lines().count(), folders.len());
}

#[test]
fn every_command_has_a_file_and_a_line() {
    let main = read("server/src/cli/mod.rs");
    let (_, list) = main.split_once("\nenum Command {\n").unwrap();
    let list = list.split("\n}").next().unwrap();
    let variants = list.lines().filter_map(|line| line.trim().strip_suffix("),")?.split_once('('));
    let mut found = 0;
    for (variant, args) in variants {
        let module = args.trim_start_matches("Box<").split("::").next().unwrap();
        assert!(main.contains(&format!("mod {module};")), "{variant}");
        assert!(main.contains(&format!("Command::{variant}(args) =>")), "{variant}");
        assert!(stems("server/src/cli", "rs").contains(module), "{module}");
        found += 1;
    }
    assert!(found >= 14, "{found} commands");
}

#[test]
fn every_function_of_sql_stands_on_its_page() {
    let (functions, page) = (read("query/src/functions/mod.rs"), read("docs/sql.md"));
    let lists =
        functions.split("pub fn ").filter(|text| text.starts_with("scalar_f") || text.starts_with("aggregate_f"));
    let mut found = 0;
    for list in lists {
        let body = list.split("\n}").next().unwrap();
        for module in ["time_bucket::", "by_time::", "counter::", "histogram::", "histogram_quantile::"] {
            for name in body.split(module).skip(1).map(|rest| rest.split('(').next().unwrap()) {
                assert!(page.contains(&format!("`{name}(")), "{name} is not on docs/sql.md");
                found += 1;
            }
        }
    }
    assert!(found >= 8, "{found} functions");
}

#[test]
fn every_limit_of_the_server_stands_on_the_page_of_limits() {
    let page = read("docs/limits.md");
    let mut found = 0;
    for (path, name) in [
        ("server/src/state.rs", "ServerLimits"),
        ("server/src/http/body.rs", "BodyLimits"),
        ("server/src/walks.rs", "WalkLimits"),
        ("server/src/protocols/opentsdb/telnet/limits.rs", "TelnetLimits"),
    ] {
        let text = read(path);
        let (_, fields) = text.split_once(&format!("pub struct {name} {{\n")).unwrap();
        let fields = fields.split("\n}").next().unwrap();
        for field in fields.lines().filter_map(|line| line.trim().strip_prefix("pub ")) {
            let (field, of) = field.trim_end_matches(',').split_once(": ").unwrap();
            // Others of the list, which are looked at below their own names.
            if of.ends_with("Limits") || of == "Walks" {
                continue;
            }
            let told = [format!("`{field}`"), format!("`{name}::{field}`")];
            assert!(told.iter().any(|told| page.contains(told)), "{name}::{field} is not on docs/limits.md");
            found += 1;
        }
    }
    assert!(found > 15, "{found} limits");
}

#[test]
fn every_dashboard_is_carried_and_asked() {
    let (files, tests, page) =
        (read("server/src/cli/grafana/files.rs"), read("tests/dashboards/mod.rs"), read("grafana/README.md"));
    for board in stems("grafana/dashboards", "json") {
        assert!(files.contains(&format!("(\"{board}\", include_str!(")), "{board}");
        assert!(tests.contains(&format!("\"{board}\"")) && page.contains(&format!("`{board}`")), "{board}");
    }
}
