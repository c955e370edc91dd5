//! Queries over many nodes: the query goes to the data, and small partial results come back.
//!
//! The engine is the crate datafusion-distributed: stages, plans and batches on the wire, cancellation. This module
//! supplies what the crate leaves open. [`members`] knows which node has which series. [`tree`] cuts a plan into the
//! parts that run where the data is and the reductions above them. [`wire`] serialises a leaf. [`net`] connects,
//! watches and gives up. [`lost`] makes an answer cover whole nodes only. [`turns`] bounds the number of running tasks.
//! [`worker`] answers at a node, and [`task`] reports what failed there. [`head`] combines all of them.

pub(crate) mod head;
mod inside;
mod knowing;
pub(crate) mod lost;
pub mod members;
mod net;
mod task;
#[cfg(test)]
mod tests;
pub mod tree;
mod turns;
pub(crate) mod wire;
pub(crate) mod worker;

pub use inside::Inside;
pub use knowing::{KEYS_MAX, Knowing, KnownDelta};
pub use members::{MemberState, Members, NodeState};
pub use net::{Dial, DialTcp, NodeConnection, Wire};
pub use worker::{WORKER_PATH, WorkerService};
