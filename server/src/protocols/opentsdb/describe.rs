//! The capabilities and the identity of the server: aggregators, filters, configuration, version.

use axum::http::Method;

use super::call::{Call, Generation};
use super::errors::OpenTsdbError;
use super::query::filters::KINDS;
use super::{Answer, allow, json};
use crate::cors;
use crate::state::State;

/// The version of OpenTSDB whose API this is. Clients choose their dialect by it.
const OPENTSDB_VERSION: &str = "2.4.1";

pub fn aggregators(call: &Call, names: &[&str]) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::GET, Method::POST])?;
    let mut out = Vec::new();
    json::list(&mut out, names, |out, name| json::string(out, name));
    Ok(Answer::ok(out))
}

pub fn filters(call: &Call) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::GET, Method::POST])?;
    let mut out = vec![b'{'];
    for (at, kind) in KINDS.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        json::string(&mut out, kind.name);
        out.push(b':');
        json::string_map(&mut out, [("examples", kind.examples), ("description", kind.description)]);
    }
    out.push(b'}');
    Ok(Answer::ok(out))
}

/// The settings of OpenTSDB that clients ask for and that have a meaning here.
pub fn config(state: &State, call: &Call) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::GET, Method::POST])?;
    let body_bytes_max = state.limits.bodies.bytes_max.to_string();
    let cors = state.cors.list();
    let query_timeout = state.queries.options().deadline.as_millis().to_string();
    let connections_max = state.limits.connections_max.to_string();
    let settings = [
        ("tsd.core.authentication.enable", "false"),
        ("tsd.core.auto_create_metrics", "true"),
        ("tsd.core.auto_create_tagks", "true"),
        ("tsd.core.auto_create_tagvs", "true"),
        ("tsd.core.bulk.allow_out_of_order_timestamps", "true"),
        ("tsd.core.connections.limit", &connections_max),
        ("tsd.core.enable_api", "true"),
        ("tsd.core.enable_ui", "false"),
        ("tsd.core.meta.enable_realtime_ts", "false"),
        ("tsd.core.meta.enable_realtime_uid", "false"),
        ("tsd.core.meta.enable_tsuid_incrementing", "false"),
        ("tsd.core.meta.enable_tsuid_tracking", "false"),
        ("tsd.core.timezone", "UTC"),
        ("tsd.core.tree.enable_processing", "false"),
        ("tsd.http.query.allow_delete", "false"),
        ("tsd.http.request.cors_domains", &cors),
        ("tsd.http.request.cors_headers", cors::HEADERS),
        ("tsd.http.request.enable_chunked", "true"),
        ("tsd.http.request.max_chunk", &body_bytes_max),
        ("tsd.http.show_stack_trace", "false"),
        ("tsd.mode", if state.writer.is_some() { "rw" } else { "ro" }),
        ("tsd.no_diediedie", "true"),
        ("tsd.query.skip_unresolved_tagvs", "false"),
        ("tsd.query.timeout", &query_timeout),
        ("tsd.rollups.enable", "false"),
        ("tsd.rpc.telnet.return_errors", "true"),
        ("tsd.search.enable", "false"),
        ("tsd.storage.fix_duplicates", "true"),
    ];
    let mut out = Vec::new();
    json::string_map(&mut out, settings);
    Ok(Answer::ok(out))
}

pub fn version(state: &State, call: &Call) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::GET, Method::POST])?;
    if call.generation == Generation::Old && !call.params.has("json") {
        return Ok(Answer::text(version_line(state)));
    }
    let telem = format!("telem {}", state.version);
    let mut out = Vec::new();
    json::string_map(
        &mut out,
        [
            ("short_revision", state.version),
            ("repo", "telem"),
            ("host", state.db.snapshot().node()),
            ("version", OPENTSDB_VERSION),
            ("full_revision", &telem),
            ("repo_status", "MINT"),
            ("user", ""),
            ("branch", ""),
            ("timestamp", "0"),
        ],
    );
    Ok(Answer::ok(out))
}

/// What this server is, for people: the API's version where clients look for it, and whose it is.
pub fn version_line(state: &State) -> String {
    format!("net.opentsdb.tools {OPENTSDB_VERSION} built at revision telem-{} (MINT)\n", state.version)
}

/// There is no cache to drop: names are looked up in the index itself.
pub fn drop_caches(call: &Call) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::GET, Method::POST])?;
    if call.generation == Generation::Old {
        return Ok(Answer::text("Caches dropped.\n"));
    }
    Ok(Answer::ok(br#"{"message":"Caches dropped","status":"200"}"#.to_vec()))
}
