//! A database and a query in a few words.

use std::sync::{Arc, LazyLock};

use chrono_tz::Tz;
use telem_engine::{Db, Durability, Options, SampleBatch, SeriesKey, Step, SystemClock, TagSet, Timestamp, Value};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::answer::TsAnswer;
use crate::error::{Error, Result};
use crate::leaf::LeafContext;
use crate::options::QueryOptions;
use crate::plan::{self, PlanContext, Route};
use crate::question::Aggregator;
use crate::question::expression::{Case, Expression};
use crate::question::tsq::{CalendarUnit, Downsample, Fidelity, Fill, Interval, Matcher, Rate, TagFilter, TsQuery};
use crate::session::Session;
use crate::view::View;

/// Making these takes longer than most tests.
static SESSION: LazyLock<Session> = LazyLock::new(|| Session::new(&options()).unwrap());
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());

fn options() -> QueryOptions {
    QueryOptions {
        memory_bytes_max: 256 << 20,
        points_max: 1_000_000,
        answer_values_max: 1_000_000,
        threads: 2,
        ..QueryOptions::new(Arc::new(SystemClock::new()))
    }
}

pub struct World {
    db: Db,
    pub options: QueryOptions,
    session: Option<Session>,
    _dir: TempDir,
}

impl World {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(&dir.path().join("db"), Options::default()).unwrap();
        Self { db, options: options(), session: None, _dir: dir }
    }

    /// From now on queries share so much memory.
    pub fn limit_memory(&mut self, bytes: usize) {
        self.session = Some(Session::new(&QueryOptions { memory_bytes_max: bytes, ..options() }).unwrap());
    }

    /// Lines of `metric tag=value... second:value...`; a value with a `.` is a float.
    pub fn load(text: &str) -> Self {
        let world = Self::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let mut words = line.split_whitespace();
            let metric = words.next().unwrap();
            let (tags, samples): (Vec<&str>, Vec<&str>) = words.partition(|word| word.contains('='));
            let tags: Vec<(&str, &str)> = tags.iter().map(|tag| tag.split_once('=').unwrap()).collect();
            let samples = samples.iter().map(|sample| {
                let (time, value) = sample.split_once(':').unwrap();
                let value = value.parse().map_or_else(|_| Value::Float(value.parse().unwrap()), Value::Int);
                (at(time), value)
            });
            world.put(metric, &tags, samples);
        }
        world
    }

    pub fn put(&self, metric: &str, tags: &[(&str, &str)], samples: impl IntoIterator<Item = (Timestamp, Value)>) {
        let key = SeriesKey::new(metric, TagSet::new(tags.iter().copied()).unwrap()).unwrap();
        let series = self.db.series(&key).unwrap();
        let mut batch = SampleBatch::default();
        for (time, value) in samples {
            batch.push(series, time, value);
        }
        self.db.append(&batch, Durability::Buffered).unwrap();
    }

    /// What was put so far stands in segments from now on.
    pub fn flush(&self) {
        self.db.flush().unwrap();
    }

    pub fn ask(&self, query: &TsQuery) -> Result<TsAnswer> {
        self.with_context(|context| block_on(plan::answer(query, &context)))
    }

    /// Asks when nobody waits for the answer any longer.
    pub fn ask_in_vain(&self, query: &TsQuery) -> Result<TsAnswer> {
        let context = LeafContext::new(self.db.snapshot());
        context.stop.ask();
        let view = View::alone(context.snapshot.clone());
        let task_ctx = SESSION.task_ctx(context, None);
        block_on(plan::answer(query, &PlanContext { view, task_ctx, options: &self.options }))
    }

    pub fn explain(&self, query: &TsQuery) -> Result<String> {
        self.with_context(|context| block_on(plan::explain(query, &context)))
    }

    /// Which way the query would go.
    pub fn route(&self, query: &TsQuery) -> Route {
        self.with_context(|context| {
            block_on(async {
                let (query, pipeline) = plan::prepare(query, &context).unwrap();
                let groups = plan::read_groups(&query, &context).await.unwrap();
                plan::route(&query, &pipeline, &groups, context.options)
            })
        })
    }

    pub fn ask_by(&self, route: Route, query: &TsQuery) -> Result<TsAnswer> {
        self.with_context(|context| {
            block_on(async {
                let (query, pipeline) = plan::prepare(query, &context)?;
                let groups = plan::read_groups(&query, &context).await?;
                plan::answer_by(route, &query, &pipeline, groups, &context).await
            })
        })
    }

    fn with_context<T>(&self, work: impl FnOnce(PlanContext<'_>) -> T) -> T {
        let snapshot = self.db.snapshot();
        let session = self.session.as_ref().unwrap_or(&SESSION);
        let task_ctx = session.task_ctx(LeafContext::new(snapshot.clone()), None);
        work(PlanContext { view: View::alone(snapshot), task_ctx, options: &self.options })
    }

    /// The answer as text: a line for every group, `tags {aggregate tags}: second:value ...`.
    pub fn text(&self, query: &TsQuery) -> String {
        match self.ask(query) {
            Ok(answer) => text(&answer),
            Err(error) => format!("{:?}: {error}", error.kind()),
        }
    }
}

