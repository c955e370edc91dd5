//! `telem nodes`: lists the nodes of a running job and their state.

use std::io::{self, Write};
use std::time::Duration;

use chrono::DateTime;
use clap::{Args, ValueEnum};
use telem_engine::{Clock, SystemClock};

use super::CliFailure;
use super::table::terminal_width;
use crate::client::{Address, Client};
use crate::info::{grouped, human};
use crate::membership::messages::{LIST, Listed, Liveness};

/// The answer of a server is read up to here.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// A server that has not answered by then hangs.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Show the nodes of a running job and their state
///
/// Shows the state of each node and since when, what it stores, and what that costs. Exits with 1 if a node does not
/// report or has left.
#[derive(Debug, Args)]
#[command(after_help = SHORT_EXAMPLES, after_long_help = EXAMPLES)]
pub struct NodesArgs {
    /// The head: http://HOST:PORT or unix:PATH of its socket
    ///
    /// Also https://HOST:PORT.
    #[arg(value_name = "URL")]
    url: String,
    /// Format of the list
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "table")]
    format: NodesFormat,
}

/// How the list is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum NodesFormat {
    Table,
    Csv,
    Json,
}

const SHORT_EXAMPLES: &str = "\
Examples:
  telem nodes http://127.0.0.1:4242
  telem nodes $TELEM_URL                        # inside a job";

const EXAMPLES: &str = "\
Examples:
  telem nodes http://127.0.0.1:4242
  telem nodes $TELEM_URL --format json | jq '.[] | select(.state != \"up\") | .node'

Columns:
  lag      the age of the latest sample
  clock    how far the node's clock is ahead of the head's
  samples, series, bytes, memory, cpu   of the node's database and process
  reads    number of query parts for which the node reads samples now
  last error   the last error in the node's log

Environment:
  TELEM_TOKEN   the token, if the server needs one";

/// # Errors
/// Failed when there is no such server; BadNews when a node is not there.
pub fn run(args: &NodesArgs) -> Result<(), CliFailure> {
    let address = Address::parse(&args.url).map_err(CliFailure::usage)?;
    let client = Client::new(address).with_silence(ANSWER_MAX);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliFailure::failed)?;
    let answer = runtime.block_on(async { client.get(LIST).await?.read(ANSWER_BYTES_MAX).await });
    let answer = answer.map_err(CliFailure::failed)?;
    let nodes: Vec<Listed> = serde_json::from_slice(&answer).map_err(|error| {
        CliFailure::Failed(format!("{} gave no list of nodes that we understand: {error}", client.address()))
    })?;
    let mut out = io::stdout().lock();
    match args.format {
        NodesFormat::Table => {
            let text = table(&nodes, SystemClock::new().now().micros(), terminal_width());
            out.write_all(text.as_bytes())?;
        }
        NodesFormat::Csv => out.write_all(csv(&nodes).as_bytes())?,
        NodesFormat::Json => {
            let text = serde_json::to_string_pretty(&nodes).map_err(CliFailure::failed)?;
            writeln!(out, "{text}")?;
        }
    }
    out.flush()?;
    let all_up = nodes.iter().all(|node| node.state == Liveness::Up);
    if all_up { Ok(()) } else { Err(CliFailure::BadNews) }
}

const COLUMNS: [&str; 14] = [
    "node",
    "state",
    "since",
    "lag",
    "samples",
    "series",
    "bytes",
    "memory",
    "cpu",
    "reads",
    "clock",
    "version",
    "url",
    "last error",
];
/// Columns with numbers, which are aligned on the right.
const NUMBERS: std::ops::RangeInclusive<usize> = 3..=10;

/// A line for each node. On a terminal of this width lines end with it; the URL and the last error are what is cut.
fn table(nodes: &[Listed], now_us: i64, terminal: Option<usize>) -> String {
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(nodes.iter().map(|node| row(node, now_us)));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        let cell = |(column, cell): (usize, &String)| {
            let width = widths[column];
            if NUMBERS.contains(&column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        };
        let line = row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ");
        let is_head = at == 0 && terminal.is_some();
        let (on, off) = if is_head { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        text.push_str(&format!("{on}{}{off}\n", cut(line.trim_end(), terminal)));
    }
    text
}

fn cut(line: &str, width: Option<usize>) -> String {
    match width {
        Some(width) if line.chars().count() > width => {
            line.chars().take(width.saturating_sub(1)).chain(['…']).collect()
        }
        _ => line.to_owned(),
    }
}

fn row(node: &Listed, now_us: i64) -> [String; 14] {
    let state = match (&node.reason, node.is_head) {
        (Some(reason), _) => format!("{} ({reason})", node.state),
        (None, true) => format!("{}, head", node.state),
        (None, false) => node.state.to_string(),
    };
    let figures = &node.figures;
    let known = |number: u64| if node.is_head || node.figures.memory_bytes > 0 { grouped(number) } else { "-".into() };
    [
        node.node.clone(),
        state,
        ago(now_us.saturating_sub(node.since_us)),
        figures.lag_ms.map_or("-".to_owned(), |lag| format!("{:.1} s", lag as f64 / 1e3)),
        known(figures.samples),
        known(figures.series),
        human::bytes(figures.bytes as f64),
        human::bytes(figures.memory_bytes as f64),
        format!("{:.1} s", figures.cpu_seconds),
        known(figures.leaves),
        node.clock_offset_us.map_or("-".to_owned(), |offset| format!("{:+.1} ms", offset as f64 / 1e3)),
        node.version.clone(),
        node.url.clone(),
        node.last_error.as_deref().unwrap_or("-").replace('\n', " "),
    ]
}

fn ago(micros: i64) -> String {
    let seconds = micros.max(0) / 1_000_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d", seconds / 86_400),
    }
}

