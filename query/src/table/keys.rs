//! The tags of rows, compared as they are sorted.

use arrow::array::{Array, ArrayRef, RecordBatch, new_null_array};
use arrow::compute::SortOptions;
use arrow::datatypes::DataType;
use arrow::row::{OwnedRow, RowConverter, Rows, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::Result;

/// Turns columns of tags into rows that can be compared, in the order in which [`super::ordering`] sorts them.
pub(super) struct KeyRows {
    converter: RowConverter,
    columns: usize,
}

impl KeyRows {
    pub fn new(columns: usize) -> Result<Self> {
        let options = SortOptions { descending: false, nulls_first: true };
        let tag = || SortField::new_with_options(DataType::Utf8View, options);
        // Without tags all rows have the same ones.
        let fields = match columns {
            0 => vec![SortField::new(DataType::Boolean)],
            _ => std::iter::repeat_with(tag).take(columns).collect(),
        };
        Ok(Self { converter: RowConverter::new(fields)?, columns })
    }

    /// Those of the rows of a batch, the tags of which begin at the column `first`.
    pub fn of(&self, batch: &RecordBatch, first: usize) -> Result<Rows> {
        let none = || vec![new_null_array(&DataType::Boolean, batch.num_rows())];
        let columns: Vec<ArrayRef> = match self.columns {
            0 => none(),
            count => batch.columns().iter().skip(first).take(count).cloned().collect(),
        };
        Ok(self.converter.convert_columns(&columns)?)
    }

    /// For an error: `host=n1, gpu=0`.
    pub fn describe(&self, key: &OwnedRow, names: &[String]) -> Result<String> {
        let columns = self.converter.convert_rows([key.row()])?;
        let mut words = Vec::with_capacity(names.len());
        for (name, column) in names.iter().zip(&columns) {
            if column.is_valid(0) {
                words.push(format!("{name}={}", ArrayFormatter::try_new(column, &FormatOptions::default())?.value(0)));
            }
        }
        Ok(words.join(", "))
    }
}
