//! What telem does not do, refused in the words or at least in the form of the original: trees, rollups, histograms,
//! its log over HTTP, its shutdown over HTTP.

use axum::http::{Method, StatusCode};

use super::call::Call;
use super::errors::OpenTsdbError;
use super::{Answer, allow};

/// What is wrong with every data point of a rollup where none are set up.
pub const NO_ROLLUPS: &str = "No rollup or aggregations were configured";

/// Histograms are refused as by an OpenTSDB that is not set up for them.
pub fn histogram(call: &Call) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::POST])?;
    let message = "Histogram storage has not been enabled. Check the 'tsd.core.histograms.config' configuration.";
    Err(OpenTsdbError::new(StatusCode::SERVICE_UNAVAILABLE, message))
}

/// There are no trees, so the list of them is empty; none can be created.
pub fn tree(call: &Call, of: &str) -> Result<Answer, OpenTsdbError> {
    let number = call.params.get("treeid").or_else(|| call.params.get("tree")).filter(|number| !number.is_empty());
    match (&call.method, of, number) {
        (&Method::GET, "", None) => Ok(Answer::ok(b"[]".to_vec())),
        (&Method::GET, "", Some(number)) => {
            Err(OpenTsdbError::new(StatusCode::NOT_FOUND, format!("Unable to locate tree: {number}")))
        }
        (&Method::GET, "branch" | "rule" | "rules" | "test" | "collisions" | "notmatched", _) => {
            Err(OpenTsdbError::new(StatusCode::NOT_FOUND, "Unable to locate the tree").details("telem has no trees"))
        }
        (&Method::GET | &Method::POST | &Method::PUT | &Method::DELETE, _, _) => {
            Err(OpenTsdbError::new(StatusCode::NOT_IMPLEMENTED, "telem has no trees").details(
                "nothing was changed; series are found by /api/search/lookup and /api/suggest, or by SQL at /api/sql",
            ))
        }
        (method, _, _) => Err(OpenTsdbError::method_not_allowed(method)),
    }
}

pub fn logs() -> OpenTsdbError {
    OpenTsdbError::new(StatusCode::NOT_IMPLEMENTED, "telem does not tell its log over HTTP")
        .details("it writes it to its stderr; the environment variable TELEM_LOG says how much")
}

pub fn die() -> OpenTsdbError {
    OpenTsdbError::new(StatusCode::FORBIDDEN, "a client does not stop this server")
        .details("send SIGTERM to its process")
}

#[cfg(test)]
mod tests;
