//! Renders answers of time-series queries as OpenTSDB's JSON, directly as bytes, in pieces of the requested size.
//!
//! Keys of `dps` ascend: Grafana draws points in the order of the document.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use base64::prelude::{BASE64_STANDARD, Engine};
use telem_engine::{NameKind, SeriesIndex, Timestamp, Value};
use telem_ingest::default_tags::HOST;
use telem_query::TsGroup;
use telem_query::question::Aggregator;

use super::filters::Filter;
use super::request::{LineOrder, QueryRequest, RateOptions, Sub};
use super::resolve::{ResolvedQuery, SubQuerySource};
use super::stats::{self, Stats};
use crate::answers::AnswerCharge;
use crate::http::ApiError;
use crate::protocols::opentsdb::annotation::DeliveredNotes;
use crate::protocols::opentsdb::json::SurroundedInts;
use crate::protocols::opentsdb::{json, tsuid};

/// What a rendered point takes at most, roughly: room is made for all that are written at once.
const POINT_BYTES: usize = 32;
/// Points that are written between two looks at how much is written.
const STEP_POINTS: usize = 1_024;
/// What a group takes beside its points, roughly: names, tags, series.
const GROUP_BYTES: usize = 256;
/// Work that a group is beside its points, in points.
const GROUP_POINTS: usize = 8;

/// The answer in the making: groups wait here, as they were computed, until they are written.
pub struct AnswerBuffer {
    form: Form,
    stats: Stats,
    index: Arc<SeriesIndex>,
    waiting: VecDeque<(GroupOrigin, std::vec::IntoIter<TsGroup>)>,
    open: Option<Open>,
    /// Whether a group was begun, so that the next needs a comma.
    begun: bool,
    weight: usize,
    /// Values that were added and are not shown: another one follows in their second or millisecond.
    hidden: usize,
    /// What waits takes, in bytes.
    taken: usize,
    held: AnswerCharge,
}

/// The sub-query that a group answers.
#[derive(Clone, Copy, Debug)]
struct GroupOrigin {
    /// Its place among those that were asked.
    sub: usize,
    gaps_are_null: bool,
    /// How long it took.
    took: Duration,
    notes: AnnotationNotes,
}

/// What is said of the annotations of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotationNotes {
    /// Those of its series, if there are any.
    OfItsSeries,
    /// An empty list, as OpenTSDB writes for combined series.
    None,
}

/// A group of which the head and some points are written.
struct Open {
    of: GroupOrigin,
    group: TsGroup,
    written: usize,
    /// Whether one of its points was shown, so that the next needs a comma.
    shown: bool,
}

impl AnswerBuffer {
    pub fn new(
        asked: Arc<QueryRequest>,
        notes: DeliveredNotes,
        index: Arc<SeriesIndex>,
        held: AnswerCharge,
        stats: Stats,
    ) -> Self {
        AnswerBuffer {
            stats,
            form: Form { asked, notes },
            index,
            waiting: VecDeque::new(),
            open: None,
            begun: false,
            weight: 0,
            hidden: 0,
            taken: 0,
            held,
        }
    }

    /// Adds the groups of one sub-query, in OpenTSDB's order, and how long it took.
    ///
    /// # Errors
    /// When what waits takes more than the memory for answers, or than others leave of it.
    pub fn add(&mut self, sub: &ResolvedQuery, mut groups: Vec<TsGroup>, took: Duration) -> Result<(), ApiError> {
        self.form.order(&mut groups, sub, &self.index);
        self.add_with(sub, groups, took, AnnotationNotes::OfItsSeries)
    }

