//! Event files of TensorBoard: scalars by tag and step, and the settings of runs (hparams).
//!
//! A scalar is a `simple_value` or a tensor of one number: TensorFlow 2 writes the latter, PyTorch and others the
//! former.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::{DecodeError, Message};
use serde_json::Value as Json;
use telem_engine::Value;

use super::Importing;
use super::file::ImportFile;
use super::report::{RefusedKind, RowPlace};
use super::steps::StepWriter;
use crate::cli::CliFailure;
use crate::cli::tensorboard::{HparamKind, HparamValue, HparamsData, LogEvent, SummaryContent, SummaryValue, Tensor};
use crate::cli::tfrecord::{self, FramedRecord};

/// Tags without scalars that a message names.
const NAMED_MAX: usize = 5;
const HPARAMS: &str = "hparams";
/// A tensor of more bytes holds more than a number, and is not looked into.
const SCALAR_BYTES_MAX: usize = 64 << 10;

/// The writers of a directory of logs, by run; one run may have several files.
#[derive(Debug, Default)]
pub struct EventRuns {
    writers: BTreeMap<String, StepWriter>,
    /// Settings by their name, with the run that each is of.
    settings: BTreeMap<String, Vec<(String, Json)>>,
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
            let Ok(event) = LogEvent::decode(Bytes::from(record)) else {
                importing.report.refuse(place, RefusedKind::Record, "the record is no event")?;
                continue;
            };
            let values = event.summary.unwrap_or_default().value;
            let mut scalars = Vec::with_capacity(values.len());
            for summary in values {
                let settings = summary.plugin().filter(|plugin| plugin.plugin_name == HPARAMS);
                for (name, value) in settings.and_then(|plugin| hparams(&plugin.content).ok()).into_iter().flatten() {
                    self.settings.entry(name).or_default().push((file.run.clone(), value));
                }
                match scalar_of(&summary) {
                    Some(value) => scalars.push((summary.tag, value)),
                    None if settings.is_some() => {}
                    None => *others.entry(summary.tag).or_default() += 1,
                }
            }
            let micros = (event.wall_time * 1e6).round();
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
pub fn looked_at(record: Vec<u8>) -> Result<usize, DecodeError> {
    let record = Bytes::from(record);
    let settings = hparams(&record)?.len();
    Tensor::decode(record.clone()).map(|tensor| scalar(&tensor))?;
    let values = LogEvent::decode(record)?.summary.unwrap_or_default().value;
    Ok(values.iter().filter(|value| scalar_of(value).is_some()).count() + settings)
}

/// The number of a summary; `None` where it is something else.
fn scalar_of(summary: &SummaryValue) -> Option<Value> {
    match summary.value.as_ref()? {
        SummaryContent::SimpleValue(number) => Some(Value::Float(f64::from(*number))),
        SummaryContent::Tensor(tensor) if tensor.len() > SCALAR_BYTES_MAX => None,
        SummaryContent::Tensor(tensor) => scalar(&Tensor::decode(tensor.clone()).ok()?),
    }
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
    fn of(number: i32) -> Option<Self> {
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
fn scalar(tensor: &Tensor) -> Option<Value> {
    let dimensions = tensor.tensor_shape.iter().flat_map(|shape| &shape.dim);
    let elements = dimensions.fold(1_i64, |elements, dimension| elements.saturating_mul(dimension.size));
    let kind = TensorType::of(tensor.dtype).filter(|_| elements == 1)?;
    let content = &tensor.tensor_content;
    let of_content = (content.len() == kind.width())
        .then(|| content.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte)));
    // A tensor of zeros may list nothing at all.
    kind.value(of_content.or_else(|| listed(tensor, kind)).unwrap_or(0))
}

/// The bits of the first number that is listed.
fn listed(tensor: &Tensor, kind: TensorType) -> Option<u64> {
    let extended = |number: &i32| i64::from(*number).cast_unsigned();
    match kind {
        TensorType::Float => tensor.float_val.first().map(|number| u64::from(number.to_bits())),
        TensorType::Double => tensor.double_val.first().map(|number| number.to_bits()),
        TensorType::Half | TensorType::Bfloat => tensor.half_val.first().map(extended),
        TensorType::Int(8) => tensor.int64_val.first().map(|number| number.cast_unsigned()),
        TensorType::UInt(8) => tensor.uint64_val.first().copied(),
        TensorType::UInt(4) => tensor.uint32_val.first().copied().map(u64::from),
        TensorType::Int(_) | TensorType::UInt(_) => {
            let truth = || tensor.bool_val.first().copied().map(u64::from);
            tensor.int_val.first().map(extended).or_else(truth)
        }
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
fn hparams(content: &Bytes) -> Result<Vec<(String, Json)>, DecodeError> {
    let started = HparamsData::decode(content.clone())?.session_start_info.unwrap_or_default();
    let json = |value: HparamValue| match value.kind {
        Some(HparamKind::Number(number)) => plain(number),
        Some(HparamKind::Text(text)) => Json::from(text),
        Some(HparamKind::Truth(truth)) => Json::from(truth),
        None => Json::Null,
    };
    let named = started.hparams.into_iter().filter(|(name, _)| !name.is_empty());
    Ok(named.map(|(name, value)| (name, json(value))).collect())
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
