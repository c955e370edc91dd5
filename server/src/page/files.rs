//! The files of the page, in the binary: a line each.

use super::PageFile;

const STYLE: &str = "text/css; charset=UTF-8";
const SCRIPT: &str = "text/javascript; charset=UTF-8";

/// The document, in which `{HASH}` stands for the hash of all files.
pub const INDEX: &str = include_str!("assets/index.html");

macro_rules! asset {
    ($name:literal, $media:expr) => {
        PageFile { name: $name, media: $media, text: include_str!(concat!("assets/", $name)) }
    };
}

/// What the document loads.
pub const FILES: &[PageFile] = &[
    asset!("style.css", STYLE),
    asset!("app.js", SCRIPT),
    asset!("ask.js", SCRIPT),
    asset!("board.js", SCRIPT),
    asset!("chart.js", SCRIPT),
    asset!("compare.js", SCRIPT),
    asset!("dom.js", SCRIPT),
    asset!("heat.js", SCRIPT),
    asset!("job.js", SCRIPT),
    asset!("lag.js", SCRIPT),
    asset!("metrics.js", SCRIPT),
    asset!("node.js", SCRIPT),
    asset!("nodes.js", SCRIPT),
    asset!("notes.js", SCRIPT),
    asset!("panel.js", SCRIPT),
    asset!("records.js", SCRIPT),
    asset!("ruler.js", SCRIPT),
    asset!("self.js", SCRIPT),
    asset!("series.js", SCRIPT),
    asset!("spark.js", SCRIPT),
    asset!("sql.js", SCRIPT),
    asset!("state.js", SCRIPT),
    asset!("time.js", SCRIPT),
    asset!("units.js", SCRIPT),
];
