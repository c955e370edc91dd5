//! The energy of jobs, from what is stored: of each node by its best source, and of each GPU.
//!
//! The one idea: SQL, `telem info` and the end of `telem run` ask this file, so they say the same. A node answers for its
//! own samples. Nothing is guessed: what no source told is unknown, and the inventory says why.

mod meter;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use arrow::datatypes::{Float64Type, TimestampMicrosecondType};
use serde::{Deserialize, Serialize};
use telem_engine::{
    DeviceKind, DeviceStatus, JobPart, JobPiece, RecordedJob, Result, ScanColumn, ScanRequest, SeriesId, Snapshot,
    TimeRange, Timestamp, ValueRange,
};

use self::meter::{EnergyMeter, IdleMeter, MeterReading, interval_us};

const NODE_ENERGY: &str = "node_energy_joules_total";
const NODE_POWER: &str = "node_power_watts";
const GPU_ENERGY: &str = "gpu_energy_joules_total";
const GPU_POWER: &str = "gpu_power_watts";
const GPU_UTILIZATION: &str = "gpu_utilization_percent";
const GPU_MEMORY: &str = "gpu_memory_used_bytes";
/// Sampled at every tick of every node: says how long a node was there of which nothing else tells the end.
const ALIVE: &str = "node_load1";
/// The source of what all GPUs of the job draw together on a node.
pub const GPU_SOURCE: &str = "gpu";
/// Readings by which the interval of a series is found.
const INTERVAL_READINGS: usize = 1_000;
/// How far around the job's time readings are looked for at first: those next to it tell of its ends.
const AROUND_US: i64 = 60_000_000;
/// Where there are none, so many times further.
const AROUND_GROWTH: i64 = 16;
const BATCH_ROWS: usize = 8_192;
/// Reasons that are told at most.
const REASONS_TOLD: usize = 2;
const JOULES_PER_KWH: f64 = 3_600_000.0;
const US_PER_HOUR: f64 = 3_600_000_000.0;

/// What a job took on one node, or one GPU of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobEnergy {
    pub job: Arc<str>,
    pub node: Arc<str>,
    /// The tag of its samples, where they have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The GPU, by its tag; `None` of the whole node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// What measured it, and so what it covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// `counter` or `integrated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Of the seconds that are covered; `None` where none are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joules: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kwh: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_watts: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_watts: Option<f64>,
    /// Of the job's time those that are covered, and the others.
    pub seconds: f64,
    pub unknown_seconds: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_hours: Option<f64>,
    /// Of those, hours of whole minutes without work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_gpu_hours: Option<f64>,
    /// Of those, hours in which its memory was in use all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_idle_gpu_hours: Option<f64>,
    /// The node was not the job's alone, as far as is known: what covers the node covers others too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_shared: bool,
    /// What speaks against the figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
    /// Why nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Why nothing is known of a node that has nothing which tells it.
pub const NOTHING_TELLS: &str = "unknown, because nothing on this node tells power or energy";

/// What is said of a GPU of which it is not known whether it is the job's.
const NOT_KNOWN_WHOSE: &str = "nothing says whether the job was given this GPU";

impl JobEnergy {
    /// Whether nothing is known of what could be told.
    pub fn is_refused(&self) -> bool {
        self.joules.is_none() && self.reason.as_deref().is_some_and(|reason| reason != NOTHING_TELLS)
    }
}

/// The jobs and nodes whose energy is asked for. Of other jobs and nodes no sample is read.
pub struct EnergyQuestion<'a> {
    pub is_job: &'a dyn Fn(&str) -> bool,
    pub is_node: &'a dyn Fn(&str) -> bool,
    /// The answer is of no use any more.
    pub is_stopped: &'a dyn Fn() -> bool,
}

/// All that this snapshot knows of the energy of its jobs. Ends early where `is_stopped` says so; the answer is of no
/// use then.
///
/// # Errors
/// As of [`EnergyQuestion::answer`].
pub fn of_jobs(snapshot: &Snapshot, is_stopped: &dyn Fn() -> bool) -> Result<Vec<JobEnergy>> {
    EnergyQuestion { is_job: &|_| true, is_node: &|_| true, is_stopped }.answer(snapshot)
}

