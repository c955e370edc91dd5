//! The answer to a panel, as JSON.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use telem_engine::MetricKind;
use telem_ingest::collect;

use super::PanelTask;
use super::choice::{self, LineChoice, LineFigures, OtherLines};
use super::column::PanelColumn;
use super::lines::{PanelLine, PanelLines};
use crate::protocols::page::millis;
use crate::protocols::page::nodes::AbsentNode;

/// What the greatest value of a heat map is as a byte. The least is 1, and nothing is 0.
const BYTE_MAX: f64 = 255.0;

#[derive(Debug, Serialize)]
pub struct PanelAnswer {
    panel: usize,
    start: f64,
    step: i64,
    columns: usize,
    unit: String,
    kind: MetricKind,
    function: &'static str,
    rate: bool,
    raw: bool,
    lines: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<Vec<SentLine>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    others: Option<Option<OtherLines>>,
    #[serde(flatten)]
    matrix: Option<HeatCells>,
    #[serde(skip_serializing_if = "Option::is_none")]
    empty: Option<String>,
    missing: Vec<AbsentNode>,
}

#[derive(Debug, Serialize)]
struct SentLine {
    tags: BTreeMap<String, Option<String>>,
    #[serde(flatten)]
    values: SentValues,
    stats: LineFigures,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum SentValues {
    Columns { avg: PanelColumn, min: PanelColumn, max: PanelColumn },
    Samples { times: Vec<f64>, values: Vec<f64> },
}

#[derive(Debug, Serialize)]
struct HeatCells {
    rows: Vec<HeatRow>,
    scale: Option<HeatScale>,
    cells: String,
}

#[derive(Debug, Serialize)]
struct HeatRow {
    tags: BTreeMap<String, Option<String>>,
    stats: LineFigures,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct HeatScale {
    lo: f64,
    hi: f64,
}

/// Whether series were read for a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PanelRead {
    Done,
    /// None was asked for, as none can match.
    NothingMatches,
}

impl PanelAnswer {
    pub fn of(task: &PanelTask, lines: PanelLines, choice: LineChoice, read: PanelRead) -> Self {
        let (panel, columns) = (&task.panel, lines.grid.columns);
        let LineChoice { figures, sent } = choice;
        let empty = lines.lines.is_empty().then(|| why_empty(task, read));
        let (unit, kind) = described(task);
        let raw = lines.raw.is_some();
        let missing = match read {
            PanelRead::Done => lines.missing.clone(),
            PanelRead::NothingMatches => crate::protocols::page::nodes::missing(&task.state),
        };
        let of_line = |place: &usize| sent_line(task, &lines, *place, figures[*place]);
        let (series, others, matrix) = match panel.matrix {
            true => (None, None, Some(heat_cells(task, &lines.lines, &sent, &figures))),
            false => {
                let others = choice::others(&lines.lines, &sent, columns);
                (Some(sent.iter().map(of_line).collect()), Some(others), None)
            }
        };
        Self {
            panel: task.number,
            start: millis(lines.grid.start),
            step: lines.grid.step_millis(),
            columns,
            unit,
            kind,
            function: panel.function.name(),
            rate: panel.rate,
            raw,
            lines: lines.lines.len(),
            series,
            others,
            matrix,
            empty,
            missing,
        }
    }
}

fn tags(task: &PanelTask, line: &PanelLine) -> BTreeMap<String, Option<String>> {
    task.panel.by.iter().cloned().zip(line.name.iter().cloned()).collect()
}

fn sent_line(task: &PanelTask, lines: &PanelLines, place: usize, stats: LineFigures) -> SentLine {
    let line = &lines.lines[place];
    let values = match lines.raw.as_ref().and_then(|raw| raw.get(place)) {
        Some(raw) => SentValues::Samples { times: raw.times.clone(), values: raw.values.clone() },
        None => {
            let column = |values: &[f64]| PanelColumn(values.to_vec());
            SentValues::Columns { avg: column(&line.avg), min: column(&line.min), max: column(&line.max) }
        }
    };
    SentLine { tags: tags(task, line), values, stats }
}

fn heat_cells(task: &PanelTask, lines: &[PanelLine], sent: &[usize], figures: &[LineFigures]) -> HeatCells {
    let values = || sent.iter().flat_map(|place| lines[*place].avg.iter().copied());
    let finite = || values().filter(|value| value.is_finite());
    let (lo, hi) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    // Halves, since the difference of the greatest numbers is none.
    let (from, span) = (lo / 2.0, hi / 2.0 - lo / 2.0);
    let byte = |value: f64| match value {
        value if value.is_nan() => 0,
        _ if span <= 0.0 => 1,
        value => (1.0 + (value / 2.0 - from) / span * (BYTE_MAX - 1.0)).round().clamp(1.0, BYTE_MAX) as u8,
    };
    let cells: Vec<u8> = values().map(byte).collect();
    HeatCells {
        rows: sent.iter().map(|place| HeatRow { tags: tags(task, &lines[*place]), stats: figures[*place] }).collect(),
        scale: (lo <= hi).then_some(HeatScale { lo, hi }),
        cells: STANDARD.encode(cells),
    }
}

fn described(task: &PanelTask) -> (String, MetricKind) {
    let metric = &*task.panel.metric;
    let snapshot = task.state.db.snapshot();
    let told = snapshot.meta().metric(metric).cloned();
    let meta = told.or_else(|| collect::describe(metric).map(|described| described.meta())).unwrap_or_default();
    (meta.unit, meta.kind)
}

fn why_empty(task: &PanelTask, read: PanelRead) -> String {
    let metric = &task.panel.metric;
    let is_known = task.state.index().series_count(metric) > 0;
    match (is_known, read) {
        (true, PanelRead::Done) if task.panel.rate => {
            format!("no series of '{metric}' has samples in two columns of this range, as a rate needs")
        }
        (true, PanelRead::Done) => format!("'{metric}' has no samples in this range"),
        (true, PanelRead::NothingMatches) => format!("no series of '{metric}' has these tags"),
        (false, _) => match collect::describe(metric) {
            Some(described) if task.state.level < described.level && task.state.writer.is_some() => format!(
                "no series of '{metric}' is there: it is collected from level {} on, and this is level {}",
                described.level, task.state.level
            ),
            _ => format!("no series of '{metric}' is there"),
        },
    }
}
