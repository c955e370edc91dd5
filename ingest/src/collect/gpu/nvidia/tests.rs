//! NVML, played by a library of our own: `fixtures/nvml/nvml.c`, which the C compiler of the machine builds.

mod gpus;
mod library;
mod reader;
mod stand_in;
