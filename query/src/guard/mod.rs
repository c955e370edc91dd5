//! Keeps the functions of queries within bounds: each one is wrapped, under its name and with its signature.
//!
//! DataFusion calls a function with a batch and regains control when the function returns; it does not count the memory
//! of the result. The wrapper ([`scalar`]) passes the batch on in pieces. Between pieces it checks whether the query is
//! still wanted ([`bounds`]). It knows before each piece how large the result may be ([`growth`]), and counts the
//! result in the memory of queries for as long as it lives ([`counted`]). Aggregates whose answer grows with their
//! input are wrapped too ([`aggregate`]). [`rewrite`] ensures that no plan contains a function that is not wrapped,
//! such as those that planners put in place of operators, and `||`.

mod aggregate;
mod bounds;
mod counted;
mod growth;
pub(crate) mod rewrite;
pub(crate) mod scalar;
mod size;
#[cfg(test)]
mod tests;
mod window;

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::registry::FunctionRegistry;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};

pub(crate) use bounds::{QuestionBounds, planned};
pub(crate) use rewrite::{RowCopies, few_constants, makes_values};

/// Most bytes of one value that a function makes.
pub(crate) const VALUE_BYTES_MAX: u64 = 16 << 20;
/// The same while a query is planned: constants are worked out then, and handed about.
pub(crate) const PLANNED_BYTES_MAX: u64 = 1 << 20;
/// Most bytes that a function makes of one batch.
pub(crate) const OUTPUT_BYTES_MAX: u64 = 64 << 20;
/// Bytes that a function takes in and gives out at once, before it is asked whether it is still wanted; more only
/// where one row has more.
const PIECE_BYTES: u64 = 1 << 20;
/// Output below this is not counted: it goes as it came.
const COUNTED_BYTES_MIN: u64 = 256 << 10;

/// Adds the rules that keep plans free of functions without bounds.
pub(crate) fn rules(builder: SessionStateBuilder) -> SessionStateBuilder {
    builder.with_analyzer_rule(Arc::new(rewrite::GuardFunctions)).with_optimizer_rule(Arc::new(rewrite::GuardFunctions))
}

/// Wraps every function that `state` knows.
///
/// # Errors
/// When DataFusion refuses one.
pub(crate) fn wrap_functions(state: &mut SessionState) -> Result<()> {
    let scalar: Vec<_> = state.scalar_functions().values().cloned().collect();
    for function in scalar {
        state.register_udf(scalar::guarded(function))?;
    }
    state.register_udf(rewrite::concat_operator())?;
    let aggregates: Vec<_> = state.aggregate_functions().values().cloned().collect();
    for function in aggregates {
        state.register_udaf(aggregate::guarded(function))?;
    }
    let windows: Vec<_> = state.window_functions().values().cloned().collect();
    for function in windows {
        state.register_udwf(window::guarded(function))?;
    }
    Ok(())
}
