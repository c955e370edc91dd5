//! Questions over many nodes: the question goes to the data, and small partial results come back.
//!
//! The engine is the crate datafusion-distributed: stages, plans and batches on the wire, cancellation. Ours is what it
//! leaves open. [`members`] knows who has what; [`tree`] cuts a plan into what runs where the data are and what is
//! reduced on the way; [`wire`] takes a leaf across; [`net`] connects, watches and gives up; [`lost`] makes an
//! answer cover whole nodes only; [`turns`] bounds what runs at once; [`worker`] answers at a node, and [`task`] tells
//! what went wrong there; [`head`] puts it together.

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
