//! What somebody noted on a moment or a stretch of time, as rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewArray};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::error::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use telem_engine::Annotation;

use super::jobs::map;
use super::known::{batch, times};
use super::{Column, RowKind, RowsRequest, tags_type, time_type, unanswerable};
use crate::leaf::{Batches, LeafContext, Part};

/// What is known of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoteField {
    Begin,
    End,
    Text,
    Details,
    Fields,
}

impl NoteField {
    pub const ALL: [NoteField; 5] =
        [NoteField::Begin, NoteField::End, NoteField::Text, NoteField::Details, NoteField::Fields];

    /// Of its column.
    pub fn name(self) -> &'static str {
        match self {
            NoteField::Begin => "ts",
            NoteField::End => "end_ts",
            NoteField::Text => "text",
            NoteField::Details => "details",
            NoteField::Fields => "fields",
        }
    }

    pub(super) fn data_type(self) -> DataType {
        match self {
            NoteField::Begin | NoteField::End => time_type(),
            NoteField::Text | NoteField::Details => DataType::Utf8View,
            NoteField::Fields => tags_type(),
        }
    }

    fn array(self, notes: &[Annotation]) -> Result<ArrayRef> {
        let texts = |text: fn(&Annotation) -> &str| {
            let filled = |note| Some(text(note)).filter(|text| !text.is_empty());
            Arc::new(notes.iter().map(filled).collect::<StringViewArray>()) as ArrayRef
        };
        Ok(match self {
            NoteField::Begin => times(notes.iter().map(|note| Some(note.start))),
            NoteField::End => times(notes.iter().map(|note| note.end)),
            NoteField::Text => texts(|note| &note.description),
            NoteField::Details => texts(|note| &note.notes),
            NoteField::Fields => {
                let of_note = |note: &Annotation| -> Json {
                    note.custom.iter().map(|(key, value)| (key.clone(), Json::from(value.as_str()))).collect()
                };
                map(notes.iter().map(of_note).collect::<Vec<_>>().iter())?
            }
        })
    }
}

/// A row for each note, by time.
pub(super) fn notes(request: &RowsRequest, context: &LeafContext, schema: &SchemaRef, part: Part) -> Result<Batches> {
    if part.index > 0 {
        return Ok(Box::new(std::iter::empty()));
    }
    // Those of a series are graphs', and some are no notes at all: the inventory is kept so.
    let is_of_all = |note: &&Annotation| note.tsuid.is_none();
    let mut notes: Vec<Annotation> = context.snapshot.meta().annotations().iter().filter(is_of_all).cloned().collect();
    notes.truncate(request.limit.unwrap_or(usize::MAX));
    let arrays = request.columns.iter().map(|column| match column {
        Column::OfNote(field) => field.array(&notes),
        column => Err(unanswerable(RowKind::Note, column)),
    });
    let arrays = arrays.collect::<Result<Vec<_>>>()?;
    Ok(Box::new(std::iter::once(batch(schema, arrays, notes.len()))))
}
