//! Runs `tests/slt/*.slt` (sqllogictest) over a database that the `# load` lines of each script fill.
//!
//! The loads have the syntax of `.tsq` scripts; half of their samples are read from segments, the rest from memory.

use std::path::{Path, PathBuf};

use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::StreamExt;
use sqllogictest::{DB, DBOutput, DefaultColumnType, Runner};
use telem_query::Queries;

use crate::script::Load;
use crate::spread::{COUNTS, Spread};
use crate::{real, runtime, script};

/// The name and the text of every script.
fn scripts() -> Vec<(String, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/slt");
    let mut scripts: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.retain(|path| path.extension().is_some_and(|extension| extension == "slt"));
    scripts.sort();
    assert!(scripts.len() >= 8, "only {} scripts found", scripts.len());
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    scripts.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn every_sql_script_answers_as_it_says() {
    let wrong: Vec<String> = scripts().iter().filter_map(|(name, text)| run(name, text).err()).collect();
    assert!(wrong.is_empty(), "{} scripts fail\n\n{}", wrong.len(), wrong.join("\n\n"));
}

/// What scripts say of names of nodes and numbers of series is not true then: those queries are marked.
#[test]
fn every_sql_script_answers_so_of_series_that_are_spread_over_nodes() {
    let mut wrong = Vec::new();
    for (name, text) in scripts() {
        for count in COUNTS {
            let spread = Spread::load(count, &loads(&name, &text));
            let ran = ask(
                &format!("{name} on {count} nodes"),
                &text,
                &spread.queries,
                if count == 1 { &[] } else { &["spread"] },
            );
            wrong.extend(ran.err());
        }
    }
    assert!(wrong.is_empty(), "{} scripts fail\n\n{}", wrong.len(), wrong.join("\n\n"));
}

fn loads(name: &str, text: &str) -> Vec<Load> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("# load "));
    lines.map(|line| script::load(line).unwrap_or_else(|why| panic!("{name}: {why}"))).collect()
}

/// The first difference, if any.
fn run(name: &str, text: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let db = real::open(dir.path());
    for (at, load) in loads(name, text).iter().enumerate() {
        real::write(&db, load);
        if at % 2 == 0 {
            db.flush().unwrap();
        }
    }
    ask(name, text, &real::queries(&db), &[])
}

fn ask(name: &str, text: &str, queries: &Queries, labels: &[&str]) -> Result<(), String> {
    let mut runner = Runner::new(|| async { Ok(Sql { queries: queries.clone() }) });
    labels.iter().for_each(|label| runner.add_label(label));
    runner.run_script_with_name(text, name).map_err(|error| error.display(false).to_string())
}

#[test]
fn a_wrong_answer_and_a_missing_error_are_noticed() {
    let script = |answer: &str| format!("# load m 0s 1m 5\n\nquery R\nSELECT value FROM m\n----\n{answer}\n");
    assert_eq!(run("right", &script("5.0")), Ok(()));
    assert!(run("wrong", &script("6.0")).is_err());
    assert!(run("no error", "statement error\nSELECT 1\n").is_err());
}

struct Sql {
    queries: Queries,
}

impl DB for Sql {
    type Error = telem_query::Error;
    type ColumnType = DefaultColumnType;

    fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, telem_query::Error> {
        runtime().block_on(async {
            let mut answer = self.queries.sql(sql).await?;
            let types = answer.batches.schema().fields().iter().map(|field| column_type(field.data_type())).collect();
            let mut rows = Vec::new();
            while let Some(batch) = answer.batches.next().await {
                let batch = batch.map_err(telem_query::Error::from)?;
                let options = FormatOptions::default().with_null("NULL");
                let columns: Vec<ArrayFormatter> =
                    batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
                for row in 0..batch.num_rows() {
                    rows.push(columns.iter().map(|column| shown(column.value(row).to_string())).collect());
                }
            }
            Ok(DBOutput::Rows { types, rows })
        })
    }
}

/// An empty text must be visible in a script.
fn shown(value: String) -> String {
    if value.is_empty() { "(empty)".into() } else { value }
}

fn column_type(data_type: &DataType) -> DefaultColumnType {
    match data_type {
        _ if data_type.is_integer() => DefaultColumnType::Integer,
        _ if data_type.is_floating() => DefaultColumnType::FloatingPoint,
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => DefaultColumnType::Text,
        _ => DefaultColumnType::Any,
    }
}

/// The page about SQL.
const PAGE: &str = include_str!("../docs/sql.md");
/// The sections whose examples are asked of several nodes.
const SECTIONS: [&str; 4] = ["## Two metrics", "## Windows of time", "## Histograms and quantiles", "## Gaps"];
/// Samples of the metrics of which they speak.
const SAMPLES: [&str; 11] = [
    "loss{host=a,rank=0} 0s 1s 9 8 7 6 5 _ 4 3 2 1",
    "loss{host=b,rank=1} 0s 1s 9 9 8 8 7 7 6 6 5",
    "loss{host=c,rank=2} 0s 2s 3 2.5 2 1.5",
    "train.loss{host=a,rank=0} 0s 500ms 1 2 3 4 5 6 7",
    "train.loss{host=b,rank=1} 0s 1s 4 4 2 2",
    "node_load1{host=a} 0s 2s 1 2 3 4 5",
    "node_load1{host=b} 1s 2s 5 4 3 2",
    "node_load1{host=c} 0s 3s 7 0.5 2",
    "step_seconds_bucket{rank=0,le=0.1} 0s 60s 0 2 4",
    "step_seconds_bucket{rank=0,le=1} 0s 60s 0 8 15",
    "step_seconds_bucket{rank=0,le=+Inf} 0s 60s 0 9 19",
];

/// The examples of those sections: title, then statement.
fn examples() -> Vec<(&'static str, &'static str)> {
    let sections = PAGE.split("\n## ").flat_map(|section| {
        let title = SECTIONS.iter().find(|title| section.starts_with(&title[3..]));
        let blocks = title.into_iter().flat_map(move |_| section.split("```sql\n").skip(1));
        blocks.filter_map(move |block| Some((*title?, block.split("```").next()?)))
    });
    let statements =
        sections.flat_map(|(title, block)| block.split(';').map(move |statement| (title, statement.trim())));
    statements.filter(|(_, statement)| !statement.is_empty()).collect()
}

#[test]
fn examples_of_the_page_answer_the_same_on_one_node_and_on_four() {
    let loads: Vec<Load> = SAMPLES.iter().map(|line| script::load(line).unwrap()).collect();
    let [one, four] = [1, 4].map(|count| Spread::load(count, &loads));
    let answer = |spread: &Spread, statement: &str| {
        let answer = Sql { queries: spread.queries.clone() }.run(statement);
        let Ok(DBOutput::Rows { mut rows, .. }) = answer else { panic!("{statement}: {:?}", answer.err()) };
        if !statement.contains("ORDER BY") {
            rows.sort();
        }
        rows
    };
    let examples = examples();
    for title in SECTIONS {
        assert!(examples.iter().any(|(of, _)| *of == title), "{title} has no example");
    }
    for (title, statement) in examples {
        let expected = answer(&one, statement);
        assert!(!expected.is_empty(), "{title}: {statement}");
        assert_eq!(answer(&four, statement), expected, "{title}: {statement}");
    }
}
