//! Runs `tests/slt/*.slt` (sqllogictest) over a database that the `# load` lines of each script fill.
//!
//! The loads have the syntax of `.tsq` scripts; half of them are read from segments, the rest from memory.

use std::path::{Path, PathBuf};

use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::StreamExt;
use sqllogictest::{DB, DBOutput, DefaultColumnType, Runner};
use telem_query::Queries;

use crate::{real, runtime, script};

#[test]
fn every_sql_script_answers_as_it_says() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/slt");
    let mut scripts: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.retain(|path| path.extension().is_some_and(|extension| extension == "slt"));
    scripts.sort();
    assert!(scripts.len() >= 8, "only {} scripts found", scripts.len());
    let mut wrong = Vec::new();
    for path in scripts {
        let text = std::fs::read_to_string(&path).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let db = real::open(dir.path());
        for (at, line) in text.lines().filter_map(|line| line.strip_prefix("# load ")).enumerate() {
            real::write(&db, &script::load(line).unwrap_or_else(|why| panic!("{}: {why}", path.display())));
            if at % 2 == 0 {
                db.flush().unwrap();
            }
        }
        let queries = real::queries(&db);
        let mut runner = Runner::new(|| async { Ok(Sql { queries: queries.clone() }) });
        if let Err(error) = runner.run_script_with_name(&text, path.file_name().unwrap().to_string_lossy()) {
            wrong.push(error.display(false).to_string());
        }
    }
    assert!(wrong.is_empty(), "{} scripts fail\n\n{}", wrong.len(), wrong.join("\n\n"));
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
