//! The requests of Grafana's OpenTSDB data source for a panel and for a variable, generation by generation.

use std::cell::RefCell;
use std::net::TcpStream;

use serde_json::{Map, Value as Json, json};

use super::template::{Chosen, Format, Variables, replace};
use crate::process::{Connection, Response, Server};

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// Up to 12.3: the browser, all targets of a panel at once, times in milliseconds.
    Browser,
    /// 12.4: the same with all that stands in a target.
    Whole,
    /// 13: the server, one target a request, times in seconds.
    Server,
}

pub const GENERATIONS: [Generation; 3] = [Generation::Browser, Generation::Whole, Generation::Server];

/// What the address of the data source ends with.
const BELOW: &str = "/grafana";

/// One connection, kept open as Grafana keeps its own.
pub struct Asker(RefCell<Connection<TcpStream>>);

impl Asker {
    pub fn new(server: &Server) -> Self {
        Self(RefCell::new(server.connect()))
    }

    fn get(&self, path: &str) -> Response {
        self.0.borrow_mut().request("GET", &format!("{BELOW}{path}"), &[], b"").unwrap()
    }

    fn post(&self, path: &str, body: &Json) -> Response {
        self.0.borrow_mut().request("POST", &format!("{BELOW}{path}"), &[], body.to_string().as_bytes()).unwrap()
    }
}

/// Where Grafana is looking, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub from: i64,
    pub to: i64,
}

/// The interval that Grafana computes for a range and a number of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    pub millis: i64,
}

impl Interval {
    pub fn of(range: Range, points_max: i64) -> Self {
        const STEPS: [(i64, i64); 24] = [
            (10, 1),
            (15, 10),
            (35, 20),
            (75, 50),
            (150, 100),
            (350, 200),
            (750, 500),
            (1_500, 1_000),
            (3_500, 2_000),
            (7_500, 5_000),
            (12_500, 10_000),
            (17_500, 15_000),
            (25_000, 20_000),
            (45_000, 30_000),
            (90_000, 60_000),
            (210_000, 120_000),
            (450_000, 300_000),
            (750_000, 600_000),
            (1_050_000, 900_000),
            (1_500_000, 1_200_000),
            (2_700_000, 1_800_000),
            (5_400_000, 3_600_000),
            (9_000_000, 7_200_000),
            (16_200_000, 10_800_000),
        ];
        let exact = (range.to - range.from) / points_max;
        let step = STEPS.iter().find(|(below, _)| exact < *below);
        Self { millis: step.map_or(21_600_000, |(_, step)| *step) }
    }

    /// This one, unless a panel asks for a coarser one, written as in [`Self::text`].
    pub fn at_least(self, text: &str) -> Self {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap();
        let unit = match &text[digits..] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            other => panic!("'{text}' has the unit '{other}', which no panel uses"),
        };
        Self { millis: self.millis.max(text[..digits].parse::<i64>().unwrap() * unit) }
    }

    /// `200ms`, `5s`, `2m`, `1h`.
    fn text(self) -> String {
        match self.millis {
            millis if millis < 1_000 => format!("{millis}ms"),
            millis if millis < 60_000 => format!("{}s", millis / 1_000),
            millis if millis < 3_600_000 => format!("{}m", millis / 60_000),
            millis => format!("{}h", millis / 3_600_000),
        }
    }
}

/// The answers to the targets of one panel, each a list of series.
pub fn panel(
    asker: &Asker,
    generation: Generation,
    targets: &[Json],
    variables: &Variables,
    range: Range,
    interval: Interval,
) -> Vec<Vec<Json>> {
    let subs = targets.iter().map(|target| sub_query(generation, target, variables, interval));
    match generation {
        Generation::Browser | Generation::Whole => {
            let body = json!({"start": range.from, "queries": subs.collect::<Vec<_>>(), "msResolution": true,
                "globalAnnotations": true, "showQuery": true, "end": range.to});
            let mut answers = vec![Vec::new(); targets.len()];
            for series in ok(asker.post("/api/query", &body), &body).as_array().unwrap() {
                // Equal sub-queries are answered once, under the index of the first; there are none in a panel.
                let index = series["query"]["index"].as_u64().unwrap();
                answers[usize::try_from(index).unwrap()].push(series.clone());
            }
            answers
        }
        Generation::Server => subs
            .map(|sub| {
                let body = json!({"start": range.from / 1_000, "end": range.to / 1_000, "queries": [sub]});
                ok(asker.post("/api/query", &body), &body).as_array().unwrap().clone()
            })
            .collect(),
    }
}