impl EnergyQuestion<'_> {
    /// By job and node, of each node first the whole.
    ///
    /// # Errors
    /// Those of the engine, from the segments that are read.
    pub fn answer(&self, snapshot: &Snapshot) -> Result<Vec<JobEnergy>> {
        let parts = snapshot.job_parts();
        let mut rows = Vec::new();
        for RecordedJob { job, pieces } in snapshot.jobs(self.is_job) {
            if (self.is_stopped)() {
                break;
            }
            rows.extend(self.of_job(&job, &pieces, &parts)?);
        }
        Ok(rows)
    }

    fn of_job(&self, job: &Arc<str>, pieces: &[JobPiece], parts: &[JobPart]) -> Result<Vec<JobEnergy>> {
        let mut of_job = Vec::new();
        for JobPiece { snapshot, ranges } in pieces {
            // Several are what no job had of a database that jobs share.
            let [range] = &**ranges else { continue };
            for node in snapshot.nodes().iter().filter(|node| (self.is_node)(node)) {
                let part = parts.iter().rev().find(|part| part.job == *job && part.node == *node);
                let part = part.or_else(|| parts.iter().find(|part| part.job == *job));
                let reader = EnergyReader { snapshot, node, is_stopped: self.is_stopped };
                of_job.extend(reader.rows(job, part, *range)?);
            }
        }
        // A job that shares its node has the series of its programs beside those of the node.
        let is_known = |row: &JobEnergy| row.joules.is_some() || row.gpu.is_some();
        let known: BTreeSet<Arc<str>> =
            of_job.iter().filter(|row| is_known(row)).map(|row| Arc::clone(&row.node)).collect();
        let mut told = BTreeSet::new();
        of_job.retain(|row| match known.contains(&row.node) {
            true => is_known(row) || row.host.is_some(),
            false => told.insert(Arc::clone(&row.node)),
        });
        Ok(of_job)
    }
}

/// How much a source is trusted, the most first: measured at the supply of the node, then counted by hardware, then
/// integrated; what covers more before what covers less.
fn trust(source: &str, reading: MeterReading) -> usize {
    let known = ["pm_counters", "rapl_gpu", "acpi_power_meter", GPU_SOURCE, "rapl"];
    let at = known.iter().position(|known| *known == source).unwrap_or(known.len());
    2 * at + usize::from(reading == MeterReading::Power)
}

/// Reads what one node recorded of one job.
struct EnergyReader<'a> {
    snapshot: &'a Snapshot,
    node: &'a Arc<str>,
    is_stopped: &'a dyn Fn() -> bool,
}

/// Which GPUs of a node the job was given, by the inventory of the database that has it.
struct GivenGpus<'a> {
    part: Option<&'a JobPart>,
}

impl GivenGpus<'_> {
    fn of(&self, gpu: &str) -> Option<Option<bool>> {
        self.part?.gpus.get(gpu).copied()
    }

    fn leave_out(&self, gpu: &str) -> bool {
        self.of(gpu) == Some(Some(false))
    }

    fn leave_out_some(&self) -> bool {
        self.part.is_some_and(|part| part.gpus.values().any(|given| *given == Some(false)))
    }

    /// It is in the inventory, which does not say.
    fn are_unknown(&self, gpu: &str) -> bool {
        self.of(gpu) == Some(None)
    }
}

/// The series of one host.
#[derive(Debug, Default)]
struct HostSeries {
    /// By source.
    node: BTreeMap<(String, &'static str), Vec<SeriesId>>,
    /// By GPU and metric. Of parts of a GPU several.
    gpus: BTreeMap<String, BTreeMap<&'static str, Vec<SeriesId>>>,
}

impl EnergyReader<'_> {
    fn rows(&self, job: &Arc<str>, part: Option<&JobPart>, ran: TimeRange) -> Result<Vec<JobEnergy>> {
        let given = GivenGpus { part: part.filter(|part| part.node == *self.node) };
        let mut hosts: BTreeMap<Option<String>, HostSeries> = BTreeMap::new();
        let mut all = Vec::new();
        for metric in [NODE_ENERGY, NODE_POWER, GPU_ENERGY, GPU_POWER, GPU_UTILIZATION, GPU_MEMORY] {
            for series in self.series(metric) {
                let Some(key) = self.snapshot.index().key(series) else { continue };
                let tag = |name: &str| key.tags().get(name).map(str::to_owned);
                let host = hosts.entry(tag("host")).or_default();
                all.push(series);
                match (metric, tag("gpu")) {
                    (NODE_ENERGY | NODE_POWER, _) => {
                        host.node.entry((tag("source").unwrap_or_default(), metric)).or_default().push(series);
                    }
                    (_, Some(gpu)) if given.leave_out(&gpu) => {}
                    (_, Some(gpu)) => {
                        host.gpus.entry(gpu).or_default().entry(metric).or_default().push(series);
                    }
                    (_, None) => {}
                }
            }
        }
        let range = self.range(part, ran, all)?;
        let mut rows = Vec::new();
        for (host, series) in &hosts {
            rows.extend(self.of_host(job, host.as_ref(), series, &range)?);
        }
        if rows.is_empty() {
            rows.push(self.row(job, None, &range));
        }
        for row in &mut rows {
            row.is_shared = ran != TimeRange::ALL || given.leave_out_some();
            if row.joules.is_none() {
                row.reason = Some(self.reason(row.gpu.as_deref()));
            }
            if row.gpu.as_ref().is_some_and(|gpu| given.are_unknown(gpu)) {
                let known = row.doubt.take().map(|doubt| format!("; {doubt}")).unwrap_or_default();
                row.doubt = Some(format!("{NOT_KNOWN_WHOSE}{known}"));
            }
        }
        Ok(rows)
    }

