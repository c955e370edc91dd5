//! The leaf as a DataFusion plan node.
