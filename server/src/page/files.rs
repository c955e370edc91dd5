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
pub const FILES: &[PageFile] = &[asset!("style.css", STYLE), asset!("app.js", SCRIPT)];
