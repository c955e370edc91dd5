//! Parts of pages that load nothing: tables, and curves above each other.

use std::fmt::Write;

use crate::info::human;

/// Of curves, in turn; told apart also by people who see few colours.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
/// Points of a drawn curve.
const POINTS_MAX: usize = 1_000;
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 160.0;
pub const STYLE: &str = "body{font:14px/1.4 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0;display:block;overflow-x:auto}td,th{padding:.2em .7em;text-align:right;\
border-bottom:1px solid #ddd;white-space:nowrap}td:first-child,th:first-child{text-align:left}\
figure{margin:1.5em 0}figcaption{font-weight:600}svg{background:#fafafa;width:100%;max-width:640px;height:auto}\
.axis{font-size:11px;fill:#666}";

/// A table below a heading.
pub fn table(
    page: &mut String,
    title: &str,
    head: Vec<String>,
    rows: impl Iterator<Item = Vec<String>>,
) -> std::fmt::Result {
    let cells = |row: &[String], tag: &str| -> String {
        row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect()
    };
    writeln!(page, "<h2>{title}</h2>\n<table><tr>{}</tr>", cells(&head, "th"))?;
    for row in rows {
        writeln!(page, "<tr>{}</tr>", cells(&row, "td"))?;
    }
    writeln!(page, "</table>")
}

/// Curves over one axis, which is in `unit`; nothing where no curve has a point.
pub fn figure(page: &mut String, title: &str, unit: &str, curves: &[Vec<(f64, f64)>]) -> std::fmt::Result {
    let points = || curves.iter().flatten().filter(|(_, value)| value.is_finite());
    let (Some((left, right)), Some((low, high))) = (range(points().map(|(x, _)| *x)), range(points().map(|(_, y)| *y)))
    else {
        return Ok(());
    };
    writeln!(page, "<figure><figcaption>{}</figcaption>", escaped(title))?;
    writeln!(page, "<svg viewBox=\"-70 -10 {} {}\" role=\"img\">", WIDTH + 80.0, HEIGHT + 35.0)?;
    let across = |x: f64| if right > left { (x - left) / (right - left) * WIDTH } else { WIDTH / 2.0 };
    // Halves, since the difference of the greatest numbers is none.
    let up = |y: f64| {
        if high > low { HEIGHT - (y / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0) * HEIGHT } else { HEIGHT / 2.0 }
    };
    for (value, y) in [(high, 4.0), (low, HEIGHT)] {
        writeln!(page, "<text class=\"axis\" x=\"-4\" y=\"{y}\" text-anchor=\"end\">{}</text>", human::short(value))?;
    }
    for (value, x, anchor) in [(left, 0.0, "start"), (right, WIDTH, "end")] {
        let (y, text) = (HEIGHT + 18.0, human::short(value));
        writeln!(page, "<text class=\"axis\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}{unit}</text>")?;
    }
    for (at, curve) in curves.iter().enumerate() {
        let points: Vec<String> =
            thinned(curve).iter().map(|(x, y)| format!("{:.1},{:.1}", across(*x), up(*y))).collect();
        let (colour, joined) = (colour(at), points.join(" "));
        match &*points {
            [] => {}
            [point] => {
                let (x, y) = point.split_once(',').unwrap_or_default();
                writeln!(page, "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>")?;
            }
            _ => writeln!(
                page,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{joined}\"/>"
            )?,
        }
    }
    writeln!(page, "</svg></figure>")
}

/// At most so many points: of neighbours the first.
fn thinned(curve: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let each = curve.len().div_ceil(POINTS_MAX).max(1);
    let points = curve.iter().filter(|(_, value)| value.is_finite());
    points.step_by(each).copied().collect()
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
    })
}

pub fn colour(at: usize) -> &'static str {
    COLOURS[at % COLOURS.len()]
}

pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}
