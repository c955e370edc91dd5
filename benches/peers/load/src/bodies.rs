//! Request bodies, rendered before the clock starts, in a file of `samples u32, bytes u32, body` (little endian).

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use crate::{Data, Failed, Row, Value};

/// Samples in a request: what busy senders of each kind put into one.
const LINES_SAMPLES: u32 = 10_000;
const PUT_SAMPLES: u32 = 1_000;
const REMOTE_SAMPLES: u32 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// InfluxDB's line protocol; the fields of one set of tags in one line, times in nanoseconds.
    Lines,
    /// JSON of OpenTSDB's `/api/put`, times in milliseconds.
    Put,
    /// Prometheus' remote write: protobuf in snappy, one sample a series.
    Remote,
}

impl Protocol {
    pub fn by_name(name: &str) -> Result<Self, Failed> {
        match name {
            "lines" => Ok(Self::Lines),
            "put" => Ok(Self::Put),
            "remote" => Ok(Self::Remote),
            _ => Err(format!("no protocol '{name}': lines, put, remote").into()),
        }
    }

    fn samples_max(self) -> u32 {
        match self {
            Self::Lines => LINES_SAMPLES,
            Self::Put => PUT_SAMPLES,
            Self::Remote => REMOTE_SAMPLES,
        }
    }
}

/// One request.
#[derive(Debug)]
pub struct Body {
    pub samples: u32,
    pub bytes: Vec<u8>,
}

/// Renders `data` into a file; a line of JSON about it.
///
/// # Errors
/// When the data cannot be read or the file not be written.
pub fn write(data: &dyn Data, protocol: Protocol, out: &Path, samples_max: u64) -> Result<String, Failed> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(out)?);
    let (mut samples, mut bytes, mut bodies, mut hash) = (0_u64, 0_u64, 0_u64, FNV_START);
    render(data, protocol, samples_max, &mut |body| {
        samples += u64::from(body.samples);
        bytes += body.bytes.len() as u64;
        bodies += 1;
        hash = fnv(hash, &body.bytes);
        file.write_all(&body.samples.to_le_bytes())?;
        file.write_all(&u32::try_from(body.bytes.len())?.to_le_bytes())?;
        Ok(file.write_all(&body.bytes)?)
    })?;
    file.flush()?;
    Ok(format!(r#"{{"samples":{samples},"bodies":{bodies},"bytes":{bytes},"fnv1a":"{hash:016x}"}}"#))
}

/// The bodies of a file, as long as they hold no more than `samples_max` samples.
///
/// # Errors
/// When it cannot be read, or ends within a body.
pub fn read(file: &Path, samples_max: u64) -> Result<Vec<Body>, Failed> {
    let mut all = Vec::new();
    File::open(file).map_err(|error| format!("{}: {error}", file.display()))?.read_to_end(&mut all)?;
    let mut rest = &*all;
    let (mut bodies, mut samples) = (Vec::new(), 0);
    while let Some((head, after)) = rest.split_first_chunk::<8>() {
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let length = number(4) as usize;
        samples += u64::from(number(0));
        if samples > samples_max {
            break;
        }
        let bytes = after.get(..length).ok_or_else(|| format!("{}: ends within a body", file.display()))?;
        bodies.push(Body { samples: number(0), bytes: bytes.to_vec() });
        rest = &after[length..];
    }
    Ok(bodies)
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, by words of eight bytes: to see whether two runs had the same data.
fn fnv(mut hash: u64, bytes: &[u8]) -> u64 {
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash
}

/// Gives each body to `take`, in the order of arrival.
///
/// # Errors
/// Those of the data and of `take`.
pub fn render(
    data: &dyn Data,
    protocol: Protocol,
    samples_max: u64,
    take: &mut dyn FnMut(Body) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let mut text = String::new();
    let mut packed = Vec::new();
    let (mut count, mut total) = (0_u32, 0_u64);
    let mut finish = |text: &mut String, packed: &mut Vec<u8>, count: &mut u32| -> Result<(), Failed> {
        let bytes = match protocol {
            Protocol::Lines => std::mem::take(text).into_bytes(),
            Protocol::Put => {
                text.push(']');
                std::mem::take(text).into_bytes()
            }
            Protocol::Remote => snap::raw::Encoder::new().compress_vec(&std::mem::take(packed))?,
        };
        take(Body { samples: std::mem::take(count), bytes })
    };
    data.each_row(&mut |row| {
        if total + row.values.len() as u64 > samples_max {
            return Ok(());
        }
        total += row.values.len() as u64;
        if count > 0 && count + row.values.len() as u32 > protocol.samples_max() {
            finish(&mut text, &mut packed, &mut count)?;
        }
        match protocol {
            Protocol::Lines => line(&mut text, row),
            Protocol::Put => points(&mut text, row),
            Protocol::Remote => time_series(&mut packed, row),
        }
        count += row.values.len() as u32;
        Ok(())
    })?;
    if count > 0 {
        finish(&mut text, &mut packed, &mut count)?;
    }
    Ok(())
}

/// As every language prints it: with a point if it is a float, the shortest text that reads back.
fn number(text: &mut String, value: Value, int: &str) {
    // Strings take everything.
    let _ = match value {
        Value::Int(value) => write!(text, "{value}{int}"),
        Value::Float(value) => write!(text, "{value:?}"),
    };
}

fn line(text: &mut String, row: &Row) {
    text.push_str(&row.subject.measurement);
    for (key, value) in &row.subject.tags {
        text.extend([",", key, "=", value]);
    }
    for (at, (field, value)) in row.subject.fields.iter().zip(row.values).enumerate() {
        text.extend([if at == 0 { " " } else { "," }, field, "="]);
        number(text, *value, "i");
    }
    let _ = writeln!(text, " {}000000", row.time_ms);
}

fn points(text: &mut String, row: &Row) {
    for (field, value) in row.values.iter().enumerate() {
        text.push(if text.is_empty() { '[' } else { ',' });
        let metric = row.subject.metric(field);
        let _ = write!(text, r#"{{"metric":"{metric}","timestamp":{},"value":"#, row.time_ms);
        number(text, *value, "");
        text.push_str(r#","tags":{"#);
        for (at, (key, value)) in row.subject.tags.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(text, r#"{comma}"{key}":"{value}""#);
        }
        text.push_str("}}");
    }
}

/// `repeated TimeSeries timeseries = 1` of a WriteRequest, each with its labels and one sample.
fn time_series(out: &mut Vec<u8>, row: &Row) {
    let mut series = Vec::new();
    for (field, value) in row.values.iter().enumerate() {
        series.clear();
        // "__name__" comes before every tag in the order of bytes, in which labels must be.
        label(&mut series, "__name__", &row.subject.metric(field));
        for (key, value) in &row.subject.tags {
            label(&mut series, key, value);
        }
        let value = match *value {
            Value::Int(value) => value as f64,
            Value::Float(value) => value,
        };
        let mut sample = vec![0x09];
        sample.extend(value.to_le_bytes());
        sample.push(0x10);
        varint(&mut sample, row.time_ms as u64);
        field_bytes(&mut series, 2, &sample);
        field_bytes(out, 1, &series);
    }
}

fn label(out: &mut Vec<u8>, name: &str, value: &str) {
    let mut label = Vec::with_capacity(name.len() + value.len() + 4);
    field_bytes(&mut label, 1, name.as_bytes());
    field_bytes(&mut label, 2, value.as_bytes());
    field_bytes(out, 1, &label);
}

/// A protobuf field of bytes.
fn field_bytes(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(number << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
