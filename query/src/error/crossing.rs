//! Errors on their way from one node to another, as data: their kind, the node that they concern, and the reason.
//!
//! Between nodes a [`DataFusionError`] travels as the number of its variant and its parts as texts, and our errors
//! within it become text too. So one variant is reserved for our data: that of Substrait, which no code in this build
//! creates. Its text is always a [`Crossing`]. User input (a tag, a name, a query) may become part of an error's text,
//! but never decides its variant. No code searches these texts.

use datafusion::error::DataFusionError;
use serde::{Deserialize, Serialize};
use telem_engine::ErrorKind;

use super::Error;

/// An error that one node tells another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Crossing {
    pub kind: CrossingKind,
    /// The name of the node that says so; of one that was lost the address, because only the head knows whose it is.
    pub node: String,
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CrossingKind {
    /// The question's own fault or that of the data: asking again, or another node, would change nothing.
    Refused(ErrorKind),
    /// The node that was asked cannot answer, whatever is asked: who asked it goes on without it.
    Unable,
    /// The node at the address `node` was lost.
    Lost,
}

impl Crossing {
    /// Of a node that cannot answer.
    pub fn unable(node: &str, reason: String) -> Self {
        Self { kind: CrossingKind::Unable, node: node.to_owned(), reason }
    }

    /// Of the node at `address`.
    pub fn lost(address: &str, reason: String) -> Self {
        Self { kind: CrossingKind::Lost, node: address.to_owned(), reason }
    }

    /// At a node: an error of a plan that it executes, as it is to be told the node that asked. One that came from
    /// another node is passed on.
    pub fn told_by(node: &str, error: DataFusionError) -> Self {
        Self::of(&error).unwrap_or_else(|| {
            let error = Error::from(error);
            let kind = CrossingKind::Refused(error.kind());
            Self { kind, node: node.to_owned(), reason: error.to_string() }
        })
    }

    /// The report of another node, if `error` contains one.
    pub fn of(error: &DataFusionError) -> Option<Self> {
        match error.find_root() {
            DataFusionError::Substrait(told) => serde_json::from_str(told).ok(),
            DataFusionError::Collection(errors) => errors.first().and_then(Self::of),
            _ => None,
        }
    }

    /// Whether asking again, or another node, would change nothing.
    pub fn is_refusal(error: &DataFusionError) -> bool {
        match Self::of(error) {
            Some(told) => matches!(told.kind, CrossingKind::Refused(_)),
            None => matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)),
        }
    }
}

impl From<Crossing> for DataFusionError {
    fn from(crossing: Crossing) -> Self {
        DataFusionError::Substrait(serde_json::to_string(&crossing).expect("texts and units are JSON"))
    }
}

impl From<Crossing> for Error {
    fn from(Crossing { kind, node, reason }: Crossing) -> Self {
        match kind {
            CrossingKind::Refused(kind) => Error::Refused { kind, text: reason },
            CrossingKind::Unable | CrossingKind::Lost => Error::NodeLost { node, reason },
        }
    }
}

#[cfg(test)]
mod tests;
