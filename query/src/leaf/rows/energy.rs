//! The energy of jobs as rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, StringViewArray};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::error::Result;
use serde::{Deserialize, Serialize};

use super::engine_error;
use super::known::{batch, names};
use super::{Column, RowKind, RowsRequest, Tests, unanswerable};
use crate::energy::{EnergyQuestion, JobEnergy};
use crate::leaf::{Batches, LeafContext, Part};

/// What is known of the energy that a job took on a node, or on one GPU of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EnergyField {
    Host,
    Gpu,
    Source,
    Method,
    Joules,
    Kwh,
    MeanWatts,
    PeakWatts,
    Seconds,
    UnknownSeconds,
    GpuHours,
    IdleGpuHours,
    HeldIdleGpuHours,
    Doubt,
    Reason,
}

impl EnergyField {
    pub const ALL: [EnergyField; 15] = [
        EnergyField::Host,
        EnergyField::Gpu,
        EnergyField::Source,
        EnergyField::Method,
        EnergyField::Joules,
        EnergyField::Kwh,
        EnergyField::MeanWatts,
        EnergyField::PeakWatts,
        EnergyField::Seconds,
        EnergyField::UnknownSeconds,
        EnergyField::GpuHours,
        EnergyField::IdleGpuHours,
        EnergyField::HeldIdleGpuHours,
        EnergyField::Doubt,
        EnergyField::Reason,
    ];

    /// Of its column.
    pub fn name(self) -> &'static str {
        match self {
            EnergyField::Host => "host",
            EnergyField::Gpu => "gpu",
            EnergyField::Source => "source",
            EnergyField::Method => "method",
            EnergyField::Joules => "joules",
            EnergyField::Kwh => "kwh",
            EnergyField::MeanWatts => "mean_watts",
            EnergyField::PeakWatts => "peak_watts",
            EnergyField::Seconds => "seconds",
            EnergyField::UnknownSeconds => "unknown_seconds",
            EnergyField::GpuHours => "gpu_hours",
            EnergyField::IdleGpuHours => "idle_gpu_hours",
            EnergyField::HeldIdleGpuHours => "held_idle_gpu_hours",
            EnergyField::Doubt => "doubt",
            EnergyField::Reason => "reason",
        }
    }

    pub(super) fn data_type(self) -> DataType {
        match self {
            EnergyField::Host
            | EnergyField::Gpu
            | EnergyField::Source
            | EnergyField::Method
            | EnergyField::Doubt
            | EnergyField::Reason => DataType::Utf8View,
            _ => DataType::Float64,
        }
    }

    fn array(self, rows: &[JobEnergy]) -> ArrayRef {
        let texts = |text: fn(&JobEnergy) -> Option<&String>| {
            Arc::new(rows.iter().map(text).collect::<StringViewArray>()) as ArrayRef
        };
        let numbers = |number: fn(&JobEnergy) -> Option<f64>| {
            Arc::new(rows.iter().map(number).collect::<Float64Array>()) as ArrayRef
        };
        match self {
            EnergyField::Host => texts(|row| row.host.as_ref()),
            EnergyField::Gpu => texts(|row| row.gpu.as_ref()),
            EnergyField::Source => texts(|row| row.source.as_ref()),
            EnergyField::Method => texts(|row| row.method.as_ref()),
            EnergyField::Joules => numbers(|row| row.joules),
            EnergyField::Kwh => numbers(|row| row.kwh),
            EnergyField::MeanWatts => numbers(|row| row.mean_watts),
            EnergyField::PeakWatts => numbers(|row| row.peak_watts),
            EnergyField::Seconds => numbers(|row| Some(row.seconds)),
            EnergyField::UnknownSeconds => numbers(|row| Some(row.unknown_seconds)),
            EnergyField::GpuHours => numbers(|row| row.gpu_hours),
            EnergyField::IdleGpuHours => numbers(|row| row.idle_gpu_hours),
            EnergyField::HeldIdleGpuHours => numbers(|row| row.held_idle_gpu_hours),
            EnergyField::Doubt => texts(|row| row.doubt.as_ref()),
            EnergyField::Reason => texts(|row| row.reason.as_ref()),
        }
    }
}

pub(super) fn energies(
    request: &RowsRequest,
    context: &LeafContext,
    schema: &SchemaRef,
    part: Part,
) -> Result<Batches> {
    if part.index > 0 {
        return Ok(Box::new(std::iter::empty()));
    }
    let tests = Tests::new(&request.tests)?;
    let question = EnergyQuestion {
        is_job: &|job| tests.job.iter().all(|accepts| accepts(job)),
        is_node: &|node| tests.node.iter().all(|accepts| accepts(node)),
        is_stopped: &|| context.stop.is_asked(),
    };
    let mut rows = question.answer(&context.snapshot).map_err(engine_error)?;
    rows.truncate(request.limit.unwrap_or(usize::MAX));
    let mut arrays = Vec::with_capacity(request.columns.len());
    for column in &request.columns {
        arrays.push(match column {
            Column::Job => names(rows.iter().map(|row| &row.job)),
            Column::Node => names(rows.iter().map(|row| &row.node)),
            Column::OfEnergy(field) => field.array(&rows),
            column => return Err(unanswerable(RowKind::Energy, column)),
        });
    }
    Ok(Box::new(std::iter::once(batch(schema, arrays, rows.len()))))
}
