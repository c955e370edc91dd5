//! The client of the comparison with other databases. `telem-load` makes job telemetry from fixed seeds, renders it in
//! the form that each database expects before any clock runs, and sends it over a given number of connections.
//!
//! All text is made beforehand, so sending costs next to nothing and the measurement is of the server.
//! `telem-load sink` answers every request and stores nothing; sending to it costs exactly the client's own share.

#![deny(unsafe_code)]

mod bodies;
mod columns;
mod http;
mod random;
mod recording;
mod send;
mod sink;
mod synthetic;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;

type Failed = Box<dyn Error + Send + Sync>;

const USAGE: &str = "\
telem-load bodies  --protocol lines|put|remote DATA --out FILE [--samples-max N]
                   renders DATA; remote is Prometheus' remote write
telem-load columns DATA --out DIR
                   the same samples as numbers: series.tsv, series.u32, ts.i64 (milliseconds), value.f64
telem-load send    --bodies FILE --to ADDR:PORT --path PATH [--connections 2] [--samples-max N]
                   [--deadline SECONDS] [--header 'Name: value;...']
                   prints a line of JSON when all is answered
telem-load sink    prints its port, and answers every request with 204 until it is ended
DATA: --hosts N --seconds N [--jitter-ms N] | --recording FILE (of benches/record_proc.py)";

/// One sample's value, of the types that a sender has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    Int(i64),
    Float(f64),
}

/// Samples of one set of tags at one time: what senders put into one line.
#[derive(Debug)]
pub struct Row<'a> {
    /// Number of the first field's series; the others follow.
    pub series: &'a [u32],
    pub subject: &'a Subject,
    /// Milliseconds since the Unix epoch.
    pub time_ms: i64,
    pub values: &'a [Value],
}

/// What rows are about: a measurement with its tags and fields.
#[derive(Clone, Debug)]
pub struct Subject {
    pub measurement: String,
    /// In the order of their keys.
    pub tags: Vec<(String, String)>,
    pub fields: Vec<String>,
}

impl Subject {
    /// The name that a field has as a metric of its own.
    pub fn metric(&self, field: usize) -> String {
        match &*self.fields[field] {
            "value" => self.measurement.clone(),
            field => format!("{}_{field}", self.measurement),
        }
    }
}

/// Where samples come from, in the order in which they arrive.
pub trait Data {
    /// # Errors
    /// What the source cannot be read for, and what `row` fails with.
    fn each_row(&self, row: &mut dyn FnMut(&Row) -> Result<(), Failed>) -> Result<(), Failed>;
}

/// `--name value` pairs.
struct Arguments(HashMap<String, String>);

impl Arguments {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, Failed> {
        let mut given = HashMap::new();
        let mut arguments = arguments.peekable();
        while let Some(argument) = arguments.next() {
            let name = argument.strip_prefix("--").ok_or_else(|| format!("'{argument}' is no option\n{USAGE}"))?;
            let value = arguments.next().ok_or_else(|| format!("--{name} wants a value\n{USAGE}"))?;
            given.insert(name.to_owned(), value);
        }
        Ok(Self(given))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    fn need(&mut self, name: &str) -> Result<String, Failed> {
        self.take(name).ok_or_else(|| format!("--{name} is missing\n{USAGE}").into())
    }

    fn number(&mut self, name: &str, otherwise: u64) -> Result<u64, Failed> {
        match self.take(name) {
            Some(text) => text.parse().map_err(|_| format!("--{name} {text}: no whole number").into()),
            None => Ok(otherwise),
        }
    }

    fn data(&mut self) -> Result<Box<dyn Data>, Failed> {
        if let Some(file) = self.take("recording") {
            return Ok(Box::new(recording::Recording::new(file.into())));
        }
        let (hosts, seconds) = (self.number("hosts", 100)?, self.number("seconds", 3_600)?);
        let jitter_ms = self.number("jitter-ms", 0)?;
        Ok(Box::new(synthetic::Nodes { hosts: hosts as usize, seconds: seconds as i64, jitter_ms }))
    }

    fn done(self) -> Result<(), Failed> {
        match self.0.keys().next() {
            Some(name) => Err(format!("no option --{name} here\n{USAGE}").into()),
            None => Ok(()),
        }
    }
}

fn run() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let mut arguments = Arguments::parse(arguments)?;
    match &*command {
        "bodies" => {
            let protocol = bodies::Protocol::by_name(&arguments.need("protocol")?)?;
            let (data, out) = (arguments.data()?, arguments.need("out")?);
            let samples_max = arguments.number("samples-max", u64::MAX)?;
            arguments.done()?;
            println!("{}", bodies::write(&*data, protocol, out.as_ref(), samples_max)?);
        }
        "columns" => {
            let (data, out) = (arguments.data()?, arguments.need("out")?);
            arguments.done()?;
            println!("{}", columns::write(&*data, out.as_ref())?);
        }
        "send" => {
            let options = send::Options {
                bodies: arguments.need("bodies")?.into(),
                to: arguments.need("to")?,
                path: arguments.need("path")?,
                connections: arguments.number("connections", 2)? as usize,
                deadline_s: arguments.number("deadline", 600)?,
                headers: arguments.take("header").unwrap_or_default(),
                samples_max: arguments.number("samples-max", u64::MAX)?,
            };
            arguments.done()?;
            println!("{}", send::send(&options)?);
        }
        "sink" => {
            arguments.done()?;
            sink::run()?;
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("telem-load: {error}");
            ExitCode::FAILURE
        }
    }
}
