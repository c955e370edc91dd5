//! Benchmarks live beside this folder: see README.md.
