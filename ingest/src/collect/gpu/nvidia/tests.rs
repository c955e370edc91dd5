//! NVML, played by a library of our own: `fixtures/nvml/nvml.c`, which the C compiler of the machine builds.

mod gpus;
mod library;
mod reader;
mod stand_in;

pub use self::reader::{Hand, is_gone, program as as_child};
pub use self::stand_in::{Driver, H100, StandIn};
