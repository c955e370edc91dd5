//! The messages of TensorBoard's event files, as far as telem reads and writes them: those of `event.proto`,
//! `summary.proto`, `tensor.proto`, and of the plugin's `plugin_data.proto`.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub struct LogEvent {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    pub wall_time: f64,
    #[prost(int64, tag = "2")]
    pub step: i64,
    /// In the first event of a file alone.
    #[prost(string, optional, tag = "3")]
    pub file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    pub summary: Option<EventSummary>,
}

#[derive(Clone, PartialEq, Message)]
pub struct EventSummary {
    #[prost(message, repeated, tag = "1")]
    pub value: Vec<SummaryValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SummaryValue {
    #[prost(string, tag = "1")]
    pub tag: String,
    #[prost(message, optional, tag = "9")]
    pub metadata: Option<SummaryMetadata>,
    #[prost(oneof = "SummaryContent", tags = "2, 8")]
    pub value: Option<SummaryContent>,
}

impl SummaryValue {
    pub fn plugin(&self) -> Option<&PluginData> {
        self.metadata.as_ref()?.plugin_data.as_ref()
    }
}

/// What may be a scalar.
#[derive(Clone, PartialEq, Oneof)]
pub enum SummaryContent {
    #[prost(float, tag = "2")]
    SimpleValue(f32),
    /// A [`Tensor`], whose lists take up to eight times its bytes once it is read.
    #[prost(bytes = "bytes", tag = "8")]
    Tensor(Bytes),
}

#[derive(Clone, PartialEq, Message)]
pub struct SummaryMetadata {
    #[prost(message, optional, tag = "1")]
    pub plugin_data: Option<PluginData>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PluginData {
    #[prost(string, tag = "1")]
    pub plugin_name: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub content: Bytes,
}

/// Numbers are in `tensor_content`, little-endian, or in the list of their type.
#[derive(Clone, PartialEq, Message)]
pub struct Tensor {
    #[prost(int32, tag = "1")]
    pub dtype: i32,
    #[prost(message, optional, tag = "2")]
    pub tensor_shape: Option<TensorShape>,
    #[prost(bytes = "bytes", tag = "4")]
    pub tensor_content: Bytes,
    #[prost(float, repeated, tag = "5")]
    pub float_val: Vec<f32>,
    #[prost(double, repeated, tag = "6")]
    pub double_val: Vec<f64>,
    /// Also of the shorter ones.
    #[prost(int32, repeated, tag = "7")]
    pub int_val: Vec<i32>,
    #[prost(int64, repeated, tag = "10")]
    pub int64_val: Vec<i64>,
    #[prost(bool, repeated, tag = "11")]
    pub bool_val: Vec<bool>,
    /// The bits of `half` and of `bfloat16`.
    #[prost(int32, repeated, tag = "13")]
    pub half_val: Vec<i32>,
    #[prost(uint32, repeated, tag = "16")]
    pub uint32_val: Vec<u32>,
    #[prost(uint64, repeated, tag = "17")]
    pub uint64_val: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorShape {
    #[prost(message, repeated, tag = "2")]
    pub dim: Vec<TensorDimension>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorDimension {
    #[prost(int64, tag = "1")]
    pub size: i64,
}

/// What the plugin `hparams` keeps, as far as it is about the start of a session.
#[derive(Clone, PartialEq, Message)]
pub struct HparamsData {
    #[prost(message, optional, tag = "3")]
    pub session_start_info: Option<SessionStart>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SessionStart {
    #[prost(btree_map = "string, message", tag = "1")]
    pub hparams: BTreeMap<String, HparamValue>,
}

/// A `google.protobuf.Value`.
#[derive(Clone, PartialEq, Message)]
pub struct HparamValue {
    #[prost(oneof = "HparamKind", tags = "2, 3, 4")]
    pub kind: Option<HparamKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum HparamKind {
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bool, tag = "4")]
    Truth(bool),
}
