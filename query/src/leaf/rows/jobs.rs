//! Jobs: what their descriptions say as rows, and the samples of one after another.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringViewArray, TimestampMicrosecondArray};
use arrow::array::{MapBuilder, StringBuilder};
use arrow::datatypes::{DataType, SchemaRef};
use chrono::DateTime;
use datafusion::error::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use telem_engine::{JobPart, JobPiece, RecordedJob};

use super::known::{batch, names};
use super::{Column, RowKind, RowsRequest, Tests, tags_type, unanswerable};
use crate::leaf::{Batches, JobOfRows, LeafContext, Part, time_type};

/// What the description of a job says, as `telem run` writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobField {
    /// The job that it is a part of.
    Parent,
    Name,
    State,
    Begin,
    End,
    ExitCode,
    Signal,
    User,
    Command,
    Cwd,
    Settings,
    Tags,
    /// The whole description, as JSON.
    Description,
}

impl JobField {
    pub const ALL: [JobField; 13] = [
        JobField::Parent,
        JobField::Name,
        JobField::State,
        JobField::Begin,
        JobField::End,
        JobField::ExitCode,
        JobField::Signal,
        JobField::User,
        JobField::Command,
        JobField::Cwd,
        JobField::Settings,
        JobField::Tags,
        JobField::Description,
    ];

    /// Of its column.
    pub fn name(self) -> &'static str {
        match self {
            JobField::Parent => "parent",
            JobField::Name => "name",
            JobField::State => "state",
            JobField::Begin => "begin",
            JobField::End => "end",
            JobField::ExitCode => "exit_code",
            JobField::Signal => "signal",
            JobField::User => "user",
            JobField::Command => "command",
            JobField::Cwd => "cwd",
            JobField::Settings => "settings",
            JobField::Tags => "tags",
            JobField::Description => "description",
        }
    }

    pub(super) fn data_type(self) -> DataType {
        match self {
            JobField::Begin | JobField::End => time_type(),
            JobField::ExitCode | JobField::Signal => DataType::Int64,
            JobField::Settings | JobField::Tags => tags_type(),
            _ => DataType::Utf8View,
        }
    }

    /// The values of jobs with these descriptions.
    fn array(self, descriptions: &[Option<&Json>]) -> Result<ArrayRef> {
        let described = descriptions.iter().map(|job| job.unwrap_or(&Json::Null));
        let texts = |text: &dyn Fn(&Json) -> Option<String>| {
            let texts: StringViewArray = described.clone().map(text).collect();
            Arc::new(texts) as ArrayRef
        };
        let field = |name: &str| texts(&|job| job[name].as_str().map(str::to_owned));
        Ok(match self {
            JobField::Parent => field("parent"),
            JobField::Name => field("name"),
            JobField::User => field("user"),
            JobField::Cwd => field("cwd"),
            JobField::State => texts(&|job| state(job).map(str::to_owned)),
            JobField::Command => texts(&command),
            JobField::Description => texts(&|job| (!job.is_null()).then(|| job.to_string())),
            JobField::Begin => times(described.map(|job| job["start"].as_str())),
            JobField::End => times(described.map(|job| job["end"].as_str())),
            JobField::ExitCode => Arc::new(described.map(|job| job["exit_code"].as_i64()).collect::<Int64Array>()),
            JobField::Signal => Arc::new(described.map(|job| job["signal"].as_i64()).collect::<Int64Array>()),
            JobField::Settings => map(described.map(|job| &job["settings"]))?,
            JobField::Tags => map(described.map(|job| &job["tags"]))?,
        })
    }
}

/// How the job went, in one word; `None` where nothing describes it.
fn state(job: &Json) -> Option<&'static str> {
    let ended = job["end"].is_string();
    match (job["exit_code"].as_i64(), job["signal"].as_i64()) {
        (Some(0), _) => Some("completed"),
        (Some(_), _) => Some("failed"),
        (None, Some(_)) => Some("killed"),
        (None, None) if ended => Some("ended"),
        (None, None) => job["start"].is_string().then_some("unfinished"),
    }
}

