//! GPUs of NVIDIA, by NVML.

mod answers;
mod frames;
mod library;
mod reader;
#[cfg(test)]
mod tests;

pub use answers::read_for_parent;
pub use reader::VendorReader;
