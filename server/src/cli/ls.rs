//! `telem ls`: the runs that were saved below some directories.

mod cache;
mod find;
mod read;
mod row;
mod spread;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use clap::Args;
use serde_json::Value as Json;
use telem_engine::disk::{Disk, OsDisk};
use telem_engine::{Clock, SystemClock};

use self::cache::RunCache;
pub use self::find::{all_below, is_database, is_run};
pub use self::row::{RUNNING_MAX_US, RunList, RunRow, run_dir};
use self::row::{RunFilter, STATES};
use super::CliFailure;
use super::table::{Counted, TableColumns, TableOptions, TextTable};
use crate::footprint::raise_descriptor_limit;
use crate::info::{human, shown};

/// What gives way on a narrow terminal: other commands are given what stands in the first column.
const COLUMNS: TableColumns = TableColumns {
    whole: &["run", "began (UTC)"],
    first_to_go: &["bytes", "nodes", "samples", "took"],
    last_to_go: &[],
    hint: "--json has all",
};

/// List saved runs: what they are called, and how they ended
///
/// Runs are looked for below each DIR, newest first. A run is what `telem run` saves: a directory with a database for
/// each node. One whose end is not recorded is `running` while samples come, and else `unfinished`: it was killed.
#[derive(Debug, Args)]
#[command(after_help = SHORT_EXAMPLES, after_long_help = EXAMPLES)]
pub struct LsArgs {
    /// Where to look
    #[arg(value_name = "DIR", default_value = ".")]
    dirs: Vec<PathBuf>,
    /// How many directories deep
    #[arg(long, value_name = "N", default_value_t = 4)]
    depth: usize,
    /// Settings, tags, and metrics with their last value, each as a column
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    columns: Vec<String>,
    /// Only runs whose setting, tag, name, state, user or job is so; may be repeated
    ///
    /// In VALUE `*` stands for any text and `?` for one character.
    #[arg(long = "where", value_name = "KEY=VALUE")]
    filters: Vec<RunFilter>,
    /// Read every run anew, and keep nothing for the next call
    ///
    /// What runs say that are over is kept in telem/runs.json below $XDG_CACHE_HOME or ~/.cache.
    #[arg(long, hide_short_help = true)]
    no_cache: bool,
    /// As JSON, with all settings and tags
    #[arg(long)]
    json: bool,
}

const SHORT_EXAMPLES: &str = "\
Examples:
  telem ls
  telem ls . --columns lr,loss --where state=completed";

const EXAMPLES: &str = "\
Examples:
  telem ls                                             # below this directory
  telem ls . --columns lr,loss                         # a setting, and the last value of a metric
  telem ls . --where state=completed --where lr=3e*
  telem ls --json | jq -r '.[] | select(.exit_code != 0) | .dir'";

/// # Errors
/// Failed when a directory cannot be looked into.
pub fn run(args: &LsArgs) -> Result<(), CliFailure> {
    raise_descriptor_limit();
    let places = find::databases(&args.dirs, args.depth).map_err(CliFailure::failed)?;
    let cache = if args.no_cache { RunCache::none() } else { RunCache::of_user() };
    let mut found = RunList::default();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    for row in read::rows(&places, &args.columns, SystemClock::new().now(), &cache, &disk) {
        found.add(row);
    }
    cache.save();
    let mut rows = found.finish(&args.columns);
    let found = rows.len();
    rows.retain(|row| args.filters.iter().all(|filter| filter.passes(row)));
    rows.sort_by(|a, b| b.begin.cmp(&a.begin).then_with(|| a.dir.cmp(&b.dir)));
    match args.json {
        true => write_json(&rows),
        false if rows.is_empty() => {
            writeln!(io::stderr(), "{}", nothing(args, found)).unwrap_or_default();
            Ok(())
        }
        false => {
            write_table(&rows, &args.columns)?;
            let is_nowhere = |name: &&String| rows.iter().all(|row| row.column(name).is_none());
            let unknown: Vec<&str> = args.columns.iter().filter(is_nowhere).map(String::as_str).collect();
            if !unknown.is_empty() {
                let unknown = unknown.join(", ");
                writeln!(io::stderr(), "no run has a setting, a tag or a metric of this name: {unknown}")
                    .unwrap_or_default();
            }
            Ok(())
        }
    }
}