    /// As [`AnswerBuffer::add`], with what is said of annotations.
    ///
    /// # Errors
    /// As [`AnswerBuffer::add`].
    pub fn add_with(
        &mut self,
        sub: &ResolvedQuery,
        mut groups: Vec<TsGroup>,
        took: Duration,
        notes: AnnotationNotes,
    ) -> Result<(), ApiError> {
        let gaps = self.form.asked.gaps;
        groups.iter_mut().for_each(|group| gaps.take_out(group));
        self.stats.add(took, groups.iter().map(|group| group.points.len()).sum());
        self.taken += groups.iter().map(taken).sum::<usize>();
        self.held.grow(self.taken)?;
        self.weight += groups.iter().map(|group| self.form.weight(group)).sum::<usize>();
        self.hidden += groups.iter().map(|group| self.form.hidden(group)).sum::<usize>();
        let of = GroupOrigin { sub: sub.index, gaps_are_null: gaps.are_null(sub.filling), took, notes };
        self.waiting.push_back((of, groups.into_iter()));
        Ok(())
    }

    /// How many values that were added are not shown, in words; `None` for none.
    pub fn hidden(&self) -> Option<HeaderValue> {
        let (unit, instead) = match self.form.asked.ms_resolution {
            true => ("millisecond", "arrays=true or SQL shows"),
            false => ("second", "msResolution=true shows"),
        };
        let text = match self.hidden {
            1 => format!("1 value has a later one in its {unit}; {instead} it"),
            several => format!("{several} values have a later one in their {unit}; {instead} them"),
        };
        if self.hidden == 0 { None } else { HeaderValue::from_str(&text).ok() }
    }

    /// How much work it is to write all that was added, in points.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// The next piece of the answer, of about `bytes_max`; `None` when all that was added is written.
    pub fn piece(&mut self, bytes_max: usize) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(bytes_max + STEP_POINTS * POINT_BYTES);
        self.write(&mut out, bytes_max);
        self.held.shrink(self.taken);
        (!out.is_empty()).then_some(out)
    }

    /// The text before the first group.
    pub const START: &[u8] = b"[";
    /// The text behind the last.
    pub fn end(&self) -> Vec<u8> {
        let mut end = Vec::new();
        if self.form.asked.show_summary {
            end.extend_from_slice(if self.begun { b"," } else { b"" });
            self.stats.summary(&mut end);
        }
        end.push(b']');
        end
    }

    /// The whole answer at once, and the memory that it holds.
    ///
    /// # Errors
    /// When it is larger than the memory for answers, or than what others leave of it.
    pub fn whole(mut self) -> Result<(Vec<u8>, AnswerCharge), ApiError> {
        let mut out = Vec::with_capacity(self.weight * POINT_BYTES);
        out.extend_from_slice(Self::START);
        self.write(&mut out, usize::MAX);
        out.extend_from_slice(&self.end());
        self.held.grow(out.capacity())?;
        self.held.shrink(out.capacity());
        Ok((out, self.held))
    }

    fn write(&mut self, out: &mut Vec<u8>, bytes_max: usize) {
        while out.len() < bytes_max {
            let Some(mut open) = self.open.take().or_else(|| self.open_next(out)) else { return };
            let to = open.group.points.len().min(open.written + STEP_POINTS);
            self.form.points(out, &mut open, to);
            if to < open.group.points.len() {
                self.open = Some(open);
                continue;
            }
            self.form.tail(out, &open);
            self.taken = self.taken.saturating_sub(taken(&open.group));
        }
    }

    fn open_next(&mut self, out: &mut Vec<u8>) -> Option<Open> {
        let (of, group) = loop {
            let (of, groups) = self.waiting.front_mut()?;
            match groups.next() {
                Some(group) => break (*of, group),
                None => drop(self.waiting.pop_front()),
            }
        };
        if self.begun {
            out.push(b',');
        }
        self.begun = true;
        self.form.head(out, of, &group, &self.index);
        Some(Open { of, group, written: 0, shown: false })
    }
}

/// Bytes of memory.
fn taken(group: &TsGroup) -> usize {
    GROUP_BYTES + group.points.capacity() * size_of::<(Timestamp, Value)>()
}

/// What all groups of an answer share.
struct Form {
    asked: Arc<QueryRequest>,
    notes: DeliveredNotes,
}

