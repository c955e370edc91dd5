//! `telem_*`: the activity and the resource use of telem itself.
//!
//! The collectors know their own ticks and this process. All other figures come from the code that starts them, which
//! knows the writer, the database and the queries.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use telem_engine::Value;

use super::cpu::TICKS_PER_SECOND;
use super::processes::{entries, parse_page_bytes, parse_stat, read};
use super::series::{Out, Slot};
use super::subject::Subject;

/// Tells name and value of metrics of the catalog, one after another.
pub type Tell = dyn Fn(&mut dyn FnMut(&'static str, Value)) + Send + Sync;

/// What others tell of themselves at every tick of level 4.
#[derive(Clone, Default)]
pub struct OwnMetrics(Option<Arc<Tell>>);

impl OwnMetrics {
    pub fn new(tell: impl Fn(&mut dyn FnMut(&'static str, Value)) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }
}

impl fmt::Debug for OwnMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnMetrics({})", if self.0.is_some() { "told" } else { "none" })
    }
}

#[derive(Debug)]
pub struct Own {
    told: OwnMetrics,
    /// In the order in which they are reported.
    slots: Vec<(&'static str, Slot)>,
    page_bytes: u64,
    file: Vec<u8>,
    directory: Vec<u8>,
}

impl Own {
    pub fn new(told: OwnMetrics) -> Self {
        let mut file = Vec::new();
        let page_bytes = read(Path::new("/proc/self/auxv"), &mut file).and_then(parse_page_bytes).unwrap_or(4_096);
        Self { told, slots: Vec::new(), page_bytes, file, directory: Vec::new() }
    }
}

impl Subject for Own {
    fn sample(&mut self, out: &mut Out<'_>) {
        let mut at = 0;
        let Self { slots, told, .. } = self;
        let ours = out.ours();
        let mut put = |name: &'static str, value: Value| {
            if slots.get(at).is_none_or(|(known, _)| *known != name) {
                slots.truncate(at);
                slots.push((name, Slot::new(name)));
            }
            out.put(&mut slots[at].1, value);
            at += 1;
        };
        for (name, value) in ours {
            put(name, *value);
        }
        let int = |value: u64| Value::Int(i64::try_from(value).unwrap_or(i64::MAX));
        // Of this process, never of a recorded one.
        if let Some(stat) = read(Path::new("/proc/self/stat"), &mut self.file).and_then(parse_stat) {
            put("telem_server_cpu_seconds_total", Value::Float(stat.ticks as f64 / TICKS_PER_SECOND));
            let resident = stat.resident_pages.saturating_mul(self.page_bytes);
            put("telem_server_resident_memory_bytes", int(resident));
            put("telem_server_threads", int(stat.threads));
            if let Some(open) = entries(Path::new("/proc/self/fd"), &mut self.directory) {
                put("telem_server_open_fds", int(open));
            }
        }
        if let Some(tell) = &told.0 {
            tell(&mut put);
        }
    }
}
