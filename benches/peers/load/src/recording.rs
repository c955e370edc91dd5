//! A recording of a real machine's `/proc`, as `benches/record_proc.py` writes it: one line per sample, separated by
//! tabs.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use crate::{Data, Failed, Row, Subject, Value};

#[derive(Debug)]
pub struct Recording {
    file: PathBuf,
}

/// Neighbouring lines of one time, one set of tags and one measurement.
#[derive(Default)]
struct Gathered {
    time_ms: i64,
    measurement: String,
    tags: String,
    fields: Vec<String>,
    values: Vec<Value>,
}

impl Recording {
    pub fn new(file: PathBuf) -> Self {
        Self { file }
    }
}

impl Gathered {
    fn flush(
        &mut self,
        known: &mut HashMap<String, u32>,
        row: &mut dyn FnMut(&Row) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        if self.values.is_empty() {
            return Ok(());
        }
        let tags = self.tags.split(',').filter_map(|tag| tag.split_once('='));
        let mut tags: Vec<_> = tags.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        tags.sort();
        let fields = std::mem::take(&mut self.fields);
        let subject = Subject { measurement: self.measurement.clone(), tags, fields };
        let series: Vec<u32> = (0..subject.fields.len())
            .map(|field| {
                let next = known.len() as u32;
                *known.entry(format!("{} {}", subject.metric(field), self.tags)).or_insert(next)
            })
            .collect();
        row(&Row { series: &series, subject: &subject, time_ms: self.time_ms, values: &self.values })?;
        self.values.clear();
        Ok(())
    }
}

impl Data for Recording {
    fn each_row(&self, row: &mut dyn FnMut(&Row) -> Result<(), Failed>) -> Result<(), Failed> {
        let file = File::open(&self.file).map_err(|error| format!("{}: {error}", self.file.display()))?;
        let mut known = HashMap::new();
        let mut gathered = Gathered::default();
        for (number, line) in BufReader::new(file).lines().enumerate() {
            let line = line?;
            let wrong = || format!("{}: line {} is no sample: {line}", self.file.display(), number + 1);
            let mut parts = line.split('\t');
            let (Some(time), Some(metric), Some(tags), Some(value)) =
                (parts.next(), parts.next(), parts.next(), parts.next())
            else {
                return Err(wrong().into());
            };
            let time_ms = time.parse().map_err(|_| wrong())?;
            let value =
                value.parse().map(Value::Int).or_else(|_| value.parse().map(Value::Float)).map_err(|_| wrong())?;
            // `value` is the field of a metric that has but one word.
            let (measurement, field) = metric.split_once('_').unwrap_or((metric, "value"));
            if gathered.time_ms != time_ms || gathered.measurement != measurement || gathered.tags != tags {
                gathered.flush(&mut known, row)?;
                gathered.time_ms = time_ms;
                measurement.clone_into(&mut gathered.measurement);
                tags.clone_into(&mut gathered.tags);
            }
            gathered.fields.push(field.to_owned());
            gathered.values.push(value);
        }
        gathered.flush(&mut known, row)
    }
}
