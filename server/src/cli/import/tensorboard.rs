//! Event files of TensorBoard: scalars by tag and step, and the settings of runs (hparams).
//!
//! A scalar is a `simple_value` or a tensor of one number: TensorFlow 2 writes the latter, PyTorch and others the
//! former. The numbers of fields are those of `event.proto`, `summary.proto`, `tensor.proto` and the plugin's
//! `plugin_data.proto`.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use telem_engine::Value;

use super::Importing;
use super::file::ImportFile;
use super::report::{RefusedKind, RowPlace};
use super::steps::StepWriter;
use crate::cli::CliFailure;
use crate::cli::protobuf::{NoMessage, ProtoFields, ProtoValue, varint};
use crate::cli::tfrecord::{self, FramedRecord};

/// Tags without scalars that a message names.
const NAMED_MAX: usize = 5;
const HPARAMS: &str = "hparams";

/// The writers of a directory of logs, by run; one run may have several files.
#[derive(Debug, Default)]
pub struct EventRuns {
    writers: BTreeMap<String, StepWriter>,
    /// Settings by their name, with the run that each is of.
    settings: BTreeMap<String, Vec<(String, Json)>>,
}

/// What one event holds.
#[derive(Debug, Default)]
struct LogEvent {
    /// Seconds since 1970.
    time: f64,
    step: i64,
    values: Vec<SummaryValue>,
}

#[derive(Debug, Default)]
struct SummaryValue {
    tag: String,
    scalar: Option<Value>,
    plugin: String,
    content: Vec<u8>,
}

impl EventRuns {
    /// Takes the samples of a file.
    ///
    /// # Errors
    /// Failed when it cannot be read, or the store fails.
    pub fn read(&mut self, importing: &mut Importing, file: &ImportFile) -> Result<(), CliFailure> {
        let tags = if file.run.is_empty() { vec![] } else { vec![("run".to_owned(), file.run.clone())] };
        let writer = self.writers.entry(file.run.clone()).or_insert_with(|| StepWriter::new(tags));
        let mut from = file.text()?;
        let (mut number, mut bytes) = (0, 0);
        let mut others: BTreeMap<String, u64> = BTreeMap::new();
        loop {
            importing.store.check_stop()?;
            number += 1;
            let place = RowPlace::Record(&file.name, number);
            let record = match tfrecord::read(&mut from).map_err(|error| file.cannot_read(error))? {
                FramedRecord::Record(record) => record,
                FramedRecord::Broken => {
                    importing.report.refuse(place, RefusedKind::Record, "the checksum is not that of the data")?;
                    continue;
                }
                FramedRecord::CutOff => {
                    importing.report.refuse(place, RefusedKind::Record, "the file ends within the record")?;
                    break;
                }
                FramedRecord::Lost => {
                    let why = "its length is damaged, so the rest of the file cannot be read";
                    importing.report.refuse(place, RefusedKind::Record, why)?;
                    break;
                }
                FramedRecord::End => break,
            };
            bytes += record.len() as u64 + 16;
            importing.report.at(bytes, importing.store.accepted());
            let Ok(event) = event(&record) else {
                importing.report.refuse(place, RefusedKind::Record, "the record is no event")?;
                continue;
            };
            for summary in &event.values {
                if summary.plugin == HPARAMS {
                    for (name, value) in hparams(&summary.content).unwrap_or_default() {
                        self.settings.entry(name).or_default().push((file.run.clone(), value));
                    }
                }
            }
            let mut scalars = Vec::with_capacity(event.values.len());
            for SummaryValue { tag, scalar, plugin, .. } in event.values {
                match scalar {
                    Some(value) => scalars.push((tag, value)),
                    None if plugin == HPARAMS => {}
                    None => *others.entry(tag).or_default() += 1,
                }
            }
            let micros = (event.time * 1e6).round();
            if micros.is_nan() || micros.abs() >= 9e18 {
                importing.report.refuse(place, RefusedKind::Time, "the event has no time")?;
                continue;
            }
            for scalar in scalars {
                writer.put(micros as i64, Some(event.step), &[scalar], place, importing)?;
            }
        }
        if !others.is_empty() {
            let count: u64 = others.values().sum();
            let names: Vec<&str> = others.keys().take(NAMED_MAX).map(String::as_str).collect();
            let dots = if others.len() > NAMED_MAX { ", ..." } else { "" };
            let names = names.join(", ");
            importing.report.say(&format!(
                "{}: left out {count} summaries that are no scalars: {}{dots}",
                file.name,
                names.escape_debug()
            ));
        }
        Ok(())
    }

