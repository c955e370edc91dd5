//! Encodes one row group, column by column.
//!
//! Where it is not clear which encoding of times is smaller, both are tried and the smaller one is kept. The first
//! encodes differences, bit-packed in pages of [`PAGE_ROWS`], which suits regular times. The second splits the bytes of
//! the times within one page, where the compressor finds the times that many series share.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Builder, Int8Builder, Int64Builder, TimestampMicrosecondArray, UInt32Array};
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;

use super::{Each, Stored, internal, new_file};
use crate::error::Result;
use crate::segment::summary::Kind;
use crate::segment::{PAGE_ROWS, ROW_GROUP_ROWS, schema};
use crate::series::SeriesId;

const TS: usize = 1;
/// A page is cut by rows; its bytes reach this limit only where that is the whole row group.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// Samples of one series.
pub struct RunStretch<'a> {
    pub series: SeriesId,
    pub times: &'a [i64],
    pub stored: Stored<'a>,
    /// Of times that tick regularly.
    pub step: Option<i64>,
}

/// How columns may be encoded.
pub struct Encodings {
    properties: Arc<WriterProperties>,
    main: ArrowRowGroupWriterFactory,
    /// For times that do not tick regularly.
    whole_times: ArrowRowGroupWriterFactory,
}

impl Encodings {
    pub fn new() -> Result<Self> {
        let main = Arc::new(properties(Encoding::DELTA_BINARY_PACKED, PAGE_ROWS)?);
        let whole_times = Arc::new(properties(Encoding::BYTE_STREAM_SPLIT, ROW_GROUP_ROWS)?);
        let factory = |properties| Ok(ArrowRowGroupWriterFactory::new(&new_file(properties)?, schema()));
        Ok(Self { main: factory(&main)?, whole_times: factory(&whole_times)?, properties: main })
    }

    pub fn properties(&self) -> &Arc<WriterProperties> {
        &self.properties
    }
}

fn properties(times: Encoding, page_rows_of_times: usize) -> Result<WriterProperties> {
    let zstd = Compression::ZSTD(ZstdLevel::try_new(1).map_err(internal)?);
    let delta = Encoding::DELTA_BINARY_PACKED;
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_created_by(concat!("telem ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(zstd)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_dictionary_enabled(false)
        .set_data_page_row_count_limit(page_rows_of_times)
        .set_data_page_size_limit(PAGE_BYTES_MAX)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS));
    let columns = [("series", delta), ("ts", times), ("int", delta), ("float", Encoding::BYTE_STREAM_SPLIT)];
    for (column, encoding) in columns {
        properties = properties.set_column_encoding(ColumnPath::from(column), encoding);
    }
    Ok(properties.build())
}

pub struct Group {
    rows: usize,
    columns: Vec<ArrowColumnWriter>,
    whole_times: Option<ArrowColumnWriter>,
    /// The rows so far, as long as they are regular: first time, step, rows.
    ticking: Vec<(i64, i64, usize)>,
    /// Whether there is something in `times` that does not tick.
    irregular: bool,
    series: Vec<u32>,
    times: Vec<i64>,
    ints: Int64Builder,
    scales: Int8Builder,
    floats: Float64Builder,
}

impl Group {
    pub fn new(encodings: &Encodings) -> Result<Self> {
        Ok(Self {
            rows: 0,
            columns: encodings.main.create_column_writers(0).map_err(internal)?,
            whole_times: None,
            ticking: Vec::new(),
            irregular: false,
            // Many segments are small: room is made as rows come.
            series: Vec::new(),
            times: Vec::new(),
            ints: Int64Builder::with_capacity(0),
            scales: Int8Builder::with_capacity(0),
            floats: Float64Builder::with_capacity(0),
        })
    }

    pub fn is_full(&self) -> bool {
        self.rows + self.times.len() >= ROW_GROUP_ROWS
    }

    /// Takes samples from `from` on, as many as have room; gives back how many these are.
    pub fn push(&mut self, stretch: &RunStretch<'_>, from: usize, encodings: &Encodings) -> Result<usize> {
        let buffered = self.times.len();
        let room = (PAGE_ROWS - buffered).min(ROW_GROUP_ROWS - self.rows - buffered);
        let count = room.min(stretch.times.len() - from);
        let times = &stretch.times[from..from + count];
        self.series.resize(buffered + count, stretch.series.0);
        self.times.extend_from_slice(times);
        match stretch.step {
            Some(step) if self.whole_times.is_none() => self.ticking.push((times[0], step, count)),
            Some(_) => {}
            None => self.irregular = true,
        }
        match &stretch.stored {
            Stored::Ints(ints) => self.push_ints(&ints[from..from + count], None),
            Stored::Shifted { shift, shifted, .. } => {
                self.push_ints(&shifted[from..from + count], Some(-shift.cast_signed()));
            }
            Stored::Decimals { ints, scale, .. } => {
                self.push_ints(&ints[from..from + count], Some(scale.cast_signed()));
            }
            Stored::Floats(floats) => {
                self.ints.append_nulls(count);
                self.scales.append_nulls(count);
                self.floats.append_slice(&floats[from..from + count]);
            }
            Stored::Mixed(each) => each[from..from + count].iter().for_each(|each| self.push_value(each)),
        }
        if self.times.len() == PAGE_ROWS {
            self.write(encodings)?;
        }
        Ok(count)
    }

