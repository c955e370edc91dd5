//! The one writer of a database: a bounded queue, batches in order, group commit.