impl Form {
    /// How much work a group is, in points.
    fn weight(&self, group: &TsGroup) -> usize {
        let numbers = if self.numbers() { group.series.len() } else { 0 };
        GROUP_POINTS + group.points.len() + numbers
    }

    /// Whether the TSUIDs of the series are needed.
    fn numbers(&self) -> bool {
        self.asked.show_tsuids || self.notes.of_any_series()
    }

    /// A group up to its first point.
    fn head(&self, out: &mut Vec<u8>, of: GroupOrigin, group: &TsGroup, index: &SeriesIndex) {
        let asked = &self.asked.subs[of.sub];
        // By number every group has the metric of its series; by name they are the same.
        let metric = group.series.first().map(|key| key.metric()).or(asked.metric.as_deref());
        out.extend_from_slice(b"{\"metric\":");
        json::string(out, metric.unwrap_or_default());
        out.extend_from_slice(b",\"tags\":");
        json::string_map(out, group.tags.iter());
        out.extend_from_slice(b",\"aggregateTags\":");
        json::list(out, &group.aggregate_tags, |out, key| json::string(out, key));
        if self.asked.show_query {
            out.extend_from_slice(b",\"query\":");
            match &asked.sent {
                Some(sent) => as_sent(out, sent, of.sub),
                None => query(out, asked, of.sub, index),
            }
        }
        if self.numbers() {
            let tsuids: Vec<String> = group.series.iter().map(|key| tsuid::of(index, key)).collect();
            if self.asked.show_tsuids {
                out.extend_from_slice(b",\"tsuids\":");
                json::list(out, &tsuids, |out, tsuid| json::string(out, tsuid));
            }
            self.notes.of_series(out, &tsuids);
        }
        if of.notes == AnnotationNotes::None {
            out.extend_from_slice(b",\"annotations\":[]");
        }
        self.notes.global(out);
        out.extend_from_slice(if self.asked.arrays { b",\"dps\":[" } else { b",\"dps\":{" });
    }

    /// Puts groups in the order in which OpenTSDB shows them, and Grafana lists them in a legend: by the numbers of the
    /// values of the tags that make groups, tags by their numbers, which is the order in which names were first seen. A
    /// view may show them by name instead.
    fn order(&self, groups: &mut [TsGroup], sub: &ResolvedQuery, index: &SeriesIndex) {
        if self.asked.order == LineOrder::Hosts {
            return groups.sort_by_cached_key(by_host);
        }
        let SubQuerySource::Query(query) = &sub.source else { return };
        let every_series = query.aggregator == Aggregator::None;
        let by = |key: &str| every_series || query.filters.iter().any(|filter| filter.group_by && filter.key == key);
        groups.sort_by_cached_key(|group| {
            let tags = group.series.first().into_iter().flat_map(|series| series.tags().iter());
            let number = |kind, name: &str| tsuid::number(index, kind, name);
            let mut numbers: Vec<_> = tags
                .filter(|(key, _)| by(key))
                .map(|(key, value)| (number(NameKind::TagKey, key), number(NameKind::TagValue, value)))
                .collect();
            numbers.sort_unstable();
            numbers
        });
    }

    /// How many points have another one after them in the unit of time that is shown. A list shows all.
    fn hidden(&self, group: &TsGroup) -> usize {
        let shown = PointStyle { millis: self.asked.ms_resolution, gaps_are_null: false };
        let hides = |pair: &&[(Timestamp, Value)]| shown.time(pair[0].0) == shown.time(pair[1].0);
        if self.asked.arrays { 0 } else { group.points.windows(2).filter(hides).count() }
    }

