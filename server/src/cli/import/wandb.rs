//! Offline runs of wandb: the history by step, the machine's figures as metrics `wandb.*`, and what the run is called
//! and was started with. The numbers of fields are those of `wandb_internal.proto`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json};
use telem_engine::Value;

use super::Importing;
use super::file::ImportFile;
use super::leveldb::{LogReader, LogRecord};
use super::report::{RefusedKind, RowPlace};
use super::steps::StepWriter;
use super::table::number_of;
use crate::cli::CliFailure;
use crate::cli::protobuf::{NoMessage, ProtoFields};
use crate::settings::SETTING_BYTES_MAX;

/// What stands before the names of the machine's figures.
const STATS: &str = "wandb.";
/// What wandb keeps for itself in a history or in settings.
const OWN: &str = "_wandb";
/// How deep objects in values may lie.
const DEPTH_MAX: usize = 16;
/// Names without numbers that a message has.
const NAMED_MAX: usize = 5;

/// Takes the samples of a run.
///
/// # Errors
/// Failed when the file cannot be read, or the store fails.
pub fn read(importing: &mut Importing, file: &ImportFile) -> Result<(), CliFailure> {
    let mut log = LogReader::new(file.text()?).map_err(|error| file.cannot_read(error))?;
    let mut run = OfflineRun::new(file);
    let (mut number, mut bytes) = (0, 0);
    loop {
        importing.store.check_stop()?;
        number += 1;
        let place = RowPlace::Record(&file.name, number);
        match log.next().map_err(|error| file.cannot_read(error))? {
            LogRecord::Record(record) => {
                bytes += record.len() as u64;
                importing.report.at(bytes, importing.store.accepted());
                run.record(&record, place, importing)?;
            }
            LogRecord::Broken(why) => importing.report.refuse(place, RefusedKind::Record, why)?,
            LogRecord::CutOff => {
                importing.report.refuse(place, RefusedKind::Record, "the file ends within the record")?;
                break;
            }
            LogRecord::End => break,
        }
    }
    run.finish(importing);
    Ok(())
}

struct OfflineRun<'f> {
    file: &'f ImportFile,
    history: StepWriter,
    stats: StepWriter,
    settings: Map<String, Json>,
    /// Names in the history whose values are no numbers, and how many of those there are.
    others: (u64, BTreeSet<String>),
}

impl<'f> OfflineRun<'f> {
    fn new(file: &'f ImportFile) -> Self {
        Self {
            file,
            history: StepWriter::default(),
            stats: StepWriter::default(),
            settings: Map::new(),
            others: (0, BTreeSet::new()),
        }
    }

    fn record(&mut self, record: &[u8], place: RowPlace<'_>, importing: &mut Importing) -> Result<(), CliFailure> {
        for field in ProtoFields::of(record) {
            let done = match field {
                Ok((2, history)) => self.history(history.bytes(), place, importing),
                Ok((5, config)) => self.config(config.bytes()).map(Ok),
                Ok((7, stats)) => self.stats(stats.bytes(), place, importing),
                Ok((17, run)) => self.run(run.bytes(), importing).map(Ok),
                Ok((18, exit)) => exit_code(exit.bytes()).map(|code| {
                    importing.run.exit_code = Some(code);
                    Ok(())
                }),
                Ok(_) => continue,
                Err(broken) => Err(broken),
            };
            match done {
                Ok(stored) => stored?,
                Err(broken) => {
                    return importing.report.refuse(place, RefusedKind::Record, &broken.to_string());
                }
            }
        }
        Ok(())
    }

    fn history(
        &mut self,
        message: &[u8],
        place: RowPlace<'_>,
        importing: &mut Importing,
    ) -> Result<Result<(), CliFailure>, NoMessage> {
        let (mut step, mut time, mut values) = (None, None, Vec::new());
        for field in ProtoFields::of(message) {
            match field? {
                (1, item) => {
                    let (name, json) = item_of(item.bytes())?;
                    match (&*name, number(&json)) {
                        ("_timestamp", Some(number)) => time = Some(number.as_f64()),
                        ("_step", Some(number)) => step = step.or(Some(number.as_f64() as i64)),
                        (own, _) if own == OWN || own.starts_with("_wandb.") => {}
                        (_, Some(number)) => values.push((name, number)),
                        (_, None) => self.inner(&name, &json, DEPTH_MAX, &mut values),
                    }
                }
                (2, message) => {
                    for field in ProtoFields::of(message.bytes()) {
                        if let (1, number) = field? {
                            step = Some(number.int());
                        }
                    }
                }
                _ => {}
            }
        }
        let Some(micros) = time.map(|time| (time * 1e6).round()).filter(|micros| micros.abs() < 9e18) else {
            let why = "the row of the history has no _timestamp";
            return Ok(importing.report.refuse(place, RefusedKind::Time, why));
        };
        Ok(self.history.put(micros as i64, step, &values, place, importing))
    }

    /// The numbers in an object; the rest is counted.
    fn inner(&mut self, name: &str, json: &str, depth: usize, values: &mut Vec<(String, Value)>) {
        let object: Option<BTreeMap<String, Box<serde_json::value::RawValue>>> =
            if json.starts_with('{') && depth > 0 { serde_json::from_str(json).ok() } else { None };
        match object.filter(|object| !object.contains_key("_type")) {
            Some(object) => {
                for (key, raw) in object {
                    let name = format!("{name}.{key}");
                    match number(raw.get()) {
                        Some(number) => values.push((name, number)),
                        None => self.inner(&name, raw.get(), depth - 1, values),
                    }
                }
            }
            None if json == "null" => {}
            None => {
                self.others.0 += 1;
                if self.others.1.len() <= NAMED_MAX {
                    self.others.1.insert(name.to_owned());
                }
            }
        }
    }

