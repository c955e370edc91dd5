//! The server's figures about itself, for the collectors of level 4.

use telem_engine::{Db, Value};
use telem_ingest::writer::Writer;
use telem_query::Queries;

/// Tells the metrics of `telem_ingest`, `telem_engine` and `telem_query`; all of them stand in the catalog.
pub fn tell(db: Db, writer: Writer, queries: Queries) -> impl Fn(&mut dyn FnMut(&'static str, Value)) + Send + Sync {
    move |put| {
        let mut int = |name, value: u64| put(name, Value::Int(i64::try_from(value).unwrap_or(i64::MAX)));
        let written = writer.stats();
        int("telem_ingest_samples_accepted_total", written.accepted);
        int("telem_ingest_samples_rejected_total", written.rejected);
        int("telem_ingest_samples_written_total", written.samples);
        int("telem_ingest_batches_written_total", written.batches);
        int("telem_ingest_batches_refused_total", written.refused);
        int("telem_ingest_samples_refused_total", written.samples_refused);
        int("telem_ingest_samples_lost_total", written.lost.samples);
        int("telem_ingest_samples_kept", written.kept);
        int("telem_ingest_queue_samples", written.waiting);
        int("telem_ingest_client_taken_total", written.clients.taken);
        int("telem_ingest_client_dropped_total", written.clients.dropped());
        int("telem_ingest_syncs_total", written.syncs);
        int("telem_ingest_syncs_failed_total", written.syncs_failed);
        int("telem_ingest_flushes_total", written.flushes);
        int("telem_ingest_flushes_failed_total", written.flushes_failed);
        let asked = queries.stats();
        int("telem_query_queries_total", asked.admitted);
        int("telem_query_queries_refused_total", asked.refused);
        int("telem_query_queries_running", asked.running);
        int("telem_query_queries_left_behind", asked.left_behind);
        int("telem_query_leaves_running", asked.leaves);
        if let Ok(info) = db.info() {
            int("telem_engine_series", info.series);
            int("telem_engine_metrics", info.metrics);
            int("telem_engine_samples", info.samples);
            int("telem_engine_samples_unflushed", info.samples_unflushed);
            int("telem_engine_segments", info.segment_files.len() as u64);
            int("telem_engine_disk_bytes", info.bytes);
            int("telem_engine_wal_bytes", info.wal_bytes);
            put("db_size", Value::Float((info.bytes as f64 / 1_048_576.0 * 100.0).round() / 100.0));
        }
    }
}