    /// The settings of all runs: what differs between them has the run before its name.
    pub fn settings(self) -> impl Iterator<Item = (String, Json)> {
        self.settings.into_iter().flat_map(|(name, mut values)| {
            let is_one = values.windows(2).all(|pair| pair[0].1 == pair[1].1);
            let named =
                |(run, value): (String, Json)| (if is_one { name.clone() } else { format!("{run}.{name}") }, value);
            if is_one {
                values.truncate(1);
            }
            values.into_iter().map(named).collect::<Vec<_>>()
        })
    }
}

/// What the garbage of tests is given to.
#[cfg(test)]
pub fn looked_at(record: &[u8]) -> Result<usize, NoMessage> {
    let settings = hparams(record)?.len();
    scalar(record)?;
    Ok(event(record)?.values.len() + settings)
}

fn event(record: &[u8]) -> Result<LogEvent, NoMessage> {
    let mut event = LogEvent::default();
    for field in ProtoFields::of(record) {
        match field? {
            (1, time) => event.time = time.float(),
            (2, step) => event.step = step.int(),
            (5, summary) => {
                for value in ProtoFields::of(summary.bytes()) {
                    if let (1, value) = value? {
                        event.values.push(summary_of(value.bytes())?);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(event)
}

fn summary_of(message: &[u8]) -> Result<SummaryValue, NoMessage> {
    let mut summary = SummaryValue::default();
    for field in ProtoFields::of(message) {
        match field? {
            (1, tag) => summary.tag = tag.text(),
            (2, value) => summary.scalar = Some(Value::Float(value.float())),
            (8, tensor) => summary.scalar = scalar(tensor.bytes())?,
            (9, metadata) => {
                for field in ProtoFields::of(metadata.bytes()) {
                    let (1, plugin) = field? else { continue };
                    for field in ProtoFields::of(plugin.bytes()) {
                        match field? {
                            (1, name) => summary.plugin = name.text(),
                            (2, content) => summary.content = content.bytes().to_vec(),
                            _ => {}
                        }
                    }
                }
            }
            _ => {}
        }
    }
    Ok(summary)
}

/// A type of `types.proto`, as far as it is one of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TensorType {
    Float,
    Double,
    Half,
    Bfloat,
    /// Of so many bytes, with a sign or without.
    Int(usize),
    UInt(usize),
}

impl TensorType {
    fn of(number: i64) -> Option<Self> {
        Some(match number {
            1 => Self::Float,
            2 => Self::Double,
            3 => Self::Int(4),
            4 | 10 => Self::UInt(1),
            5 => Self::Int(2),
            6 => Self::Int(1),
            9 => Self::Int(8),
            14 => Self::Bfloat,
            17 => Self::UInt(2),
            19 => Self::Half,
            22 => Self::UInt(4),
            23 => Self::UInt(8),
            _ => return None,
        })
    }

    fn width(self) -> usize {
        match self {
            Self::Float => 4,
            Self::Double => 8,
            Self::Half | Self::Bfloat => 2,
            Self::Int(bytes) | Self::UInt(bytes) => bytes,
        }
    }

    /// The value with these bits.
    fn value(self, bits: u64) -> Option<Value> {
        let float = |number: f64| Some(Value::Float(number));
        match self {
            Self::Float => float(f64::from(f32::from_bits(bits as u32))),
            Self::Double => float(f64::from_bits(bits)),
            Self::Half => float(half(bits as u16)),
            Self::Bfloat => float(f64::from(f32::from_bits((bits as u32) << 16))),
            Self::Int(bytes) => {
                let unused = 64 - 8 * bytes;
                Some(Value::Int((bits << unused).cast_signed() >> unused))
            }
            Self::UInt(_) => i64::try_from(bits).ok().map(Value::Int),
        }
    }
}

/// The number in a tensor of one element; `None` in one of more, or of texts.
fn scalar(tensor: &[u8]) -> Result<Option<Value>, NoMessage> {
    let (mut kind, mut elements, mut content) = (None, 1_i64, None);
    let mut listed: Option<u64> = None;
    for field in ProtoFields::of(tensor) {
        match field? {
            (1, number) => kind = TensorType::of(number.int()),
            (2, shape) => {
                for dimension in ProtoFields::of(shape.bytes()) {
                    let (2, dimension) = dimension? else { continue };
                    let mut size = 0;
                    for field in ProtoFields::of(dimension.bytes()) {
                        if let (1, found) = field? {
                            size = found.int();
                        }
                    }
                    elements = elements.saturating_mul(size);
                }
            }
            (4, bytes) => content = Some(bytes.bytes()),
            (5 | 6 | 7 | 10 | 11 | 13 | 16 | 17, value) => listed = listed.or(first_bits(value, kind)),
            _ => {}
        }
    }
    let Some(kind) = kind.filter(|_| elements == 1) else { return Ok(None) };
    let of_content = content
        .filter(|content| content.len() == kind.width())
        .map(|content| content.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte)));
    // A tensor of zeros may list nothing at all.
    Ok(kind.value(of_content.or(listed).unwrap_or(0)))
}

/// The bits of the first element of a list, packed or not.
fn first_bits(value: ProtoValue<'_>, kind: Option<TensorType>) -> Option<u64> {
    match value {
        ProtoValue::Varint(bits) | ProtoValue::Fixed64(bits) => Some(bits),
        ProtoValue::Fixed32(bits) => Some(u64::from(bits)),
        ProtoValue::Bytes(mut packed) => match kind? {
            TensorType::Float => Some(u64::from(u32::from_le_bytes(packed.get(..4)?.try_into().ok()?))),
            TensorType::Double => Some(u64::from_le_bytes(packed.get(..8)?.try_into().ok()?)),
            _ => varint(&mut packed),
        },
    }
}

/// IEEE 754's half precision.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    match exponent {
        0 => sign * fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => sign * f64::INFINITY,
        31 => f64::NAN,
        _ => sign * (1.0 + fraction / 1024.0) * 2_f64.powi(exponent - 15),
    }
}