    fn stats(
        &mut self,
        message: &[u8],
        place: RowPlace<'_>,
        importing: &mut Importing,
    ) -> Result<Result<(), CliFailure>, NoMessage> {
        let (mut micros, mut values) = (None, Vec::new());
        for field in ProtoFields::of(message) {
            match field? {
                (2, time) => micros = Some(micros_of(time.bytes())?),
                (3, item) => {
                    let (name, json) = item_of(item.bytes())?;
                    values.extend(number(&json).map(|number| (format!("{STATS}{name}"), number)));
                }
                _ => {}
            }
        }
        let Some(micros) = micros else {
            return Ok(importing.report.refuse(place, RefusedKind::Time, "the figures have no time"));
        };
        Ok(self.stats.put(micros, None, &values, place, importing))
    }

    fn config(&mut self, message: &[u8]) -> Result<(), NoMessage> {
        for field in ProtoFields::of(message) {
            match field? {
                (1, item) => {
                    let (name, json) = item_of(item.bytes())?;
                    if name != OWN && !name.starts_with("_wandb.") {
                        self.settings.insert(name, serde_json::from_str(&json).unwrap_or(Json::String(json)));
                    }
                }
                (2, item) => {
                    let (name, _) = item_of(item.bytes())?;
                    self.settings.remove(&name);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn run(&mut self, message: &[u8], importing: &mut Importing) -> Result<(), NoMessage> {
        for field in ProtoFields::of(message) {
            let run = &mut importing.run;
            let (number, value) = field?;
            match number {
                4 => self.config(value.bytes())?,
                8 => run.name = Some(value.text()).filter(|name| !name.is_empty()),
                1 | 3 | 6 | 7 | 9 if !value.bytes().is_empty() => {
                    let name = match number {
                        1 => "wandb.id",
                        3 => "wandb.project",
                        6 => "wandb.group",
                        7 => "wandb.job_type",
                        _ => "wandb.notes",
                    };
                    run.tags.insert(name.to_owned(), Json::from(cut(value.text())));
                }
                10 => {
                    let known = run.tags.get("wandb.tags").and_then(Json::as_str);
                    let all = known.map_or_else(|| value.text(), |known| format!("{known},{}", value.text()));
                    run.tags.insert("wandb.tags".to_owned(), Json::from(cut(all)));
                }
                13 if run.node.is_none() && !value.bytes().is_empty() => {
                    let host = value.text();
                    importing.store.set_default_node(&host);
                    run.node = Some(host);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn finish(self, importing: &mut Importing) {
        importing.run.settings.extend(self.settings);
        let (count, names) = self.others;
        if count > 0 {
            let dots = if names.len() > NAMED_MAX { ", ..." } else { "" };
            let names: Vec<&str> = names.iter().take(NAMED_MAX).map(String::as_str).collect();
            let names = names.join(", ");
            let values = if count == 1 {
                "value of the history that is no number"
            } else {
                "values of the history that are no numbers"
            };
            importing.report.say(&format!(
                "{}: left out {count} {values}: {}{dots}",
                self.file.name,
                names.escape_debug()
            ));
        }
    }
}

/// The name of an item, that of one in objects with dots, and its value as JSON.
fn item_of(message: &[u8]) -> Result<(String, String), NoMessage> {
    let (mut key, mut nested, mut json) = (String::new(), Vec::new(), String::new());
    for field in ProtoFields::of(message) {
        match field? {
            (1, name) => key = name.text(),
            (2, name) => nested.push(name.text()),
            (16, value) => json = value.text(),
            _ => {}
        }
    }
    Ok((if nested.is_empty() { key } else { nested.join(".") }, json))
}

fn number(json: &str) -> Option<Value> {
    match json {
        "true" => Some(Value::Int(1)),
        "false" => Some(Value::Int(0)),
        // Written as texts by some versions.
        "\"NaN\"" => Some(Value::Float(f64::NAN)),
        "\"Infinity\"" => Some(Value::Float(f64::INFINITY)),
        "\"-Infinity\"" => Some(Value::Float(f64::NEG_INFINITY)),
        text => match text.as_bytes().first() {
            Some(b'"' | b'[' | b'{' | b'n') | None => None,
            Some(_) => number_of(text).ok(),
        },
    }
}

/// A `google.protobuf.Timestamp`, in microseconds.
fn micros_of(message: &[u8]) -> Result<i64, NoMessage> {
    let (mut seconds, mut nanos) = (0_i64, 0);
    for field in ProtoFields::of(message) {
        match field? {
            (1, number) => seconds = number.int(),
            (2, number) => nanos = number.int(),
            _ => {}
        }
    }
    Ok(seconds.saturating_mul(1_000_000).saturating_add(nanos / 1_000))
}

fn exit_code(message: &[u8]) -> Result<i64, NoMessage> {
    let mut code = 0;
    for field in ProtoFields::of(message) {
        if let (1, number) = field? {
            code = number.int();
        }
    }
    Ok(code)
}

/// So much of a text as a setting holds.
fn cut(text: String) -> String {
    if text.len() <= SETTING_BYTES_MAX { text } else { text[..text.floor_char_boundary(SETTING_BYTES_MAX)].to_owned() }
}
