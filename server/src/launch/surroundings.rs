//! The environment and the files of this process, as input for the parsers of schedulers' variables.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::scheduler::{FILE_BYTES_MAX, Surroundings};
use crate::config;

/// What this process was started with.
#[derive(Clone, Copy, Debug)]
pub struct ThisProcess;

impl Surroundings for ThisProcess {
    fn variable(&self, name: &str) -> Option<String> {
        config::environment(name)
    }

    fn file(&self, path: &Path) -> io::Result<String> {
        let mut text = String::new();
        File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes")));
        }
        Ok(text)
    }
}
