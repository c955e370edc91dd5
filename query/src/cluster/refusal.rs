//! Errors that are the question's own fault or that of the data, on their way from a node to the head: they end
//! the query, and cost no node its place. They cross as text behind a mark, because an error's type does not.

use datafusion::error::DataFusionError;
use telem_engine::ErrorKind;

use crate::error::Error;

const MARK: &str = "a node refuses (";

/// At a node: our own errors with their kind in front, so that the head finds it again.
pub(crate) fn told(error: DataFusionError) -> DataFusionError {
    let DataFusionError::External(inner) = &error else { return error };
    let Some(ours) = inner.downcast_ref::<Error>() else { return error };
    let kind = match ours.kind() {
        ErrorKind::Invalid => "invalid",
        ErrorKind::NotFound => "not found",
        ErrorKind::Busy => "busy",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Corrupt => "corrupt",
        ErrorKind::Internal => "internal",
    };
    DataFusionError::Execution(format!("{MARK}{kind}): {ours}"))
}

/// Whether asking again, or another node, would change nothing.
pub(crate) fn is_refusal(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)) || found(&error.to_string()).is_some()
}

/// At the head: what a node said.
pub(crate) fn found(text: &str) -> Option<(ErrorKind, String)> {
    let (_, told) = text.split_once(MARK)?;
    let (kind, text) = told.split_once("): ")?;
    let kind = match kind {
        "invalid" => ErrorKind::Invalid,
        "not found" => ErrorKind::NotFound,
        "busy" => ErrorKind::Busy,
        "unavailable" => ErrorKind::Unavailable,
        "corrupt" => ErrorKind::Corrupt,
        _ => ErrorKind::Internal,
    };
    Some((kind, text.to_owned()))
}
