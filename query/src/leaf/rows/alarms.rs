//! When alarms were raised and ended, as rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, StringViewArray};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::error::Result;
use serde::{Deserialize, Serialize};

use super::known::{batch, names, times};
use super::{Column, RowKind, RowsRequest, Tests, time_type, unanswerable};
use crate::alarm::history::AlarmRise;
use crate::leaf::{Batches, LeafContext, Part};

/// What is known of one time that an alarm was raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AlarmField {
    Alarm,
    Metric,
    Condition,
    Value,
    Raised,
    Ended,
    EndedBy,
}

impl AlarmField {
    pub const ALL: [AlarmField; 7] = [
        AlarmField::Alarm,
        AlarmField::Metric,
        AlarmField::Condition,
        AlarmField::Value,
        AlarmField::Raised,
        AlarmField::Ended,
        AlarmField::EndedBy,
    ];

    /// Of its column.
    pub fn name(self) -> &'static str {
        match self {
            AlarmField::Alarm => "alarm",
            AlarmField::Metric => "metric",
            AlarmField::Condition => "condition",
            AlarmField::Value => "value",
            AlarmField::Raised => "raised_ts",
            AlarmField::Ended => "ended_ts",
            AlarmField::EndedBy => "ended_by",
        }
    }

    pub(super) fn data_type(self) -> DataType {
        match self {
            AlarmField::Value => DataType::Float64,
            AlarmField::Raised | AlarmField::Ended => time_type(),
            AlarmField::Alarm | AlarmField::Metric | AlarmField::Condition | AlarmField::EndedBy => DataType::Utf8View,
        }
    }

    fn array(self, rows: &[AlarmRise]) -> ArrayRef {
        let texts = |text: fn(&AlarmRise) -> Option<&str>| {
            Arc::new(rows.iter().map(text).collect::<StringViewArray>()) as ArrayRef
        };
        match self {
            AlarmField::Alarm => texts(|row| Some(&row.alarm)),
            AlarmField::Metric => texts(|row| Some(&row.metric)),
            AlarmField::Condition => texts(|row| Some(&row.condition)),
            AlarmField::EndedBy => texts(|row| row.ended.map(|(_, end)| end.name())),
            AlarmField::Value => Arc::new(rows.iter().map(|row| Some(row.value)).collect::<Float64Array>()),
            AlarmField::Raised => times(rows.iter().map(|row| Some(row.raised))),
            AlarmField::Ended => times(rows.iter().map(|row| row.ended.map(|(time, _)| time))),
        }
    }
}

pub(super) fn alarms(request: &RowsRequest, context: &LeafContext, schema: &SchemaRef, part: Part) -> Result<Batches> {
    if part.index > 0 {
        return Ok(Box::new(std::iter::empty()));
    }
    let tests = Tests::new(&request.tests)?;
    let mut rows = AlarmRise::all(context.snapshot.meta());
    rows.retain(|row| {
        tests.node.iter().all(|accepts| accepts(&row.node)) && tests.job.iter().all(|accepts| accepts(&row.job))
    });
    rows.truncate(request.limit.unwrap_or(usize::MAX));
    let mut arrays = Vec::with_capacity(request.columns.len());
    for column in &request.columns {
        arrays.push(match column {
            Column::Job => names(rows.iter().map(|row| &row.job)),
            Column::Node => names(rows.iter().map(|row| &row.node)),
            Column::OfAlarm(field) => field.array(&rows),
            column => return Err(unanswerable(RowKind::Alarm, column)),
        });
    }
    Ok(Box::new(std::iter::once(batch(schema, arrays, rows.len()))))
}