/// The settings that the start of a session tells.
fn hparams(content: &[u8]) -> Result<Vec<(String, Json)>, NoMessage> {
    let mut found = Vec::new();
    for field in ProtoFields::of(content) {
        let (3, start) = field? else { continue };
        for field in ProtoFields::of(start.bytes()) {
            let (1, entry) = field? else { continue };
            let (mut name, mut value) = (String::new(), Json::Null);
            for field in ProtoFields::of(entry.bytes()) {
                match field? {
                    (1, key) => name = key.text(),
                    // A `google.protobuf.Value`.
                    (2, one) => {
                        for field in ProtoFields::of(one.bytes()) {
                            value = match field? {
                                (2, number) => plain(number.float()),
                                (3, text) => Json::from(text.text()),
                                (4, truth) => Json::from(truth.int() != 0),
                                _ => continue,
                            };
                        }
                    }
                    _ => {}
                }
            }
            if !name.is_empty() {
                found.push((name, value));
            }
        }
    }
    Ok(found)
}

/// A number as people write it: 3 and not 3.0.
fn plain(number: f64) -> Json {
    match number.fract() == 0.0 && number.abs() < 9e15 {
        true => Json::from(number as i64),
        false => Json::from(number),
    }
}

#[cfg(test)]
mod tests;
