//! Arrays that count in the memory of queries until their last reference is dropped.

use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, make_array};
use arrow::buffer::Buffer;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryReservation;

/// A buffer, and the memory that is counted for it and its siblings.
struct CountedBuffer {
    buffer: Buffer,
    _memory: Arc<MemoryReservation>,
}

impl AsRef<[u8]> for CountedBuffer {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_slice()
    }
}

/// The same array; `memory` is given back when the last of its buffers goes. Nothing is copied.
///
/// # Errors
/// Where the array is not a sound one.
pub(super) fn counted(array: &dyn Array, memory: MemoryReservation) -> Result<ArrayRef> {
    Ok(make_array(rebuilt(&array.to_data(), &Arc::new(memory))?))
}

fn rebuilt(data: &ArrayData, memory: &Arc<MemoryReservation>) -> Result<ArrayData> {
    let buffer = |buffer: &Buffer| match buffer.is_empty() {
        true => buffer.clone(),
        false => {
            let counted = CountedBuffer { buffer: buffer.clone(), _memory: Arc::clone(memory) };
            Buffer::from(bytes::Bytes::from_owner(counted))
        }
    };
    let children = data.child_data().iter().map(|child| rebuilt(child, memory)).collect::<Result<_>>()?;
    let builder = ArrayData::builder(data.data_type().clone())
        .len(data.len())
        .offset(data.offset())
        .nulls(data.nulls().cloned())
        .buffers(data.buffers().iter().map(buffer).collect())
        .child_data(children);
    Ok(builder.build()?)
}