    /// The points of a group from those that are written up to `to`.
    fn points(&self, out: &mut Vec<u8>, open: &mut Open, to: usize) {
        let from = std::mem::replace(&mut open.written, to);
        out.reserve((to - from) * POINT_BYTES);
        let shown = PointStyle { millis: self.asked.ms_resolution, gaps_are_null: open.of.gaps_are_null };
        if self.asked.arrays {
            shown.pairs(out, &open.group.points[from..to], &mut open.shown);
        } else {
            let next = open.group.points.get(to).map(|(time, _)| *time);
            shown.object(out, &open.group.points[from..to], next, &mut open.shown);
        }
    }

    /// The text behind the last point of a group.
    fn tail(&self, out: &mut Vec<u8>, open: &Open) {
        out.push(if self.asked.arrays { b']' } else { b'}' });
        if self.asked.show_stats {
            out.extend_from_slice(b",\"stats\":");
            stats::of_group(out, open.of.took, open.group.points.len());
        }
        out.push(b'}');
    }
}

/// By `host`, then by the values of the other tags in the order of their keys; whole numbers as numbers.
fn by_host(group: &TsGroup) -> (Option<String>, Vec<(Option<u64>, String)>) {
    let others = group.tags.iter().filter(|(key, _)| *key != HOST);
    let others = others.map(|(_, value)| (value.parse().ok(), value.to_owned())).collect();
    (group.tags.get(HOST).map(str::to_owned), others)
}

/// How points are shown.
#[derive(Clone, Copy, Debug)]
struct PointStyle {
    millis: bool,
    gaps_are_null: bool,
}

impl PointStyle {
    fn time(self, time: Timestamp) -> i64 {
        if self.millis { time.millis() } else { time.seconds() }
    }

    /// Writes each as `[time,value]`, with commas; `any` says whether others precede them.
    fn pairs(self, out: &mut Vec<u8>, points: &[(Timestamp, Value)], any: &mut bool) {
        let mut times = SurroundedInts::new(b"[", b",");
        for (time, value) in points {
            if *any {
                out.push(b',');
            }
            *any = true;
            times.write(out, self.time(*time));
            self.value(out, *value);
            out.push(b']');
        }
    }

    /// Writes each as `"time":value`, with commas; `any` says whether others precede them. A JSON object holds a key
    /// once: of several points in one second the last is shown, which may be the one at `next`, behind these.
    fn object(self, out: &mut Vec<u8>, points: &[(Timestamp, Value)], next: Option<Timestamp>, any: &mut bool) {
        let mut keys = SurroundedInts::new(b"\"", b"\":");
        let mut coming = points.first().map(|(time, _)| self.time(*time));
        for (at, (_, value)) in points.iter().enumerate() {
            let Some(key) = coming else { break };
            coming = points.get(at + 1).map(|(time, _)| *time).or(next).map(|time| self.time(time));
            if coming == Some(key) {
                continue;
            }
            if *any {
                out.push(b',');
            }
            *any = true;
            keys.write(out, key);
            self.value(out, *value);
        }
    }

    fn value(self, out: &mut Vec<u8>, value: Value) {
        match value {
            Value::Int(int) => json::int(out, int),
            Value::Float(float) if float.is_finite() => json::float(out, float),
            Value::Float(_) if self.gaps_are_null => out.extend_from_slice(b"null"),
            Value::Float(float) if float.is_nan() => out.extend_from_slice(b"\"NaN\""),
            // A query whose result is infinite fails before it comes here.
            Value::Float(float) => json::string(out, if float > 0.0 { "Infinity" } else { "-Infinity" }),
        }
    }
}

/// A sub-query in the words of who asked, and its place.
fn as_sent(out: &mut Vec<u8>, sent: &str, at: usize) {
    let fields = sent.strip_suffix('}').unwrap_or(sent);
    out.extend_from_slice(fields.as_bytes());
    out.extend_from_slice(if fields.len() > 1 { b",\"index\":".as_slice() } else { b"\"index\":" });
    json::int(out, i64::try_from(at).unwrap_or(i64::MAX));
    out.push(b'}');
}

