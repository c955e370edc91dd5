//! The picture: of a state and what the viewer chose, into a buffer of cells. Nothing else is known here.

use chrono::DateTime;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

use super::keys::{MetricOrder, NodeOrder, TableView, TopMode, TopTable, TopView};
use super::state::{MetricLine, NodeLine, TopCurve, TopState};
use crate::info::{counted, grouped, human};

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Widest column of names, and of a curve.
const NAME_MAX: usize = 40;
const CURVE_MAX: usize = 30;
/// Widths of figures.
const CORES: usize = 9;
const PERCENT: usize = 6;
const RATE: usize = 10;
const VALUE: usize = 11;
const SERIES: usize = 7;
const UNIT_MAX: usize = 12;
const GAP: usize = 1;
/// What a database that describes no job is called.
const NO_JOB: &str = "local";

const HELP: [&str; 9] = [
    "q, Esc             quit",
    "Up, Down           scroll by a line",
    "PageUp, PageDown   scroll by a page; Home and End go to the first and the last line",
    "Tab                go from the nodes to the metrics and back",
    "s                  sort by the next column",
    "/                  show only names with a text, or that fit a pattern with * and ?",
    "?                  this help",
    "",
    "Curves are means of all series. Counters are shown as rates per second.",
];

/// What is written, and how.
struct Pen<'a> {
    buffer: &'a mut Buffer,
    y: u16,
}

impl Pen<'_> {
    fn area(&self) -> Rect {
        self.buffer.area
    }

    /// Lines that are left.
    fn left(&self) -> usize {
        usize::from(self.area().bottom().saturating_sub(self.y))
    }

    fn line(&mut self, text: &str, style: Style) {
        self.parts(&[(text, style)]);
    }

    fn parts(&mut self, parts: &[(&str, Style)]) {
        let area = self.area();
        if self.y >= area.bottom() {
            return;
        }
        let mut x = area.left();
        for (text, style) in parts {
            let width = usize::from(area.right().saturating_sub(x));
            (x, _) = self.buffer.set_stringn(x, self.y, text, width, *style);
        }
        self.y += 1;
    }
}

/// Draws all of it; the view's offsets are brought within the tables.
pub fn draw(state: &TopState, view: &mut TopView, buffer: &mut Buffer) {
    let mut pen = Pen { y: buffer.area.top(), buffer };
    head(state, &mut pen);
    if view.mode == TopMode::Help {
        pen.line("", Style::new());
        HELP.iter().for_each(|text| pen.line(text, Style::new()));
    } else {
        tables(state, view, &mut pen);
    }
    let last = pen.area().bottom().saturating_sub(1);
    if pen.y <= last {
        pen.y = last;
        let filtering = format!("filter: {}_   (Enter keeps it, Esc drops it)", view.table().filter);
        let keys = "q quit   Tab nodes/metrics   s sort   / filter   ? help";
        pen.line(if view.mode == TopMode::Filter { &filtering } else { keys }, dim());
    }
}

/// All lines as plain text, for what is no terminal. So many columns, and as many lines as it takes.
pub fn page(state: &TopState, width: u16) -> String {
    let mut view = TopView::default();
    let lines = state.nodes().len() + state.metrics().len() + 16;
    let height = u16::try_from(lines).unwrap_or(u16::MAX).min(u16::MAX / width.max(1));
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    let mut pen = Pen { y: 0, buffer: &mut buffer };
    head(state, &mut pen);
    tables(state, &mut view, &mut pen);
    text(&buffer)
}

