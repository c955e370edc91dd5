//! Code that several benchmarks share. The benchmarks live beside this folder; see README.md.

pub mod node_tree;