/// A sub-query as it was asked; Grafana finds its target by `index`.
fn query(out: &mut Vec<u8>, sub: &Sub, at: usize, index: &SeriesIndex) {
    let text = |out: &mut Vec<u8>, name: &str, text: Option<&str>| {
        json::string(out, name);
        out.push(b':');
        match text {
            Some(text) => json::string(out, text),
            None => out.extend_from_slice(b"null"),
        }
        out.push(b',');
    };
    out.push(b'{');
    text(out, "aggregator", sub.aggregator.as_deref());
    text(out, "metric", sub.metric.as_deref());
    out.extend_from_slice(b"\"tsuids\":");
    match sub.tsuids.is_empty() {
        true => out.extend_from_slice(b"null"),
        false => json::list(out, &sub.tsuids, |out, tsuid| json::string(out, tsuid)),
    }
    out.push(b',');
    text(out, "downsample", sub.downsample.as_deref());
    out.extend_from_slice(b"\"rate\":");
    json::bool(out, sub.rate);
    out.extend_from_slice(b",\"filters\":");
    json::list(out, &sub.filters, |out, filter| {
        out.extend_from_slice(b"{\"tagk\":");
        json::string(out, &filter.key);
        out.extend_from_slice(b",\"filter\":");
        json::string(out, &filter.text);
        out.extend_from_slice(b",\"group_by\":");
        json::bool(out, filter.group_by);
        out.extend_from_slice(b",\"type\":");
        json::string(out, filter.shown_kind);
        out.push(b'}');
    });
    out.extend_from_slice(b",\"rateOptions\":");
    match &sub.rate_options {
        Some(options) => rate_options(out, options),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"explicitTags\":");
    json::bool(out, sub.explicit_tags);
    out.extend_from_slice(b",\"preAggregate\":");
    json::bool(out, sub.pre_aggregate);
    out.extend_from_slice(b",\"filterTagKs\":");
    filter_tag_keys(out, sub, index);
    // What the original shows of features that telem has not: its defaults.
    out.extend_from_slice(
        b",\"percentiles\":null,\"showHistogramBuckets\":false,\"histogramQuery\":false,\"rollupUsage\":null,\
          \"rollupTable\":\"raw\",\"useFuzzyFilter\":true,\"useMultiGets\":true",
    );
    out.extend_from_slice(b",\"index\":");
    json::int(out, i64::try_from(at).unwrap_or(i64::MAX));
    out.extend_from_slice(b",\"tags\":");
    let tags: Vec<(&str, String)> = sub
        .filters
        .iter()
        .filter(|filter| filter.group_by)
        .map(|filter| (filter.key.as_str(), format!("{}({})", filter.shown_kind, filter.text)))
        .collect();
    json::string_map(out, tags.iter().map(|(key, text)| (*key, text.as_str())));
    out.push(b'}');
}

/// The numbers of the filtered tag keys, three bytes each in base64; null where nothing is filtered.
fn filter_tag_keys(out: &mut Vec<u8>, sub: &Sub, index: &SeriesIndex) {
    if sub.filters.is_empty() {
        return out.extend_from_slice(b"null");
    }
    let number = |filter: &Filter| index.ordinal(NameKind::TagKey, &filter.key).map(|ordinal| ordinal + 1);
    let numbers: BTreeSet<u32> = sub.filters.iter().filter_map(number).collect();
    json::list(out, numbers, |out, number| {
        let [_, three @ ..] = number.to_be_bytes();
        json::string(out, &BASE64_STANDARD.encode(three));
    });
}

fn rate_options(out: &mut Vec<u8>, options: &RateOptions) {
    out.extend_from_slice(b"{\"counter\":");
    json::bool(out, options.counter);
    out.extend_from_slice(b",\"counterMax\":");
    json::int(out, options.counter_max);
    out.extend_from_slice(b",\"resetValue\":");
    json::int(out, options.reset_value);
    out.extend_from_slice(b",\"dropResets\":");
    json::bool(out, options.drop_resets);
    out.push(b'}');
}