/// Why nothing is listed, of so many runs.
fn nothing(args: &LsArgs, found: usize) -> String {
    let dirs: Vec<String> = args.dirs.iter().map(|dir| dir.display().to_string()).collect();
    let dirs = dirs.join(", ");
    if found == 0 {
        return format!("no runs below {dirs} (looked {} directories deep)", args.depth);
    }
    let filters: Vec<String> = args.filters.iter().map(RunFilter::to_string).collect();
    let hint = match args.filters.iter().any(RunFilter::asks_for_no_state) {
        true => format!("; a state is one of {}", STATES.join(", ")),
        false => String::new(),
    };
    format!("none of {} below {dirs} has {}{hint}", human::counted(found as u64, "run"), filters.join(" and "))
}

fn write_json(rows: &[RunRow]) -> Result<(), CliFailure> {
    let mut text = serde_json::to_string_pretty(rows).map_err(CliFailure::failed)?;
    text.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn write_table(rows: &[RunRow], columns: &[String]) -> Result<(), CliFailure> {
    let texts =
        |of: &dyn Fn(&RunRow) -> Option<String>| -> ArrayRef { Arc::new(rows.iter().map(of).collect::<StringArray>()) };
    let whole =
        |of: &dyn Fn(&RunRow) -> Option<i64>| -> ArrayRef { Arc::new(rows.iter().map(of).collect::<Int64Array>()) };
    let here = std::env::current_dir().unwrap_or_default();
    let mut arrays: Vec<(String, ArrayRef)> = vec![
        (
            "run".to_owned(),
            texts(&|row| Some(shown(&row.dir.strip_prefix(&here).unwrap_or(&row.dir).display().to_string()))),
        ),
        ("name".to_owned(), texts(&|row| row.name.as_deref().map(shown))),
        ("began (UTC)".to_owned(), texts(&|row| row.begin.map(minute))),
        ("took".to_owned(), texts(&|row| row.duration_us.map(human::stretch))),
        ("state".to_owned(), texts(&|row| Some(row.state.clone()))),
        ("nodes".to_owned(), whole(&|row| i64::try_from(row.nodes.len()).ok())),
        ("samples".to_owned(), counts(rows.iter().map(|row| row.samples))),
        ("bytes".to_owned(), texts(&|row| Some(human::bytes(row.bytes? as f64)))),
    ];
    if rows.iter().all(|row| row.name.is_none()) {
        arrays.remove(1);
    }
    for name in columns {
        let found: Vec<Option<Json>> = rows.iter().map(|row| row.column(name)).collect();
        let is_number = found.iter().flatten().all(Json::is_number);
        let array: ArrayRef = match is_number {
            true => Arc::new(found.iter().map(|value| value.as_ref().and_then(Json::as_f64)).collect::<Float64Array>()),
            false => {
                let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), shown);
                Arc::new(found.iter().map(|value| value.as_ref().map(text)).collect::<StringArray>())
            }
        };
        arrays.push((name.clone(), array));
    }
    let fields: Vec<Field> =
        arrays.iter().map(|(name, array)| Field::new(name, DataType::clone(array.data_type()), true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let arrays = arrays.into_iter().map(|(_, array)| array).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays).map_err(CliFailure::failed)?;
    let options = TableOptions { rows_max: usize::MAX, columns: COLUMNS, ..TableOptions::of_stdout(None) };
    let mut table = TextTable::new(&schema, options, Box::new(io::stdout()));
    table.batch(&batch)?;
    Ok(table.finish(Counted::All)?)
}

/// Numbers with commas, aligned on the right as other numbers are.
fn counts(numbers: impl Iterator<Item = Option<u64>>) -> ArrayRef {
    let texts: Vec<Option<String>> = numbers.map(|number| number.map(human::grouped)).collect();
    let width = texts.iter().flatten().map(String::len).max().unwrap_or(0);
    Arc::new(texts.into_iter().map(|text| text.map(|text| format!("{text:>width$}"))).collect::<StringArray>())
}

fn minute(time: i64) -> String {
    let time = chrono::DateTime::from_timestamp_micros(time);
    time.map_or_else(String::new, |time| time.format("%Y-%m-%d %H:%M").to_string())
}