pub fn text(answer: &TsAnswer) -> String {
    let line = |group: &crate::answer::TsGroup| {
        let tags: Vec<String> = group.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let points: Vec<String> = group
            .points
            .iter()
            .map(|(time, value)| match time.micros() % 1_000_000 {
                0 => format!("{}:{value}", time.seconds()),
                _ => format!("{}:{value}", time.micros() as f64 / 1e6),
            })
            .collect();
        format!("{} {{{}}}: {}", tags.join(","), group.aggregate_tags.join(","), points.join(" ")).trim().to_owned()
    };
    answer.groups.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    RUNTIME.block_on(work)
}

/// Seconds, or with a point fractions of them.
pub fn at(seconds: &str) -> Timestamp {
    match seconds.parse() {
        Ok(seconds) => Timestamp::from_seconds(seconds),
        Err(_) => Timestamp::from_micros((seconds.parse::<f64>().unwrap() * 1e6).round() as i64),
    }
}

/// `0 180 sum:1m-avg-nan:rate{counter}:m{host=*}{dc=a|b}`: start and end in seconds, then what
/// OpenTSDB's `m=` would say; `!` in front asks for OpenTSDB's answer to the letter.
pub fn query(text: &str) -> TsQuery {
    let (fidelity, text) = match text.strip_prefix('!') {
        Some(text) => (Fidelity::OpenTsdb, text),
        None => (Fidelity::Sensible, text),
    };
    let mut words = text.split_whitespace();
    let (start, end) = (at(words.next().unwrap()), at(words.next().unwrap()));
    let parts: Vec<&str> = words.next().unwrap().split(':').collect();
    let (metric, braces) =
        parts[parts.len() - 1].split_at(parts[parts.len() - 1].find('{').unwrap_or(parts[parts.len() - 1].len()));
    let mut query = TsQuery {
        metric: metric.to_owned(),
        filters: braces.split('{').skip(1).enumerate().flat_map(|(at, tags)| filters(tags, at == 0)).collect(),
        explicit_tags: false,
        series: None,
        aggregator: parts[0].parse().unwrap(),
        downsample: None,
        rate: None,
        start,
        end,
        fidelity,
    };
    for part in &parts[1..parts.len() - 1] {
        match part.strip_prefix("rate") {
            Some(options) => query.rate = Some(rate(options)),
            None if *part == "explicit_tags" => query.explicit_tags = true,
            None => query.downsample = Some(downsample(part)),
        }
    }
    query
}

fn filters(tags: &str, group_by: bool) -> Vec<TagFilter> {
    let tags = tags.trim_end_matches('}').split(',').filter(|tag| !tag.is_empty());
    tags.map(|tag| {
        let (key, value) = tag.split_once('=').unwrap();
        let matcher = if let Some(expression) = value.strip_prefix('~') {
            Matcher::Regexp(Expression::new(expression, Case::Matters).unwrap())
        } else if value.contains('*') {
            Matcher::IWildcard(value.to_owned())
        } else {
            Matcher::LiteralOr(value.split('|').map(str::to_owned).collect())
        };
        TagFilter { key: key.to_owned(), matcher, group_by }
    })
    .collect()
}

