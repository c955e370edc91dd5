//! The records of wandb's logs, as far as an import reads them: those of `wandb_internal.proto`.

use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub struct WandbRecord {
    #[prost(oneof = "WandbContent", tags = "2, 5, 7, 17, 18")]
    pub content: Option<WandbContent>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum WandbContent {
    #[prost(message, tag = "2")]
    History(HistoryRecord),
    #[prost(message, tag = "5")]
    Config(ConfigRecord),
    #[prost(message, tag = "7")]
    Stats(StatsRecord),
    #[prost(message, tag = "17")]
    Run(WandbRun),
    #[prost(message, tag = "18")]
    Exit(ExitRecord),
}

#[derive(Clone, PartialEq, Message)]
pub struct HistoryRecord {
    #[prost(message, repeated, tag = "1")]
    pub item: Vec<WandbItem>,
    #[prost(message, optional, tag = "2")]
    pub step: Option<HistoryStep>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HistoryStep {
    #[prost(int64, tag = "1")]
    pub num: i64,
}

/// An item of a history, of settings or of the machine's figures.
#[derive(Clone, PartialEq, Message)]
pub struct WandbItem {
    #[prost(string, tag = "1")]
    pub key: String,
    /// The name of one in objects, part by part.
    #[prost(string, repeated, tag = "2")]
    pub nested_key: Vec<String>,
    #[prost(string, tag = "16")]
    pub value_json: String,
}

impl WandbItem {
    /// Its name, that of one in objects with dots.
    pub fn name(&self) -> String {
        if self.nested_key.is_empty() { self.key.clone() } else { self.nested_key.join(".") }
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct ConfigRecord {
    #[prost(message, repeated, tag = "1")]
    pub update: Vec<WandbItem>,
    #[prost(message, repeated, tag = "2")]
    pub remove: Vec<WandbItem>,
}

#[derive(Clone, PartialEq, Message)]
pub struct StatsRecord {
    #[prost(message, optional, tag = "2")]
    pub timestamp: Option<WandbTime>,
    #[prost(message, repeated, tag = "3")]
    pub item: Vec<WandbItem>,
}

/// A `google.protobuf.Timestamp`.
#[derive(Clone, PartialEq, Message)]
pub struct WandbTime {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct WandbRun {
    #[prost(string, tag = "1")]
    pub run_id: String,
    #[prost(string, tag = "3")]
    pub project: String,
    #[prost(message, optional, tag = "4")]
    pub config: Option<ConfigRecord>,
    #[prost(string, tag = "6")]
    pub run_group: String,
    #[prost(string, tag = "7")]
    pub job_type: String,
    #[prost(string, tag = "8")]
    pub display_name: String,
    #[prost(string, tag = "9")]
    pub notes: String,
    #[prost(string, repeated, tag = "10")]
    pub tags: Vec<String>,
    #[prost(string, tag = "13")]
    pub host: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ExitRecord {
    #[prost(int32, tag = "1")]
    pub exit_code: i32,
}
