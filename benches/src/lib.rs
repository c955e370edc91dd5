//! Code that several benchmarks share. The benchmarks live beside this folder; see README.md.

pub mod cpu;
pub mod node_tree;
