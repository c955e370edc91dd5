//! Offline runs of wandb: the history by step, the machine's figures as metrics `wandb.*`, and what the run is called
//! and was started with.

mod messages;

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use serde_json::{Map, Value as Json};
use telem_engine::Value;

use self::messages::{ConfigRecord, HistoryRecord, StatsRecord, WandbContent, WandbItem, WandbRecord, WandbRun};
use super::Importing;
use super::file::ImportFile;
use super::leveldb::{LogReader, LogRecord};
use super::report::{RefusedKind, RowPlace};
use super::steps::StepWriter;
use super::table::number_of;
use crate::cli::CliFailure;
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
        let Ok(record) = WandbRecord::decode(record) else {
            return importing.report.refuse(place, RefusedKind::Record, "the record is no protobuf message");
        };
        match record.content {
            Some(WandbContent::History(history)) => self.history(history, place, importing)?,
            Some(WandbContent::Config(config)) => self.config(config),
            Some(WandbContent::Stats(stats)) => self.stats(stats, place, importing)?,
            Some(WandbContent::Run(run)) => self.run(run, importing),
            Some(WandbContent::Exit(exit)) => importing.run.exit_code = Some(exit.exit_code.into()),
            None => {}
        }
        Ok(())
    }

    fn history(
        &mut self,
        history: HistoryRecord,
        place: RowPlace<'_>,
        importing: &mut Importing,
    ) -> Result<(), CliFailure> {
        let (mut step, mut time, mut values) = (history.step.map(|step| step.num), None, Vec::new());
        for item in history.item {
            let name = item.name();
            match (&*name, number(&item.value_json)) {
                ("_timestamp", Some(number)) => time = Some(number.as_f64()),
                ("_step", Some(number)) => step = step.or(Some(number.as_f64() as i64)),
                (own, _) if is_own(own) => {}
                (_, Some(number)) => values.push((name, number)),
                (_, None) => self.inner(&name, &item.value_json, DEPTH_MAX, &mut values),
            }
        }
        let Some(micros) = time.map(|time| (time * 1e6).round()).filter(|micros| micros.abs() < 9e18) else {
            let why = "the row of the history has no _timestamp";
            return importing.report.refuse(place, RefusedKind::Time, why);
        };
        self.history.put(micros as i64, step, &values, place, importing)
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

    fn stats(&mut self, stats: StatsRecord, place: RowPlace<'_>, importing: &mut Importing) -> Result<(), CliFailure> {
        let Some(time) = stats.timestamp else {
            return importing.report.refuse(place, RefusedKind::Time, "the figures have no time");
        };
        let micros = time.seconds.saturating_mul(1_000_000).saturating_add(i64::from(time.nanos) / 1_000);
        let figure = |item: WandbItem| Some((format!("{STATS}{}", item.name()), number(&item.value_json)?));
        let values: Vec<(String, Value)> = stats.item.into_iter().filter_map(figure).collect();
        self.stats.put(micros, None, &values, place, importing)
    }

    fn config(&mut self, config: ConfigRecord) {
        for item in config.update {
            let name = item.name();
            if !is_own(&name) {
                let json = serde_json::from_str(&item.value_json).unwrap_or(Json::String(item.value_json));
                self.settings.insert(name, json);
            }
        }
        for item in config.remove {
            self.settings.remove(&item.name());
        }
    }

    fn run(&mut self, record: WandbRun, importing: &mut Importing) {
        self.config(record.config.unwrap_or_default());
        let run = &mut importing.run;
        for (name, text) in [
            ("wandb.id", record.run_id),
            ("wandb.project", record.project),
            ("wandb.group", record.run_group),
            ("wandb.job_type", record.job_type),
            ("wandb.notes", record.notes),
            ("wandb.tags", record.tags.join(",")),
        ] {
            if !text.is_empty() {
                run.tags.insert(name.to_owned(), Json::from(cut(text)));
            }
        }
        if !record.display_name.is_empty() {
            run.name = Some(record.display_name);
        }
        if run.node.is_none() && !record.host.is_empty() {
            importing.store.set_default_node(&record.host);
            run.node = Some(record.host);
        }
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

/// Whether wandb keeps it for itself.
fn is_own(name: &str) -> bool {
    name == OWN || name.starts_with("_wandb.")
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

/// What the garbage of tests is given to.
#[cfg(test)]
pub fn looked_at(record: &[u8]) -> bool {
    WandbRecord::decode(record).is_ok_and(|record| record.content.is_some())
}

/// So much of a text as a setting holds.
fn cut(text: String) -> String {
    if text.len() <= SETTING_BYTES_MAX { text } else { text[..text.floor_char_boundary(SETTING_BYTES_MAX)].to_owned() }
}