/// The words of a command line, with blanks between.
fn command(job: &Json) -> Option<String> {
    let words: Vec<&str> = job["command"].as_array()?.iter().filter_map(Json::as_str).collect();
    Some(words.join(" "))
}

fn times<'a>(texts: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    let micros = texts.map(|text| DateTime::parse_from_rfc3339(text?).ok().map(|time| time.timestamp_micros()));
    Arc::new(micros.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
}

/// Objects of scalars as maps of texts; NULL for what is no object.
pub(super) fn map<'a>(objects: impl Iterator<Item = &'a Json>) -> Result<ArrayRef> {
    let names = arrow::array::MapFieldNames { entry: "entries".into(), key: "key".into(), value: "value".into() };
    let mut maps = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new());
    for object in objects {
        for (key, value) in object.as_object().into_iter().flatten() {
            maps.keys().append_value(key);
            match value {
                Json::Null => maps.values().append_null(),
                Json::String(text) => maps.values().append_value(text),
                other => maps.values().append_value(other.to_string()),
            }
        }
        maps.append(object.is_object())?;
    }
    // The builder says that keys are in no order; the column's type says that they are.
    let (_, offsets, entries, nulls, _) = maps.finish().into_parts();
    let DataType::Map(field, is_sorted) = tags_type() else { unreachable!("tags are a map") };
    Ok(Arc::new(arrow::array::MapArray::try_new(field, offsets, entries, nulls, is_sorted)?))
}

/// Answers the request from the samples of one job after the other.
pub(super) fn one_by_one(
    request: &RowsRequest,
    context: &LeafContext,
    schema: &SchemaRef,
    part: Part,
) -> Result<Batches> {
    let tests = Tests::new(&request.tests)?;
    let jobs = context.snapshot.jobs(|job| tests.job.iter().all(|accepts| accepts(job)));
    let (request, context, schema) = (request.clone(), context.clone(), Arc::clone(schema));
    let pieces = jobs.into_iter().flat_map(|recorded| {
        let RecordedJob { job, pieces } = recorded;
        pieces
            .into_iter()
            .map(move |JobPiece { snapshot, ranges }| (JobOfRows { job: Arc::clone(&job), ranges }, snapshot))
    });
    Ok(Box::new(pieces.flat_map(move |(job, snapshot)| {
        let context = LeafContext { snapshot, job: Some(job), ..context.clone() };
        request.of_one_job(&context, &schema, part)
    })))
}

/// A row for each part of a job that passes.
pub(super) fn jobs(request: &RowsRequest, context: &LeafContext, schema: &SchemaRef, part: Part) -> Result<Batches> {
    if part.index > 0 {
        return Ok(Box::new(std::iter::empty()));
    }
    let tests = Tests::new(&request.tests)?;
    let passes = |part: &JobPart| {
        tests.job.iter().all(|accepts| accepts(&part.job)) && tests.node.iter().all(|accepts| accepts(&part.node))
    };
    let mut parts: Vec<JobPart> = context.snapshot.job_parts().into_iter().filter(passes).collect();
    parts.truncate(request.limit.unwrap_or(usize::MAX));
    let descriptions: Vec<Option<&Json>> = parts.iter().map(|part| part.description.as_deref()).collect();
    let mut arrays = Vec::with_capacity(request.columns.len());
    for column in &request.columns {
        arrays.push(match column {
            Column::Job => names(parts.iter().map(|part| &part.job)),
            Column::Node => names(parts.iter().map(|part| &part.node)),
            Column::OfJob(field) => field.array(&descriptions)?,
            column => return Err(unanswerable(RowKind::Job, column)),
        });
    }
    Ok(Box::new(std::iter::once(batch(schema, arrays, parts.len()))))
}
