//! The size of values in bytes, as far as it can be determined quickly.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait};
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;

/// Bytes of the values of these rows. Not less than they have; more where they are shared.
pub(super) fn bytes(array: &dyn Array, rows: Range<usize>) -> u64 {
    let count = rows.len() as u64;
    match array.data_type() {
        DataType::Null => 0,
        DataType::Boolean => count / 8 + 1,
        DataType::Utf8 => span(array.as_string::<i32>().value_offsets(), &rows) + 4 * count,
        DataType::LargeUtf8 => span(array.as_string::<i64>().value_offsets(), &rows) + 8 * count,
        DataType::Binary => span(array.as_binary::<i32>().value_offsets(), &rows) + 4 * count,
        DataType::LargeBinary => span(array.as_binary::<i64>().value_offsets(), &rows) + 8 * count,
        DataType::Utf8View => views(array.as_string_view().views(), rows),
        DataType::BinaryView => views(array.as_binary_view().views(), rows),
        DataType::FixedSizeBinary(width) => u64::try_from(*width).unwrap_or(0) * count,
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            4 * count + within(list.values(), list.value_offsets(), &rows)
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            8 * count + within(list.values(), list.value_offsets(), &rows)
        }
        DataType::Map(..) => {
            let map = array.as_map();
            4 * count + within(map.entries(), map.value_offsets(), &rows)
        }
        DataType::FixedSizeList(_, width) => {
            let width = usize::try_from(*width).unwrap_or(0);
            bytes(array.as_fixed_size_list().values(), rows.start * width..rows.end * width)
        }
        DataType::Struct(_) => array.as_struct().columns().iter().map(|column| bytes(column, rows.clone())).sum(),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let (keys, values) = (dictionary.normalized_keys(), dictionary.values());
            let each = rows.filter(|row| array.is_valid(*row)).map(|row| bytes(values, keys[row]..keys[row] + 1));
            each.sum::<u64>() + count
        }
        other => match other.primitive_width() {
            Some(width) => width as u64 * count,
            // Unions and runs: what all of it has, and one row may have all of that.
            None => array.get_array_memory_size() as u64 * count.max(1),
        },
    }
}

/// How many values are in the lists of these rows, or in the lists in these.
pub(super) fn elements(array: &dyn Array, rows: Range<usize>) -> u64 {
    match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            elements(list.values(), inside(list.value_offsets(), &rows))
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            elements(list.values(), inside(list.value_offsets(), &rows))
        }
        DataType::FixedSizeList(_, width) => {
            let width = usize::try_from(*width).unwrap_or(0);
            elements(array.as_fixed_size_list().values(), rows.start * width..rows.end * width)
        }
        _ => rows.len() as u64,
    }
}

/// Bytes of a constant.
pub(super) fn of_scalar(scalar: &ScalarValue) -> u64 {
    match scalar.try_as_str() {
        Some(text) => text.map_or(0, |text| text.len() as u64),
        None => match list(scalar) {
            Some(list) => bytes(&list, 0..list.len()),
            None => scalar.size() as u64,
        },
    }
}

/// How many values are in a constant.
pub(super) fn elements_of_scalar(scalar: &ScalarValue) -> u64 {
    list(scalar).map_or(1, |list| elements(&list, 0..list.len()))
}

fn list(scalar: &ScalarValue) -> Option<ArrayRef> {
    // The values of these are arrays already, so this copies none.
    let nested = matches!(
        scalar,
        ScalarValue::List(_) | ScalarValue::LargeList(_) | ScalarValue::FixedSizeList(_) | ScalarValue::Map(_)
    );
    if nested { scalar.to_array().ok() } else { None }
}

fn span<O: OffsetSizeTrait>(offsets: &[O], rows: &Range<usize>) -> u64 {
    let inside = inside(offsets, rows);
    (inside.end - inside.start) as u64
}

fn inside<O: OffsetSizeTrait>(offsets: &[O], rows: &Range<usize>) -> Range<usize> {
    match offsets.get(rows.start).zip(offsets.get(rows.end)) {
        Some((start, end)) => start.as_usize()..end.as_usize(),
        None => 0..0,
    }
}

fn within<O: OffsetSizeTrait>(values: &dyn Array, offsets: &[O], rows: &Range<usize>) -> u64 {
    bytes(values, inside(offsets, rows))
}

fn views(views: &[u128], rows: Range<usize>) -> u64 {
    // The length is the lowest four bytes of a view.
    views[rows].iter().map(|view| 16 + u64::from(*view as u32)).sum()
}
