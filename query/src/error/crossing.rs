//! Errors on their way from one node to another, as data: what kind they are, which node they are about, and why.
//!
//! Between nodes a [`DataFusionError`] crosses as the number of its variant and its parts as texts; what is ours inside
//! of it becomes a text too. So one variant is kept for what crosses: that of Substrait, which nothing in this build
//! makes. Its text is a [`Crossing`] and nothing else. Whatever somebody writes into a tag, a name or a question may end
//! up in the text of an error, and never decides which variant it is: texts are not searched for anything.

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

    /// What another node told, if that is what `error` is about.
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
