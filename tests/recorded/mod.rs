//! Recorded requests and answers of a real OpenTSDB 2.4.1 (`fixtures/opentsdb`), and their replay.

mod judge;
mod telnet;
mod tests;

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

/// A request and what OpenTSDB answered.
pub struct Case {
    pub id: String,
    pub request: Json,
    /// How the answer is to be compared, if not to the letter.
    pub compare: String,
    pub status: u16,
    pub body: Json,
}

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/opentsdb")
}

/// The cases of one file, in the order in which they must be replayed.
pub fn cases(file: &str) -> Vec<Case> {
    let Json::Array(cases) = read_json(&fixtures().join(format!("{file}.json"))) else { panic!("{file}: no list") };
    let text = |json: &Json| json.as_str().unwrap_or_default().to_owned();
    let case = |mut case: Json| Case {
        id: text(&case["id"]),
        compare: text(&case["compare"]),
        status: u16::try_from(case["expect"]["status"].as_u64().unwrap()).unwrap(),
        body: case["expect"]["body"].take(),
        request: case["request"].take(),
    };
    cases.into_iter().map(case).collect()
}

/// Every sample of every dataset, in the order in which they are put.
pub fn dataset_samples() -> Vec<Json> {
    let mut samples = Vec::new();
    for name in read_json(&fixtures().join("datasets/_order.json"))["datasets"].as_array().unwrap() {
        let dataset = read_json(&fixtures().join(format!("datasets/{}.json", name.as_str().unwrap())));
        samples.extend(dataset["put"].as_array().unwrap().iter().cloned());
    }
    samples
}

fn read_json(path: &Path) -> Json {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