    /// The job's time: that for which it shared the database, else as its description has it, else that of the samples.
    fn range(&self, part: Option<&JobPart>, ran: TimeRange, mut series: Vec<SeriesId>) -> Result<Range<i64>> {
        let described = |field: &str| {
            let text = part?.description.as_ref()?[field].as_str()?;
            Some(string_to_timestamp_nanos(text).ok()? / 1_000)
        };
        let shared = |time: Timestamp| (![Timestamp::MIN, Timestamp::MAX].contains(&time)).then(|| time.micros());
        let begin = shared(ran.start).or_else(|| described("start"));
        // Half-open: its last moment is one before.
        let end = shared(ran.end).map(|end| end - 1).or_else(|| described("end"));
        let (mut first, mut last) = (i64::MAX, i64::MIN);
        if begin.is_none() || end.is_none() {
            series.extend(self.series(ALIVE));
            for (from, to) in self.snapshot.time_bounds(&series)?.into_iter().flatten() {
                (first, last) = (first.min(from.micros()), last.max(to.micros()));
            }
        }
        let begin = begin.unwrap_or(if first <= last { first } else { 0 });
        Ok(begin..end.unwrap_or(last).max(begin))
    }

    fn of_host(
        &self,
        job: &Arc<str>,
        host: Option<&String>,
        series: &HostSeries,
        range: &Range<i64>,
    ) -> Result<Vec<JobEnergy>> {
        let mut gpus = Vec::new();
        // What all GPUs took together, by counters and by power.
        let mut together: BTreeMap<&'static str, EnergyMeter> = BTreeMap::new();
        for (gpu, metrics) in &series.gpus {
            let mut row = JobEnergy { gpu: Some(gpu.clone()), ..self.row(job, host, range) };
            let mut meters = BTreeMap::new();
            for (metric, reading) in [(GPU_ENERGY, MeterReading::Counter), (GPU_POWER, MeterReading::Power)] {
                let Some(meter) = self.meter(metrics.get(metric), reading, range)? else { continue };
                match together.get_mut(metric) {
                    Some(all) => all.join(&meter),
                    None => drop(together.insert(metric, meter.clone())),
                }
                meters.insert((GPU_SOURCE.to_owned(), metric), meter);
            }
            tell_best(&mut row, &meters, &[GPU_ENERGY, GPU_POWER], range);
            self.tell_hours(&mut row, metrics, range)?;
            gpus.push(row);
        }
        let mut meters = BTreeMap::new();
        for ((source, metric), series) in &series.node {
            let reading = if *metric == NODE_ENERGY { MeterReading::Counter } else { MeterReading::Power };
            if let Some(meter) = self.meter(Some(series), reading, range)? {
                meters.insert((source.clone(), *metric), meter);
            }
        }
        if meters.is_empty() {
            for (metric, as_node) in [(GPU_ENERGY, NODE_ENERGY), (GPU_POWER, NODE_POWER)] {
                if let Some(meter) = together.remove(metric) {
                    meters.insert((GPU_SOURCE.to_owned(), as_node), meter);
                }
            }
        }
        let mut row = self.row(job, host, range);
        tell_best(&mut row, &meters, &[NODE_ENERGY, NODE_POWER], range);
        gpus.sort_by_key(|row| row.gpu.as_ref().map(|gpu| (gpu.parse().unwrap_or(u64::MAX), gpu.clone())));
        let mut rows = vec![row];
        rows.extend(gpus);
        Ok(rows)
    }