    fn push_ints(&mut self, ints: &[i64], scale: Option<i8>) {
        self.ints.append_slice(ints);
        match scale {
            Some(scale) => self.scales.append_value_n(scale, ints.len()),
            None => self.scales.append_nulls(ints.len()),
        }
        self.floats.append_nulls(ints.len());
    }

    fn push_value(&mut self, each: &Each) {
        match each.kind {
            Kind::Float => {
                self.ints.append_null();
                self.scales.append_null();
                self.floats.append_value(each.value.as_f64());
            }
            Kind::Scaled(scale) => self.push_ints(&[each.int], Some(scale.cast_signed())),
            Kind::Int | Kind::Shifted(_) | Kind::Mixed => self.push_ints(&[each.int], None),
        }
    }

    fn write(&mut self, encodings: &Encodings) -> Result<()> {
        let rows = self.times.len();
        if rows == 0 {
            return Ok(());
        }
        if self.irregular && self.whole_times.is_none() {
            self.whole_times = Some(self.start_whole_times(encodings)?);
        }
        let columns: [ArrayRef; 5] = [
            Arc::new(UInt32Array::from(std::mem::replace(&mut self.series, Vec::with_capacity(rows)))),
            times_array(std::mem::replace(&mut self.times, Vec::with_capacity(rows))),
            Arc::new(std::mem::replace(&mut self.ints, Int64Builder::with_capacity(rows)).finish()),
            Arc::new(std::mem::replace(&mut self.scales, Int8Builder::with_capacity(rows)).finish()),
            Arc::new(std::mem::replace(&mut self.floats, Float64Builder::with_capacity(rows)).finish()),
        ];
        for (at, (writer, array)) in self.columns.iter_mut().zip(&columns).enumerate() {
            write_column(writer, at, array)?;
        }
        if let Some(writer) = &mut self.whole_times {
            write_column(writer, TS, &columns[TS])?;
        }
        self.rows += rows;
        self.irregular = false;
        Ok(())
    }

    /// The second way to encode times, brought to where the first one is.
    fn start_whole_times(&mut self, encodings: &Encodings) -> Result<ArrowColumnWriter> {
        let mut writers = encodings.whole_times.create_column_writers(0).map_err(internal)?;
        let mut writer = writers.swap_remove(TS);
        let mut times: Vec<i64> = Vec::with_capacity(PAGE_ROWS);
        let mut left = self.rows;
        for (first, step, rows) in std::mem::take(&mut self.ticking) {
            let rows = rows.min(left);
            left -= rows;
            times.extend((0..rows as i64).map(|row| first + row * step));
            if times.len() >= PAGE_ROWS {
                write_column(&mut writer, TS, &times_array(std::mem::take(&mut times)))?;
            }
        }
        write_column(&mut writer, TS, &times_array(times))?;
        Ok(writer)
    }

    pub fn finish(mut self, encodings: &Encodings, file: &mut SerializedFileWriter<Vec<u8>>) -> Result<()> {
        self.write(encodings)?;
        let close = |writer: ArrowColumnWriter| writer.close().map_err(internal);
        let mut chunks = self.columns.into_iter().map(close).collect::<Result<Vec<ArrowColumnChunk>>>()?;
        if let Some(writer) = self.whole_times {
            let shared = close(writer)?;
            // Small pages are worth a little: a reader of few series decodes no others' times.
            let (packed, bytes) = (chunks[TS].close().bytes_written, shared.close().bytes_written);
            if bytes + bytes / 8 < packed {
                chunks[TS] = shared;
            }
        }
        let mut group = file.next_row_group().map_err(internal)?;
        for chunk in chunks {
            chunk.append_to_row_group(&mut group).map_err(internal)?;
        }
        group.close().map_err(internal)?;
        Ok(())
    }
}

fn times_array(times: Vec<i64>) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC"))
}

fn write_column(writer: &mut ArrowColumnWriter, at: usize, array: &ArrayRef) -> Result<()> {
    let schema = schema();
    for leaf in compute_leaves(&schema.fields()[at], array).map_err(internal)? {
        writer.write(&leaf).map_err(internal)?;
    }
    Ok(())
}