fn ok(response: Response, asked: &Json) -> Json {
    assert_eq!(response.status, 200, "{} for {asked:#}", response.text());
    response.json()
}

fn sub_query(generation: Generation, target: &Json, variables: &Variables, interval: Interval) -> Json {
    let text = |key: &str| target[key].as_str().map(str::to_owned).unwrap_or_default();
    let set = |key: &str| target[key].as_bool().unwrap_or(false);
    let mut sub = match generation {
        Generation::Whole => target.as_object().unwrap().clone(),
        Generation::Browser | Generation::Server => Map::new(),
    };
    sub.insert("metric".to_owned(), replace(&text("metric"), variables, Format::Pipe).into());
    sub.insert("aggregator".to_owned(), replace(&text("aggregator"), variables, Format::Glob).into());
    if set("shouldComputeRate") {
        sub.insert("rate".to_owned(), true.into());
        sub.insert("rateOptions".to_owned(), json!({"counter": set("isCounter"), "dropResets": true}));
    }
    let own = Some(text("downsampleInterval")).filter(|own| !own.is_empty());
    let step = own.unwrap_or_else(|| interval.text());
    let mut downsample = format!("{step}-{}", text("downsampleAggregator"));
    if text("downsampleFillPolicy") != "none" {
        downsample = format!("{downsample}-{}", text("downsampleFillPolicy"));
    }
    sub.insert("downsample".to_owned(), downsample.into());
    let filters: Vec<Json> =
        target["filters"].as_array().unwrap().iter().map(|filter| interpolated(filter, variables)).collect();
    if !filters.is_empty() {
        sub.insert("filters".to_owned(), filters.into());
    }
    sub.into()
}

fn interpolated(filter: &Json, variables: &Variables) -> Json {
    let mut filter = filter.clone();
    for key in ["tagk", "filter"] {
        filter[key] = replace(filter[key].as_str().unwrap(), variables, Format::Pipe).into();
    }
    filter
}

/// The name under which a series is shown, where the dashboard gives one.
pub fn label(target: &Json, series: &Json, variables: &Variables) -> Option<String> {
    let mut variables = variables.clone();
    for (key, value) in series["tags"].as_object().unwrap() {
        variables.insert(format!("tag_{key}"), Chosen::One(value.as_str().unwrap().to_owned()));
    }
    Some(replace(target["alias"].as_str()?, &variables, Format::Glob))
}

/// The values that the query of a variable finds.
pub fn find(asker: &Asker, generation: Generation, query: &str, variables: &Variables) -> Vec<String> {
    let query = replace(query, variables, Format::Distributed);
    let (function, arguments) = query.strip_suffix(')').and_then(|query| query.split_once('(')).unwrap();
    match function {
        "metrics" => suggest(asker, "metrics", arguments),
        "suggest_tagk" => suggest(asker, "tagk", arguments),
        "suggest_tagv" => suggest(asker, "tagv", arguments),
        "tag_names" => {
            let mut keys = Vec::new();
            for tags in lookup(asker, generation, arguments, 1_000) {
                keys.extend(tags.keys().cloned());
            }
            once(keys)
        }
        "tag_values" => {
            let (metric, keys) = arguments.split_once(',').unwrap();
            let (key, more) =
                keys.split_once(',').map_or((keys, String::new()), |(key, more)| (key, format!(",{more}")));
            let key = key.trim();
            let found = lookup(asker, generation, &format!("{metric}{{{key}=*{more}}}"), 100_000);
            once(found.iter().map(|tags| tags[key].as_str().unwrap().to_owned()).collect())
        }
        other => panic!("the data source knows no function '{other}'"),
    }
}

fn suggest(asker: &Asker, kind: &str, prefix: &str) -> Vec<String> {
    let names = ok(asker.get(&format!("/api/suggest?type={kind}&q={prefix}&max=100000")), &json!(prefix));
    names.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

fn lookup(asker: &Asker, generation: Generation, m: &str, limit: usize) -> Vec<Map<String, Json>> {
    let m: String = m
        .bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    let path = match generation {
        Generation::Browser | Generation::Whole => format!("/api/search/lookup?m={m}&limit={limit}"),
        Generation::Server => format!("/api/search/lookup?limit={limit}&m={m}"),
    };
    let answer = ok(asker.get(&path), &json!(path));
    answer["results"].as_array().unwrap().iter().map(|found| found["tags"].as_object().unwrap().clone()).collect()
}

fn once(mut values: Vec<String>) -> Vec<String> {
    values.sort();
    values.dedup();
    values
}