const CSV_COLUMNS: [&str; 20] = [
    "node",
    "is_head",
    "url",
    "state",
    "reason",
    "since",
    "reported_ms",
    "lag_ms",
    "samples",
    "series",
    "bytes",
    "cpu_seconds",
    "memory_bytes",
    "leaves",
    "version",
    "pid",
    "host",
    "data",
    "clock_offset_us",
    "last_error",
];

fn csv(nodes: &[Listed]) -> String {
    let mut table = ::csv::Writer::from_writer(Vec::new());
    // Writing to memory cannot fail, and each row has as many cells as there are columns.
    table.write_record(CSV_COLUMNS).unwrap_or_default();
    for node in nodes {
        let figures = &node.figures;
        let since = DateTime::from_timestamp_micros(node.since_us).unwrap_or_default();
        let number = |value: Option<i64>| value.map_or(String::new(), |value| value.to_string());
        let cells: [String; CSV_COLUMNS.len()] = [
            node.node.clone(),
            node.is_head.to_string(),
            node.url.clone(),
            node.state.to_string(),
            node.reason.clone().unwrap_or_default(),
            since.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
            node.reported_ms.map_or(String::new(), |ago| ago.to_string()),
            number(figures.lag_ms),
            figures.samples.to_string(),
            figures.series.to_string(),
            figures.bytes.to_string(),
            figures.cpu_seconds.to_string(),
            figures.memory_bytes.to_string(),
            figures.leaves.to_string(),
            node.version.clone(),
            node.pid.to_string(),
            node.host.clone(),
            node.data.display().to_string(),
            number(node.clock_offset_us),
            node.last_error.clone().unwrap_or_default(),
        ];
        table.write_record(cells).unwrap_or_default();
    }
    String::from_utf8(table.into_inner().unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::membership::messages::Figures;

    fn nodes() -> Vec<Listed> {
        let head = Listed {
            node: "login1".to_owned(),
            is_head: true,
            url: "https://login1:4242".to_owned(),
            state: Liveness::Up,
            reason: None,
            since_us: 0,
            reported_ms: None,
            figures: Figures { samples: 12, series: 2, bytes: 900, memory_bytes: 64 << 20, ..Figures::default() },
            version: "0.1.0".to_owned(),
            pid: 17,
            host: "login1.site".to_owned(),
            data: "/tmp/telem-1/7/login1".into(),
            clock_offset_us: None,
            last_error: None,
        };
        let node = Listed {
            node: "n1".to_owned(),
            is_head: false,
            url: "https://10.0.0.1:40001/".to_owned(),
            state: Liveness::Suspect,
            reason: Some("it does not report any more".to_owned()),
            since_us: 3_600_000_000,
            reported_ms: Some(7_000),
            figures: Figures {
                lag_ms: Some(7_450),
                samples: 1_234_567,
                series: 800,
                bytes: 3 << 20,
                cpu_seconds: 4.25,
                memory_bytes: 50 << 20,
                clients_dropped: 0,
                leaves: 2,
            },
            clock_offset_us: Some(-1_250),
            last_error: Some("the disk is full, \"really\"".to_owned()),
            ..head.clone()
        };
        vec![head, node]
    }

    #[test]
    fn the_table_shows_who_is_there_and_how() {
        expect![[r#"
            node    state                                  since        lag    samples  series      bytes   memory    cpu  reads    clock  version  url                      last error
            login1  up, head                               1 h 2 min      -         12       2  900 bytes  67.1 MB  0.0 s      0        -  0.1.0    https://login1:4242      -
            n1      suspect (it does not report any more)  2 min      7.5 s  1,234,567     800     3.1 MB  52.4 MB  4.2 s      2  -1.2 ms  0.1.0    https://10.0.0.1:40001/  the disk is full, "really"
        "#]].assert_eq(&table(&nodes(), 3_725_000_000, None));
        let narrow = table(&nodes(), 3_725_000_000, Some(80));
        let plain = narrow.replace("\x1b[1m", "").replace("\x1b[0m", "");
        assert!(plain.lines().all(|line| line.chars().count() == 80 && line.ends_with('…')), "{narrow}");
    }

    #[test]
    fn cells_of_csv_are_quoted_where_they_must_be() {
        expect![[r#"
            node,is_head,url,state,reason,since,reported_ms,lag_ms,samples,series,bytes,cpu_seconds,memory_bytes,leaves,version,pid,host,data,clock_offset_us,last_error
            login1,true,https://login1:4242,up,,1970-01-01T00:00:00.000000Z,,,12,2,900,0,67108864,0,0.1.0,17,login1.site,/tmp/telem-1/7/login1,,
            n1,false,https://10.0.0.1:40001/,suspect,it does not report any more,1970-01-01T01:00:00.000000Z,7000,7450,1234567,800,3145728,4.25,52428800,2,0.1.0,17,login1.site,/tmp/telem-1/7/login1,-1250,"the disk is full, ""really"""
        "#]].assert_eq(&csv(&nodes()));
    }
}