/// What is in the buffer, without the spaces at the ends of lines and the empty lines at the end.
pub fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let lines = buffer.content.chunks(width).map(|cells| {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned()
    });
    let mut text = lines.collect::<Vec<_>>().join("\n").trim_end().to_owned();
    text.push('\n');
    text
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn head(state: &TopState, pen: &mut Pen<'_>) {
    let job = &state.job;
    let mut facts: Vec<String> = Vec::new();
    facts.extend((!job.state.is_empty()).then(|| job.state.clone()));
    if let Some(begin) = job.begin_us {
        facts.push(format!("since {}", clock_time(begin, "%Y-%m-%d %H:%M")));
        let until = job.end_us.map_or(state.now_us, |end| end.min(state.now_us));
        facts.push(human::stretch(until.saturating_sub(begin).max(0)));
    }
    let nodes = state.nodes().len();
    facts.push(counted(nodes as u64, "node"));
    if let Some(rate) = state.samples_per_second {
        facts.push(format!("{} samples/s", human::short(rate)));
    }
    let name = match &job.name {
        Some(name) => format!("{name} ({})", job.id),
        None if job.id.is_empty() || job.id == NO_JOB => state.label.clone(),
        None => format!("job {}", job.id),
    };
    pen.parts(&[(&name, bold()), ("   ", Style::new()), (&facts.join(" · "), Style::new())]);
    let at = format!("at {}", clock_time(state.now_us, "%Y-%m-%d %H:%M:%S"));
    let command = job.command.as_deref().map_or_else(|| at.clone(), |command| format!("{at}   {command}"));
    pen.line(&printable(&command), dim());
    if let Some(notice) = &state.notice {
        pen.line(&printable(notice), Style::new().fg(Color::Red).add_modifier(Modifier::BOLD));
    }
}

fn clock_time(micros: i64, format: &str) -> String {
    let time = DateTime::from_timestamp_micros(micros);
    time.map_or_else(String::new, |time| time.format(format).to_string())
}

/// What others wrote, without what moves a cursor.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn tables(state: &TopState, view: &mut TopView, pen: &mut Pen<'_>) {
    let mut nodes = state.nodes();
    nodes.retain(|line| view.nodes.keeps(&line.node));
    sort_nodes(&mut nodes, view.node_order);
    let mut metrics = state.metrics();
    metrics.retain(|line| view.metrics.keeps(&line.metric));
    if view.metric_order == MetricOrder::Value {
        metrics.sort_by(|a, b| down(a.last, b.last));
    }
    // Two heads, an empty line before each, and the line of keys; and that of metrics that are left out.
    let room = pen.left().saturating_sub(5 + usize::from(state.metrics_left_out > 0));
    let few = nodes.len().min(room / 2);
    let for_metrics = metrics.len().min(room - few);
    let for_nodes = nodes.len().min(room - for_metrics);
    pen.line("", Style::new());
    let widths = NodeWidths::of(usize::from(pen.area().width), &nodes, view);
    node_head(pen, &widths, view);
    for line in shown(&nodes, &mut view.nodes, for_nodes) {
        node_line(pen, &widths, line, state);
    }
    pen.line("", Style::new());
    let widths = MetricWidths::of(usize::from(pen.area().width), &metrics, view);
    metric_head(pen, &widths, view);
    if metrics.is_empty() && for_metrics == 0 && view.metrics.filter.is_empty() {
        pen.line("the program has sent none yet", dim());
    }
    for line in shown(&metrics, &mut view.metrics, for_metrics) {
        metric_line(pen, &widths, line, state);
    }
    if state.metrics_left_out > 0 {
        pen.line(&format!("and {} more metrics", grouped(state.metrics_left_out as u64)), dim());
    }
}

fn shown<'a, T>(lines: &'a [T], view: &mut TableView, page: usize) -> &'a [T] {
    view.page = page;
    view.offset = view.offset.min(lines.len().saturating_sub(page));
    &lines[view.offset..lines.len().min(view.offset + page)]
}

fn sort_nodes(nodes: &mut [NodeLine], order: NodeOrder) {
    let by = |nodes: &mut [NodeLine], of: fn(&NodeLine) -> &TopCurve| {
        nodes.sort_by(|a, b| down(of(a).last(), of(b).last()));
    };
    match order {
        NodeOrder::Name => {}
        NodeOrder::Cores => by(nodes, |line| &line.cores),
        NodeOrder::Memory => by(nodes, |line| &line.memory),
        NodeOrder::Network => by(nodes, |line| &line.network),
        NodeOrder::Disk => by(nodes, |line| &line.disk),
    }
}

