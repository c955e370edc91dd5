//! Encodes a segment in memory: compressed, it is small beside the memtable it comes from.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int8Array, Int64Array, TimestampMicrosecondArray, UInt32Array};
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;

use super::{FORMAT, PAGE_ROWS, ROW_GROUP_ROWS, schema};
use crate::error::{Error, Result};
use crate::series::SeriesId;
use crate::time::{TimeRange, Timestamp};
use crate::value::Value;

/// Takes samples in the order of rows.
pub struct SegmentWriter {
    writer: ArrowWriter<Vec<u8>>,
    window: TimeRange,
    node: String,
    sequence: (u64, u64),
    rows: u64,
    bounds: Option<(Timestamp, Timestamp)>,
    series: Vec<u32>,
    times: Vec<i64>,
    ints: Vec<Option<i64>>,
    floats: Vec<Option<f64>>,
}

/// A finished segment, not yet a file.
#[derive(Debug)]
pub struct Encoded {
    pub bytes: Vec<u8>,
    pub rows: u64,
    pub first: Timestamp,
    pub last: Timestamp,
}

impl SegmentWriter {
    /// # Errors
    /// Internal when Parquet refuses our schema.
    pub fn new(node: &str, window: TimeRange, sequence_min: u64, sequence_max: u64) -> Result<Self> {
        // Arrow's own copy of the schema says nothing that the Parquet types do not.
        let options = ArrowWriterOptions::new().with_properties(properties()?).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(Vec::new(), schema(), options).map_err(internal)?;
        Ok(Self {
            writer,
            window,
            node: node.to_owned(),
            sequence: (sequence_min, sequence_max),
            rows: 0,
            bounds: None,
            series: Vec::new(),
            times: Vec::new(),
            ints: Vec::new(),
            floats: Vec::new(),
        })
    }

    /// Appends samples of one series: sorted by time, every time once and in the window.
    ///
    /// # Errors
    /// Internal when Parquet refuses them.
    pub fn push(&mut self, series: SeriesId, samples: &[(Timestamp, Value)]) -> Result<()> {
        for (time, value) in samples {
            assert!(self.window.contains(*time), "the caller cuts samples at windows");
            self.series.push(series.0);
            self.times.push(time.micros());
            let (int, float) = match value {
                Value::Int(int) => (Some(*int), None),
                Value::Float(float) => (None, Some(*float)),
            };
            self.ints.push(int);
            self.floats.push(float);
            self.bounds = Some(match self.bounds {
                Some((first, last)) => (first.min(*time), last.max(*time)),
                None => (*time, *time),
            });
            if self.series.len() == PAGE_ROWS {
                self.write_rows()?;
            }
        }
        Ok(())
    }

    /// The bytes of the file; `None` when no sample was pushed.
    ///
    /// # Errors
    /// Internal when Parquet refuses them.
    pub fn finish(mut self) -> Result<Option<Encoded>> {
        self.write_rows()?;
        let Some((first, last)) = self.bounds else { return Ok(None) };
        let (start, end) = (self.window.start.micros(), self.window.end.micros());
        for (key, value) in [
            ("telem.format", FORMAT.to_owned()),
            ("telem.node", self.node),
            ("telem.sequence", format!("{}-{}", self.sequence.0, self.sequence.1)),
            ("telem.window", format!("{start}..{end}")),
            ("telem.rows", self.rows.to_string()),
        ] {
            self.writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
        }
        let bytes = self.writer.into_inner().map_err(internal)?;
        Ok(Some(Encoded { bytes, rows: self.rows, first, last }))
    }

    fn write_rows(&mut self) -> Result<()> {
        let rows = self.series.len();
        if rows == 0 {
            return Ok(());
        }
        let times = TimestampMicrosecondArray::from(std::mem::take(&mut self.times)).with_timezone("UTC");
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from(std::mem::take(&mut self.series))),
            Arc::new(times),
            Arc::new(Int64Array::from(std::mem::take(&mut self.ints))),
            Arc::new(Int8Array::new_null(rows)),
            Arc::new(Float64Array::from(std::mem::take(&mut self.floats))),
        ];
        let batch = RecordBatch::try_new(schema(), columns)
            .map_err(|error| Error::Internal { what: format!("a segment's rows do not fit its schema: {error}") })?;
        self.writer.write(&batch).map_err(internal)?;
        self.rows += rows as u64;
        Ok(())
    }
}

fn properties() -> Result<WriterProperties> {
    let zstd = Compression::ZSTD(ZstdLevel::try_new(1).map_err(internal)?);
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_created_by(concat!("telem ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(zstd)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_dictionary_enabled(false)
        .set_data_page_row_count_limit(PAGE_ROWS)
        // The limit in rows decides: 16 Ki values of 8 bytes never reach this one.
        .set_data_page_size_limit(1 << 20)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS));
    // Ids and times are sorted or nearly so. Floats and the scale stay plain.
    for column in ["series", "ts", "int"] {
        properties = properties.set_column_encoding(ColumnPath::from(column), Encoding::DELTA_BINARY_PACKED);
    }
    Ok(properties.build())
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn internal(error: ParquetError) -> Error {
    Error::Internal { what: format!("a segment cannot be encoded: {error}") }
}