    fn tell_hours(
        &self,
        row: &mut JobEnergy,
        metrics: &BTreeMap<&'static str, Vec<SeriesId>>,
        range: &Range<i64>,
    ) -> Result<()> {
        let mut idle = IdleMeter::new(range.clone());
        for series in metrics.get(GPU_UTILIZATION).into_iter().flatten() {
            let within = self.around(*series, range)?;
            let interval = self.interval(*series, within)?;
            let mut failed = None;
            idle.utilization(self.readings(*series, within, None, &mut failed), interval);
            failed.map_or(Ok(()), Err)?;
        }
        if idle.covered_us == 0 {
            row.gpu_hours = (row.seconds > 0.0).then(|| row.seconds / 3_600.0);
            return Ok(());
        }
        for series in metrics.get(GPU_MEMORY).into_iter().flatten() {
            let mut failed = None;
            idle.memory(self.readings(*series, closed(range.start, range.end), None, &mut failed));
            failed.map_or(Ok(()), Err)?;
        }
        let (idle_minutes, held_minutes) = idle.idle_minutes();
        row.gpu_hours = Some(idle.covered_us as f64 / US_PER_HOUR);
        row.idle_gpu_hours = Some(idle_minutes as f64 / 60.0);
        row.held_idle_gpu_hours = Some(held_minutes as f64 / 60.0);
        Ok(())
    }

    /// What the series, which are of one source, add up to; `None` without one.
    fn meter(
        &self,
        series: Option<&Vec<SeriesId>>,
        reading: MeterReading,
        range: &Range<i64>,
    ) -> Result<Option<EnergyMeter>> {
        let mut all: Option<EnergyMeter> = None;
        for series in series.into_iter().flatten() {
            let within = self.around(*series, range)?;
            let mut meter = EnergyMeter::new(reading, range.clone(), self.interval(*series, within)?);
            let mut failed = None;
            self.readings(*series, within, None, &mut failed).for_each(|(time, value)| meter.add(time, value));
            failed.map_or(Ok(()), Err)?;
            match &mut all {
                Some(all) => all.join(&meter),
                None => all = Some(meter),
            }
        }
        Ok(all)
    }

    /// The job's time with the readings of the series that come next before and after it: a span that they begin or end
    /// tells of the job too, however long it is.
    fn around(&self, series: SeriesId, range: &Range<i64>) -> Result<TimeRange> {
        let Some((first, last)) = self.snapshot.time_bounds(&[series])?.into_iter().flatten().next() else {
            return Ok(closed(range.start, range.end));
        };
        let (first, last) = (first.micros(), last.micros());
        let (mut start, mut end) = (range.start, range.end);
        let mut around = AROUND_US;
        while start > first && !self.snapshot.has_points(series, closed(start, range.start))? {
            start = range.start.saturating_sub(around).max(first);
            around = around.saturating_mul(AROUND_GROWTH);
        }
        around = AROUND_US;
        while end < last && !self.snapshot.has_points(series, closed(range.end, end))? {
            end = range.end.saturating_add(around).min(last);
            around = around.saturating_mul(AROUND_GROWTH);
        }
        Ok(closed(start, end))
    }

    fn interval(&self, series: SeriesId, within: TimeRange) -> Result<i64> {
        let mut failed = None;
        let readings = self.readings(series, within, Some(INTERVAL_READINGS), &mut failed);
        let times: Vec<i64> = readings.map(|(time, _)| time).collect();
        failed.map_or(Ok(interval_us(&times)), Err)
    }