/// The greatest first, what is unknown last.
fn down(a: Option<f64>, b: Option<f64>) -> std::cmp::Ordering {
    match (a, b) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

/// A heading and, where the table is sorted by it, a mark.
fn marked(text: &str, is_order: bool) -> String {
    if is_order { format!("{text}▼") } else { text.to_owned() }
}

fn filtered(name: &str, table: &TableView) -> String {
    if table.filter.is_empty() { name.to_owned() } else { format!("{name} /{}", table.filter) }
}

struct NodeWidths {
    name: usize,
    curve: usize,
    gpu: bool,
}

impl NodeWidths {
    fn of(width: usize, lines: &[NodeLine], view: &TopView) -> Self {
        let names = lines.iter().map(|line| line.node.chars().count());
        let name = names.max().unwrap_or(0).max(node_heading(view).chars().count()).min(NAME_MAX);
        let gpu = lines.iter().any(|line| line.gpu.last().is_some());
        let columns = if gpu { 5 } else { 4 };
        let figures = CORES + PERCENT + 2 * RATE + if gpu { PERCENT } else { 0 };
        let left = width.saturating_sub(name + figures + columns * (1 + GAP));
        Self { name, curve: (left / columns).min(CURVE_MAX), gpu }
    }
}

fn node_heading(view: &TopView) -> String {
    marked(&filtered("NODES", &view.nodes), view.node_order == NodeOrder::Name)
}

fn metric_heading(view: &TopView) -> String {
    marked(&filtered("METRICS", &view.metrics), view.metric_order == MetricOrder::Name)
}

fn node_head(pen: &mut Pen<'_>, widths: &NodeWidths, view: &TopView) {
    let order = view.node_order;
    let mut text = cut(&node_heading(view), widths.name);
    let mut column = |name: &str, figure: usize, is_order: bool| {
        text.push_str(&" ".repeat(GAP));
        text.push_str(&format!("{:>figure$} {}", marked(name, is_order), " ".repeat(widths.curve)));
    };
    column("CORES", CORES, order == NodeOrder::Cores);
    column("MEM", PERCENT, order == NodeOrder::Memory);
    column("NET B/s", RATE, order == NodeOrder::Network);
    column("DISK B/s", RATE, order == NodeOrder::Disk);
    if widths.gpu {
        column("GPU", PERCENT, false);
    }
    pen.line(&text, heading(view.focus == TopTable::Nodes));
}

fn heading(focused: bool) -> Style {
    if focused { bold().add_modifier(Modifier::REVERSED) } else { bold() }
}

fn node_line(pen: &mut Pen<'_>, widths: &NodeWidths, line: &NodeLine, state: &TopState) {
    let cores = match (line.cores.last(), line.cores_all) {
        (Some(cores), Some(all)) => format!("{cores:.2}/{all}"),
        (Some(cores), None) => format!("{cores:.2}"),
        _ => "-".to_owned(),
    };
    let percent = |curve: &TopCurve| curve.last().map_or_else(|| "-".to_owned(), |value| format!("{value:.1}%"));
    let rate = |curve: &TopCurve| curve.last().map_or_else(|| "-".to_owned(), human::bytes);
    let mut cells = vec![
        (cores, CORES, &line.cores, BarScale::From0To(line.cores_all.unwrap_or(0.0))),
        (percent(&line.memory), PERCENT, &line.memory, BarScale::From0To(100.0)),
        (rate(&line.network), RATE, &line.network, BarScale::From0To(0.0)),
        (rate(&line.disk), RATE, &line.disk, BarScale::From0To(0.0)),
    ];
    if widths.gpu {
        let value = line.gpu.last().map_or_else(|| "-".to_owned(), human::short);
        cells.push((value, PERCENT, &line.gpu, BarScale::From0To(0.0)));
    }
    let mut parts = vec![(cut(&printable(&line.node), widths.name), Style::new())];
    for (figure, width, curve, scale) in cells {
        parts.push((format!("{}{figure:>width$} ", " ".repeat(GAP)), Style::new()));
        parts.push((bars(&curve.cells(state.now_us, state.window_us, widths.curve), scale), curve_style()));
    }
    if let Some(silent) = line.silent_us {
        // In the place of figures that are old.
        let told = format!(" has sent nothing for {}", human::stretch(silent));
        parts.truncate(1);
        parts.push((told, Style::new().fg(Color::Red)));
    }
    let parts: Vec<(&str, Style)> = parts.iter().map(|(text, style)| (&**text, *style)).collect();
    pen.parts(&parts);
}

fn curve_style() -> Style {
    Style::new().fg(Color::Cyan)
}

struct MetricWidths {
    name: usize,
    unit: usize,
    curve: usize,
}

impl MetricWidths {
    fn of(width: usize, lines: &[MetricLine], view: &TopView) -> Self {
        let longest = |of: &dyn Fn(&MetricLine) -> usize| lines.iter().map(of).max().unwrap_or(0);
        let name = longest(&|line| line.metric.chars().count());
        let name = name.max(metric_heading(view).chars().count()).min(NAME_MAX);
        let unit = longest(&|line| unit(line).chars().count()).min(UNIT_MAX);
        let left = width.saturating_sub(name + SERIES + VALUE + unit + 4 * GAP);
        Self { name, unit, curve: left.min(2 * CURVE_MAX) }
    }
}

/// With `/s` for what is shown as a rate.
fn unit(line: &MetricLine) -> String {
    let unit = line.about.unit.as_deref().unwrap_or("");
    if line.about.is_counter { format!("{unit}/s") } else { unit.to_owned() }
}

fn metric_head(pen: &mut Pen<'_>, widths: &MetricWidths, view: &TopView) {
    let value = marked("LAST", view.metric_order == MetricOrder::Value);
    let text = format!("{} {:>SERIES$} {value:>VALUE$}", cut(&metric_heading(view), widths.name), "SERIES");
    pen.line(&text, heading(view.focus == TopTable::Metrics));
}

fn metric_line(pen: &mut Pen<'_>, widths: &MetricWidths, line: &MetricLine, state: &TopState) {
    let last = line.last.map_or_else(|| "-".to_owned(), human::short);
    let text = format!(
        "{} {:>SERIES$} {last:>VALUE$} {} ",
        cut(&printable(&line.metric), widths.name),
        grouped(u64::try_from(line.about.series).unwrap_or(0)),
        cut(&printable(&unit(line)), widths.unit)
    );
    let curve = bars(&line.curve.cells(state.now_us, state.window_us, widths.curve), BarScale::Own);
    pen.parts(&[(&text, Style::new()), (&curve, curve_style())]);
}

/// Exactly so wide.
fn cut(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length > width {
        let kept: String = text.chars().take(width.saturating_sub(1)).collect();
        format!("{kept}…")
    } else {
        format!("{text}{}", " ".repeat(width - length))
    }
}

/// What the lowest and the highest bar stand for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BarScale {
    /// From 0 to this, or to the greatest value if that is more.
    From0To(f64),
    /// From the least to the greatest.
    Own,
}

/// A bar for each value; a space where there is none.
pub fn bars(cells: &[Option<f64>], scale: BarScale) -> String {
    let known = || cells.iter().flatten().copied().filter(|value| value.is_finite());
    let greatest = known().fold(f64::NEG_INFINITY, f64::max);
    let (low, high) = match scale {
        BarScale::From0To(most) => (0.0, greatest.max(most)),
        BarScale::Own => (known().fold(f64::INFINITY, f64::min), greatest),
    };
    let bar = |value: f64| {
        // Halves, because a difference of the greatest numbers is none.
        let part = (value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0);
        let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
        BARS[(part * (BARS.len() - 1) as f64).round() as usize]
    };
    cells.iter().map(|cell| cell.filter(|value| value.is_finite()).map_or(' ', bar)).collect()
}