/// `{counter,max,reset}`, as in OpenTSDB's URI; `{dropcounter}`.
fn rate(options: &str) -> Rate {
    let mut words = options.trim_matches(['{', '}']).split(',');
    let kind = words.next().unwrap_or_default();
    let mut number = || words.next().and_then(|word| word.parse().ok());
    Rate {
        counter: !kind.is_empty(),
        drop_resets: kind == "dropcounter",
        counter_max: number(),
        reset_value: number().unwrap_or(0),
    }
}

/// `30s-avg`, `1m-sum-nan`, `0all-max`, `1dc-sum-zero`, `6hc@America/New_York-sum`.
pub fn downsample(text: &str) -> Downsample {
    let mut parts = text.split('-');
    let (interval, zone) = parts.next().map(|part| part.split_once('@').unwrap_or((part, "UTC"))).unwrap();
    let function: Aggregator = parts.next().unwrap().parse().unwrap();
    let fill = match parts.next() {
        None => Fill::None,
        Some("nan") => Fill::Nan,
        Some("null") => Fill::Null,
        Some("zero") => Fill::Zero,
        Some(other) => panic!("fill '{other}'"),
    };
    let digits = interval.find(|c: char| !c.is_ascii_digit()).unwrap();
    let (count, unit) = interval.split_at(digits);
    let count: u32 = count.parse().unwrap();
    let interval = if unit == "all" {
        Interval::All
    } else if let Some(unit) = unit.strip_suffix('c') {
        Interval::Calendar { count, unit: calendar_unit(unit), zone: zone.parse::<Tz>().unwrap() }
    } else {
        Interval::Fixed(Step::from_micros(i64::from(count) * unit_micros(unit)).unwrap())
    };
    Downsample { interval, function, fill }
}

fn calendar_unit(unit: &str) -> CalendarUnit {
    match unit {
        "ms" => CalendarUnit::Millisecond,
        "s" => CalendarUnit::Second,
        "m" => CalendarUnit::Minute,
        "h" => CalendarUnit::Hour,
        "d" => CalendarUnit::Day,
        "w" => CalendarUnit::Week,
        "n" => CalendarUnit::Month,
        _ => CalendarUnit::Year,
    }
}

fn unit_micros(unit: &str) -> i64 {
    match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        other => panic!("unit '{other}'"),
    }
}

/// Both answers name the same groups and times, and values that differ by rounding at most.
pub fn same(a: &Result<TsAnswer>, b: &Result<TsAnswer>) -> std::result::Result<(), String> {
    let (a, b) = match (a, b) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(Error::Infinite { at_millis: a, .. }), Err(Error::Infinite { at_millis: b, .. })) if a == b => {
            return Ok(());
        }
        _ => return Err(format!("{a:?}\n{b:?}")),
    };
    if a.groups.len() != b.groups.len() {
        return Err(format!("{} groups and {}", a.groups.len(), b.groups.len()));
    }
    for (a, b) in a.groups.iter().zip(&b.groups) {
        if a.tags != b.tags || a.aggregate_tags != b.aggregate_tags || a.series != b.series {
            return Err(format!("{a:?}\n{b:?}"));
        }
        let near = |(a, b): (&(Timestamp, Value), &(Timestamp, Value))| {
            let (x, y) = (a.1.as_f64(), b.1.as_f64());
            let near = x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= 1e-9 * x.abs().max(y.abs()).max(1.0);
            a.0 == b.0 && near
        };
        if a.points.len() != b.points.len() || !a.points.iter().zip(&b.points).all(near) {
            return Err(format!("{:?}: {:?}\n{:?}", a.tags, a.points, b.points));
        }
    }
    Ok(())
}