    /// The samples of a series, by time in microseconds; ends with the first error, which it leaves in `failed`.
    fn readings<'a>(
        &'a self,
        series: SeriesId,
        within: TimeRange,
        limit: Option<usize>,
        failed: &'a mut Option<telem_engine::Error>,
    ) -> impl Iterator<Item = (i64, f64)> + 'a {
        let request = ScanRequest {
            series: vec![series],
            range: within,
            columns: vec![ScanColumn::Ts, ScanColumn::Value],
            values: ValueRange::ALL,
            batch_rows: BATCH_ROWS,
            limit,
        };
        let batches = self.snapshot.scan(request).take_while(|_| !(self.is_stopped)());
        let sound = batches.map_while(|batch| batch.map_err(|error| *failed = Some(error)).ok());
        sound.flat_map(|batch| {
            let times = batch.column(0).as_primitive::<TimestampMicrosecondType>().clone();
            let values = batch.column(1).as_primitive::<Float64Type>().clone();
            (0..times.len()).map(move |row| (times.value(row), values.value(row)))
        })
    }

    fn series(&self, metric: &str) -> Vec<SeriesId> {
        let mut series = self.snapshot.select(metric, &[]);
        series.retain(|series| self.snapshot.node_of(*series) == *self.node);
        series
    }

    fn row(&self, job: &Arc<str>, host: Option<&String>, range: &Range<i64>) -> JobEnergy {
        JobEnergy {
            job: Arc::clone(job),
            node: Arc::clone(self.node),
            host: host.cloned(),
            gpu: None,
            source: None,
            method: None,
            joules: None,
            kwh: None,
            mean_watts: None,
            peak_watts: None,
            seconds: 0.0,
            unknown_seconds: (range.end - range.start) as f64 / 1e6,
            gpu_hours: None,
            idle_gpu_hours: None,
            held_idle_gpu_hours: None,
            is_shared: false,
            doubt: None,
            reason: None,
        }
    }

    /// Why nothing is known, in the words of the inventory.
    fn reason(&self, gpu: Option<&str>) -> String {
        let devices = self.snapshot.meta().inventory();
        let mut reasons: Vec<String> = Vec::new();
        for (_, device) in devices.iter().filter(|(node, _)| *node == **self.node) {
            let concerns = match gpu {
                Some(gpu) => device.kind == DeviceKind::Gpu && (device.device == gpu || device.device.starts_with('/')),
                None => matches!(device.kind, DeviceKind::Gpu | DeviceKind::Energy),
            };
            if concerns && device.status != DeviceStatus::Ok {
                let what = match device.kind {
                    DeviceKind::Gpu if !device.device.starts_with('/') => format!("GPU {}", device.device),
                    _ => device.device.clone(),
                };
                let why = if device.reason.is_empty() { device.status.name() } else { &*device.reason };
                reasons.push(format!("{what}: {why}"));
            }
        }
        let others = reasons.len().saturating_sub(REASONS_TOLD);
        reasons.truncate(REASONS_TOLD);
        if others > 0 {
            reasons.push(format!("and {others} more in the inventory"));
        }
        match (reasons.is_empty(), gpu) {
            (false, _) => format!("unknown, because {}", reasons.join("; ")),
            (true, None) => NOTHING_TELLS.to_owned(),
            (true, Some(_)) => "unknown, because this GPU tells neither power nor energy".to_owned(),
        }
    }
}

/// Both ends are in it.
fn closed(start: i64, end: i64) -> TimeRange {
    TimeRange::new(Timestamp::from_micros(start), Timestamp::from_micros(end.saturating_add(1)))
}

/// Tells the most trusted of all that cover at least half of what any does. `metrics`: the counter and the power.
fn tell_best(
    row: &mut JobEnergy,
    meters: &BTreeMap<(String, &'static str), EnergyMeter>,
    metrics: &[&'static str; 2],
    range: &Range<i64>,
) {
    let reading = |metric: &str| if metric == metrics[0] { MeterReading::Counter } else { MeterReading::Power };
    let longest = meters.values().map(|meter| meter.covered_us).max().unwrap_or(0);
    let covers = |meter: &EnergyMeter| meter.covered_us > 0 && meter.covered_us.saturating_mul(2) >= longest;
    let best = meters.iter().filter(|(_, meter)| covers(meter));
    let Some(((source, metric), meter)) = best.min_by_key(|((source, metric), _)| trust(source, reading(metric)))
    else {
        return;
    };
    let power = meters.get(&(source.clone(), metrics[1]));
    let seconds = meter.covered_us as f64 / 1e6;
    row.source = Some(if source.is_empty() { "unnamed".to_owned() } else { source.clone() });
    row.joules = Some(meter.joules);
    row.kwh = Some(meter.joules / JOULES_PER_KWH);
    row.mean_watts = Some(meter.joules / seconds);
    row.peak_watts = power.and_then(|power| power.peak_watts).or(meter.peak_watts);
    row.seconds = seconds;
    row.unknown_seconds = (range.end - range.start - meter.covered_us).max(0) as f64 / 1e6;
    row.method = Some(
        match reading(metric) {
            MeterReading::Counter => "counter",
            MeterReading::Power => "integrated",
        }
        .to_owned(),
    );
    if reading(metric) == MeterReading::Counter {
        row.doubt = power.and_then(|power| meter.doubt(power));
    }
}
