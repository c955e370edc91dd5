//! Benchmarks live beside this folder: see README.md. Here: what several of them need.

pub mod node_tree;
