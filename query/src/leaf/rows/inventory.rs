//! The devices of nodes as rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, StringViewArray};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::error::Result;
use serde::{Deserialize, Serialize};
use telem_engine::InventoryEntry;

use super::known::batch;
use super::{Column, RowKind, RowsRequest, Tests, unanswerable};
use crate::leaf::{Batches, LeafContext, Part};

/// What is known of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceField {
    Kind,
    Device,
    Vendor,
    Model,
    SerialOrUuid,
    Pci,
    Numa,
    MemoryBytes,
    LimitWatts,
    Driver,
    Firmware,
    Status,
    InJob,
    Reason,
}

impl DeviceField {
    pub const ALL: [DeviceField; 14] = [
        DeviceField::Kind,
        DeviceField::Device,
        DeviceField::Vendor,
        DeviceField::Model,
        DeviceField::SerialOrUuid,
        DeviceField::Pci,
        DeviceField::Numa,
        DeviceField::MemoryBytes,
        DeviceField::LimitWatts,
        DeviceField::Driver,
        DeviceField::Firmware,
        DeviceField::Status,
        DeviceField::InJob,
        DeviceField::Reason,
    ];

    /// Of its column.
    pub fn name(self) -> &'static str {
        match self {
            DeviceField::Kind => "kind",
            DeviceField::Device => "device",
            DeviceField::Vendor => "vendor",
            DeviceField::Model => "model",
            DeviceField::SerialOrUuid => "serial_or_uuid",
            DeviceField::Pci => "pci",
            DeviceField::Numa => "numa",
            DeviceField::MemoryBytes => "memory_bytes",
            DeviceField::LimitWatts => "limit_watts",
            DeviceField::Driver => "driver",
            DeviceField::Firmware => "firmware",
            DeviceField::Status => "status",
            DeviceField::InJob => "in_job",
            DeviceField::Reason => "reason",
        }
    }

    pub(super) fn data_type(self) -> DataType {
        match self {
            DeviceField::Numa | DeviceField::MemoryBytes => DataType::Int64,
            DeviceField::LimitWatts => DataType::Float64,
            DeviceField::InJob => DataType::Boolean,
            _ => DataType::Utf8View,
        }
    }

    fn array(self, rows: &[(String, InventoryEntry)]) -> ArrayRef {
        fn texts<'a>(texts: impl Iterator<Item = &'a str>) -> ArrayRef {
            let texts: StringViewArray = texts.map(|text| Some(text).filter(|text| !text.is_empty())).collect();
            Arc::new(texts)
        }
        let devices = rows.iter().map(|(_, device)| device);
        match self {
            DeviceField::Kind => texts(devices.map(|device| device.kind.name())),
            DeviceField::Status => texts(devices.map(|device| device.status.name())),
            DeviceField::Device => texts(devices.map(|device| &*device.device)),
            DeviceField::Vendor => texts(devices.map(|device| &*device.vendor)),
            DeviceField::Model => texts(devices.map(|device| &*device.model)),
            DeviceField::SerialOrUuid => texts(devices.map(|device| &*device.serial_or_uuid)),
            DeviceField::Pci => texts(devices.map(|device| &*device.pci)),
            DeviceField::Driver => texts(devices.map(|device| &*device.driver)),
            DeviceField::Firmware => texts(devices.map(|device| &*device.firmware)),
            DeviceField::Reason => texts(devices.map(|device| &*device.reason)),
            DeviceField::InJob => Arc::new(devices.map(|device| device.in_job).collect::<BooleanArray>()),
            DeviceField::Numa => Arc::new(devices.map(|device| device.numa.map(i64::from)).collect::<Int64Array>()),
            DeviceField::MemoryBytes => {
                let bytes = devices.map(|device| device.memory_bytes.and_then(|bytes| i64::try_from(bytes).ok()));
                Arc::new(bytes.collect::<Int64Array>())
            }
            DeviceField::LimitWatts => Arc::new(devices.map(|device| device.limit_watts).collect::<Float64Array>()),
        }
    }
}

pub(super) fn devices(request: &RowsRequest, context: &LeafContext, schema: &SchemaRef, part: Part) -> Result<Batches> {
    if part.index > 0 {
        return Ok(Box::new(std::iter::empty()));
    }
    let tests = Tests::new(&request.tests)?;
    let mut rows = context.snapshot.meta().inventory();
    rows.retain(|(node, _)| tests.node.iter().all(|accepts| accepts(node)));
    rows.truncate(request.limit.unwrap_or(usize::MAX));
    let mut arrays = Vec::with_capacity(request.columns.len());
    for column in &request.columns {
        arrays.push(match column {
            Column::Node => {
                let nodes: StringViewArray = rows.iter().map(|(node, _)| Some(&**node)).collect();
                Arc::new(nodes) as ArrayRef
            }
            Column::OfDevice(field) => field.array(&rows),
            column => return Err(unanswerable(RowKind::Device, column)),
        });
    }
    Ok(Box::new(std::iter::once(batch(schema, arrays, rows.len()))))
}
