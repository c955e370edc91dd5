//! What an exporter of Prometheus shows. Its counters are its own: what falls there falls here.

use std::collections::HashSet;
use std::sync::Arc;

use telem_engine::MetricKind;
use telem_ingest::counters::{CounterReading, CounterValue, GaugeSource, GaugeValue, LaneTags, ScopeId, Withdrawal};
use telem_ingest::decode::exposition::{ExposedSample, Exposition, ExpositionEnd, ExpositionFormat, ExpositionLimits};
use telem_ingest::decode::proxy::label::FullName;
use telem_ingest::default_tags::DefaultTags;

use super::super::live::ProxyLive;
use super::super::tags::{EXPORTER_LANE, LANE_TAG, TARGET_TAG};
use super::super::targets::fetch::TargetAnswer;

/// The series of one exporter.
#[derive(Debug)]
pub struct ExporterSeries {
    lane: ScopeId,
    /// Gauges that it had when it was asked last.
    gauges: Arc<HashSet<Arc<str>>>,
}

impl ExporterSeries {
    pub fn open(live: &ProxyLive, target: &Arc<str>, source: GaugeSource) -> Self {
        let default = DefaultTags::of_process(live.host_of_target(target), None);
        let more = vec![(LANE_TAG.into(), EXPORTER_LANE.into()), (TARGET_TAG.into(), Arc::clone(target))];
        let above = [live.targets.exporters, live.node, live.main];
        let lane = live.table.open_lane(LaneTags { default, more, prefix: "" }, source, &above);
        live.targets.note_exporter();
        Self { lane, gauges: Arc::default() }
    }

    /// Takes what it shows now.
    ///
    /// # Errors
    /// When that is nothing that an exporter shows, or was cut.
    pub async fn take(&mut self, live: &Arc<ProxyLive>, answer: TargetAnswer) -> Result<(), String> {
        let (worker, lane, before) = (Arc::clone(live), self.lane, Arc::clone(&self.gauges));
        // Of many series that is work for a while.
        let taken = tokio::task::spawn_blocking(move || take(&worker, lane, &before, &answer)).await;
        self.gauges = Arc::new(taken.map_err(|panic| format!("its answer cannot be read: {panic}"))??);
        Ok(())
    }

    /// It does not answer any more: its gauges, which are about the present, have no value until it does.
    pub fn lose(&mut self, live: &ProxyLive) {
        live.table.withdraw(self.lane, Withdrawal::Gauges);
        self.gauges = Arc::default();
    }

    /// What it showed last counts no more.
    pub fn close(self, live: &ProxyLive) {
        live.table.withdraw(self.lane, Withdrawal::All);
        live.table.close(self.lane);
    }
}

/// The gauges that it shows now, when it has shown those of `before`.
fn take(
    live: &ProxyLive,
    lane: ScopeId,
    before: &HashSet<Arc<str>>,
    answer: &TargetAnswer,
) -> Result<HashSet<Arc<str>>, String> {
    let format = ExpositionFormat::of_content_type(&answer.content_type);
    let shown = Exposition::parse(&answer.body, format, &ExpositionLimits::default());
    if format == ExpositionFormat::OpenMetrics && shown.end == ExpositionEnd::Unmarked {
        return Err("its answer was cut: it has no # EOF".to_owned());
    }
    if let (true, Some(reject)) = (shown.samples.is_empty(), shown.rejects.first()) {
        return Err(format!("its answer is no text of Prometheus: {reject}"));
    }
    let mut readings: Vec<CounterReading> = shown.samples.iter().filter_map(|sample| reading(sample, &shown)).collect();
    let is_gauge = |reading: &&CounterReading| matches!(reading.value, CounterValue::Gauge(_));
    let gauges: HashSet<Arc<str>> = readings.iter().filter(is_gauge).map(|reading| Arc::clone(&reading.name)).collect();
    // What it does not show any more has no value.
    let gone = before.iter().filter(|name| !gauges.contains(*name)).map(|name| CounterReading {
        name: Arc::clone(name),
        doc: Arc::default(),
        value: CounterValue::Gauge(GaugeValue::default()),
    });
    readings.extend(gone);
    for refusal in live.table.tell(lane, &readings) {
        live.refuse(&refusal);
    }
    if shown.refused > 0 {
        tracing::debug!(refused = shown.refused, first = ?shown.rejects.first(), "lines of an exporter cannot be read");
    }
    Ok(gauges)
}

/// A sample as a counter, or as a gauge where it is anything else; `None` of what is no number.
fn reading(sample: &ExposedSample, shown: &Exposition) -> Option<CounterReading> {
    if !sample.value.is_finite() {
        return None;
    }
    // A label without a value is none.
    let labels = sample.labels.iter().filter(|(_, value)| !value.is_empty());
    let name = FullName::written(&sample.name, labels.map(|(key, value)| (key, value)));
    let doc = sample.family.and_then(|family| shown.families.get(family)).map_or("", |family| &*family.help);
    let value = match sample.kind {
        MetricKind::Counter => CounterValue::Counter(sample.value),
        _ => CounterValue::Gauge(GaugeValue::of(sample.value)),
    };
    Some(CounterReading { name: name.into(), doc: doc.into(), value })
}
