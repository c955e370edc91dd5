//! The view that gives DuckDB the table `samples` directly from the Parquet files.
//!
//! A sample that was overwritten is in two segments, and the one later in the list counts. The names of segments tell
//! their windows of time, so only segments that share a window with another are searched for such samples; the others
//! are read as they are.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::{Info, counted};

/// SQL for DuckDB that makes the view, with comments that say what it leaves out.
pub fn view(info: &Info) -> String {
    let mut sql = String::new();
    let mut line = |text: String| {
        sql.push_str(&text);
        sql.push('\n');
    };
    line(format!("-- The samples of {}, for DuckDB: duckdb -init FILE", comment(&info.data)));
    line("-- Made from the segments of this moment; make it again when there are new ones.".to_owned());
    if info.samples_unflushed > 0 {
        line(format!(
            "-- In the WAL, and in no segment yet: {}, which this view does not see. All is flushed when",
            counted(info.samples_unflushed, "sample")
        ));
        line("-- the server stops, and while it runs from time to time.".to_owned());
    }
    match &*info.databases {
        [] | [_] => {
            line("CREATE OR REPLACE VIEW samples AS".to_owned());
            line(format!("SELECT {}", columns(&quoted(&info.node))));
            line("FROM (".to_owned());
            line(rows(&info.segment_files));
            line(format!(") r JOIN {} k ON k.id = r.series;", keys(&info.series_files)));
        }
        several => line(of_several(several)),
    }
    sql
}

/// The columns of the view, from rows `r` and keys `k`.
fn columns(node: &str) -> String {
    format!(
        "k.metric, map_extract(k.tags, 'host')[1] AS host,\n       {node} AS node, k.tags, r.ts,\n       \
         CASE WHEN r.\"float\" IS NOT NULL THEN r.\"float\"\n            \
         WHEN r.scale IS NULL THEN CAST(r.\"int\" AS DOUBLE)\n            \
         ELSE CAST(r.\"int\" AS DOUBLE) / pow(10.0, r.scale) END AS value,\n       \
         CASE WHEN r.\"float\" IS NULL AND r.scale IS NULL THEN r.\"int\" END AS value_int"
    )
}

/// Equal keys are one series, of the node that comes last; of two samples of one time the later database's counts.
/// Only series of several databases are searched for such samples.
fn of_several(databases: &[Info]) -> String {
    let known: Vec<String> = (0..)
        .zip(databases)
        .map(|(place, database): (usize, _)| {
            let (node, keys) = (quoted(&database.node), keys(&database.series_files));
            format!("  SELECT {place} AS place, {node} AS node, id, metric, tags FROM {keys}")
        })
        .collect();
    let rows: Vec<String> = (0..)
        .zip(databases)
        .map(|(place, database): (usize, _)| {
            format!("  SELECT {place} AS place, * FROM (\n{}\n  )", rows(&database.segment_files))
        })
        .collect();
    let columns = columns("k.node");
    format!(
        "CREATE OR REPLACE VIEW samples AS\nWITH known AS (\n{}\n), k AS (\n  \
         SELECT place, id, metric, tags, count(*) OVER same AS databases, arg_max(node, place) OVER same AS node\n  \
         FROM known WINDOW same AS (PARTITION BY metric, tags)\n), r AS (\n{}\n)\n\
         SELECT {columns}\nFROM r JOIN k ON k.place = r.place AND k.id = r.series WHERE k.databases = 1\n\
         UNION ALL\n\
         SELECT {columns}\nFROM r JOIN k ON k.place = r.place AND k.id = r.series WHERE k.databases > 1\n\
         QUALIFY row_number() OVER (PARTITION BY k.metric, k.tags, r.ts ORDER BY r.place DESC) = 1;",
        known.join("\n  UNION ALL\n"),
        rows.join("\n  UNION ALL\n")
    )
}

const COLUMNS: &str = "series, ts, \"int\", scale, \"float\"";

fn rows(segments: &[PathBuf]) -> String {
    let (alone, shared): (Vec<&PathBuf>, Vec<&PathBuf>) = segments.iter().partition(|one| is_alone(one, segments));
    let mut parts = Vec::new();
    if !alone.is_empty() {
        parts.push(format!("  SELECT {COLUMNS} FROM read_parquet({})", list(alone)));
    }
    if !shared.is_empty() {
        // The number in a name does not say it: that of a merged file is higher than those of flushes after its own.
        let in_order: Vec<String> = shared.iter().map(|file| quoted(&file.display().to_string())).collect();
        parts.push(format!(
            "  SELECT {COLUMNS} FROM read_parquet({}, filename = true)\n  \
             QUALIFY row_number() OVER (PARTITION BY series, ts ORDER BY list_position([\n    {}], filename) DESC) = 1",
            list(shared),
            in_order.join(",\n    ")
        ));
    }
    if parts.is_empty() {
        return "  SELECT 0::UINTEGER AS series, NULL::TIMESTAMPTZ AS ts, NULL::BIGINT AS \"int\", NULL::TINYINT AS scale,\n    \
                NULL::DOUBLE AS \"float\" WHERE false"
            .to_owned();
    }
    parts.join("\n  UNION ALL\n")
}

fn keys(series: &[PathBuf]) -> String {
    if series.is_empty() {
        return "(SELECT 0::UINTEGER AS id, '' AS metric, MAP {'': ''} AS tags WHERE false)".to_owned();
    }
    format!("read_parquet({})", list(series))
}

/// Whether no other segment has samples of the same time. A name that cannot be read shares with all.
fn is_alone(segment: &PathBuf, all: &[PathBuf]) -> bool {
    let Some((first, last)) = window(segment) else { return false };
    let apart = |other: &PathBuf| window(other).is_some_and(|(start, end)| end < first || last < start);
    all.iter().filter(|other| *other != segment).all(apart)
}

/// First and last time of `FIRST-LAST-SEQUENCE.parquet`, in a spelling that sorts as the times do.
/// Times outside the years 0 to 9999 have another spelling, with dashes in it: such names are not read.
fn window(segment: &Path) -> Option<(&str, &str)> {
    let name = segment.file_name()?.to_str()?.strip_suffix(".parquet")?;
    let mut parts = name.split('-');
    let (first, last, _sequence) = (parts.next()?, parts.next()?, parts.next()?);
    let is_time = |text: &str| text.len() == "20260102T030000Z".len() && text.ends_with('Z');
    (parts.next().is_none() && is_time(first) && is_time(last)).then_some((first, last))
}

fn list<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> String {
    let mut text = String::from("[");
    for (at, file) in files.into_iter().enumerate() {
        let separator = if at == 0 { "" } else { "," };
        // Writing to a String cannot fail.
        write!(text, "{separator}\n    {}", quoted(&escape_glob(&file.display().to_string()))).unwrap_or_default();
    }
    text.push(']');
    text
}

/// DuckDB takes file names for patterns.
fn escape_glob(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for c in path.chars() {
        match c {
            '*' | '?' | '[' => {
                text.push('[');
                text.push(c);
                text.push(']');
            }
            _ => text.push(c),
        }
    }
    text
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn comment(path: &Path) -> String {
    path.display().to_string().replace(['\n', '\r'], " ")
}
