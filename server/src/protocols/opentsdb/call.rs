//! The parts of a request: its endpoint, its method after an override, its parameters.

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use telem_query::tsq::Fidelity;

use super::errors::OpenTsdbError;
use crate::http::Params;
use crate::http::asker::Asker;

/// Longest name of a JSONP callback.
const CALLBACK_BYTES_MAX: usize = 128;
/// The newest version of the API that there is.
const VERSION_MAX: u32 = 1;

/// The endpoints that are answered here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Put,
    Query,
    /// Arithmetic on queries.
    Expression,
    /// Functions of queries, as Graphite writes them.
    Graphite,
    /// The newest samples.
    Last,
    Annotation,
    /// Those on no single series, of a stretch of time.
    GlobalAnnotations,
    /// Many at once.
    Annotations,
    Suggest,
    Lookup,
    /// A search other than lookup, by its name.
    Search(String),
    Aggregators,
    Filters,
    Config,
    Version,
    DropCaches,
    Stats,
    QueryStats,
    ProcessStats,
    ThreadStats,
    /// Connections to the store of the original.
    RegionClients,
    UidAssign,
    UidRename,
    UidMeta,
    TsMeta,
    /// Graphs, of which only the numbers are had.
    Graph,
    Rollup,
    Histogram,
    /// By what follows `tree`, if anything does.
    Tree(String),
    Logs,
    /// Stops the original.
    Die,
}

impl Endpoint {
    /// Whether a GET may say that it means another method.
    fn heeds_override(&self) -> bool {
        matches!(
            self,
            Endpoint::Query
                | Endpoint::Annotation
                | Endpoint::GlobalAnnotations
                | Endpoint::Annotations
                | Endpoint::Lookup
                | Endpoint::Search(_)
                | Endpoint::UidMeta
                | Endpoint::TsMeta
                | Endpoint::Tree(_)
        )
    }
}

/// Which of OpenTSDB's two generations a path belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// Below `/api`.
    Api,
    /// A name of its own, from before there was an API: answers are for people, and errors are 400.
    Old,
}

#[derive(Clone, Debug)]
pub struct Call {
    pub endpoint: Endpoint,
    pub generation: Generation,
    /// What is meant: of a GET what it says, where that counts.
    pub method: Method,
    pub params: Params,
    /// Whether it came under `/grafana`, where answers are such as every Grafana can draw.
    pub of_grafana: bool,
    /// The client that waits for the answer.
    pub asker: Asker,
}

impl Call {
    /// # Errors
    /// 404, 405 or 501 in OpenTSDB's words and in its order of checks; 400 for an unknown serializer.
    pub fn read(request: &Request) -> Result<Call, OpenTsdbError> {
        let params = Params::parse(request.uri().query().unwrap_or_default());
        let (of_grafana, path) = below_grafana(request.uri().path());
        let (generation, parts) = route(path)?;
        if let Some(name) = params.get("serializer").filter(|name| *name != "json") {
            return Err(OpenTsdbError::bad_request("Requested serializer was not found")
                .details(format!("Could not find a serializer with the name: {name}")));
        }
        let method = request.method();
        if *method == Method::OPTIONS {
            let details = format!("The HTTP method [{method}] is not permitted");
            return Err(OpenTsdbError::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed").details(details));
        }
        let endpoint = endpoint(generation, &parts)?;
        let method = if endpoint.heeds_override() { overridden(method, &params)? } else { method.clone() };
        Ok(Call { endpoint, generation, method, params, of_grafana, asker: Asker::of(request) })
    }

    /// The JSONP callback to wrap the answer in. Names that could be more than a name are ignored.
    pub fn callback(&self) -> Option<String> {
        let name = self.params.get("jsonp")?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.');
        let is_name = !name.is_empty() && name.len() <= CALLBACK_BYTES_MAX && name.bytes().all(plain);
        is_name.then(|| name.to_owned())
    }

    /// What to do where the original misleads: as the request says, or else as the server was started.
    pub fn fidelity(&self, default: Fidelity) -> Fidelity {
        match self.params.get("exact") {
            None => default,
            Some("false") => Fidelity::Sensible,
            Some(_) => Fidelity::OpenTsdb,
        }
    }
}

/// A GET may say that it means another method.
fn overridden(method: &Method, params: &Params) -> Result<Method, OpenTsdbError> {
    let Some(name) = params.get("method_override").filter(|_| *method == Method::GET) else {
        return Ok(method.clone());
    };
    match name.to_ascii_lowercase().as_str() {
        "get" => Ok(Method::GET),
        "post" => Ok(Method::POST),
        "put" => Ok(Method::PUT),
        "delete" => Ok(Method::DELETE),
        "patch" => Ok(Method::PATCH),
        "" => Err(OpenTsdbError::new(StatusCode::METHOD_NOT_ALLOWED, "Missing method override value")),
        _ => Err(OpenTsdbError::new(StatusCode::METHOD_NOT_ALLOWED, "Unknown or unsupported method override value")
            .details(format!("found '{name}', expected get, post, put, delete or patch"))),
    }
}

/// Whether `path` lies below `/grafana`, and the rest of it.
fn below_grafana(path: &str) -> (bool, &str) {
    match path.strip_prefix(super::GRAFANA) {
        Some(rest) => (true, rest),
        None => (false, path),
    }
}

/// The parts of `/api[/v1]/<part>...` or `/<part>...`, in lower case, with or without a slash at the end.
fn route(path: &str) -> Result<(Generation, Vec<String>), OpenTsdbError> {
    let mut parts: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(str::to_ascii_lowercase).collect();
    if parts.first().is_none_or(|part| part != "api") {
        return Ok((Generation::Old, parts));
    }
    parts.remove(0);
    if let Some(number) = parts.first().and_then(|part| version(part)) {
        let version: u32 = number.parse().map_err(|_| {
            OpenTsdbError::bad_request("Invalid API version format supplied")
                .details(format!("API version [{number}] cannot be parsed to an integer"))
        })?;
        if version > VERSION_MAX {
            let message = "Requested API version is greater than the max implemented";
            return Err(OpenTsdbError::new(StatusCode::NOT_IMPLEMENTED, message)
                .details(format!("API version [{version}] is greater than the max [{VERSION_MAX}]")));
        }
        parts.remove(0);
    }
    Ok((Generation::Api, parts))
}

/// What follows the `v` of a version.
fn version(part: &str) -> Option<&str> {
    part.strip_prefix('v').filter(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}

/// What follows the name of an endpoint counts only where it has a meaning.
fn endpoint(generation: Generation, parts: &[String]) -> Result<Endpoint, OpenTsdbError> {
    let part = |at: usize| parts.get(at).map_or("", String::as_str);
    let not_found = || OpenTsdbError::new(StatusCode::NOT_FOUND, "Endpoint not found");
    if generation == Generation::Old {
        return match part(0) {
            "aggregators" => Ok(Endpoint::Aggregators),
            "suggest" => Ok(Endpoint::Suggest),
            "version" => Ok(Endpoint::Version),
            "dropcaches" => Ok(Endpoint::DropCaches),
            "stats" => Ok(Endpoint::Stats),
            "q" => Ok(Endpoint::Graph),
            "logs" => Ok(Endpoint::Logs),
            "diediedie" => Ok(Endpoint::Die),
            _ => Err(not_found()),
        };
    }
    match (part(0), part(1)) {
        ("put", _) => Ok(Endpoint::Put),
        ("aggregators", _) => Ok(Endpoint::Aggregators),
        ("suggest", _) => Ok(Endpoint::Suggest),
        ("version", _) => Ok(Endpoint::Version),
        ("dropcaches", _) => Ok(Endpoint::DropCaches),
        ("query", "last") => Ok(Endpoint::Last),
        ("query", "exp") => Ok(Endpoint::Expression),
        ("query", "gexp") => Ok(Endpoint::Graphite),
        ("query", _) => Ok(Endpoint::Query),
        ("annotation" | "annotations", bulk) if bulk.ends_with("bulk") => Ok(Endpoint::Annotations),
        ("annotation", _) => Ok(Endpoint::Annotation),
        ("annotations", _) => Ok(Endpoint::GlobalAnnotations),
        ("search", "lookup") => Ok(Endpoint::Lookup),
        ("search", kind) => Ok(Endpoint::Search(kind.to_owned())),
        ("config", "filters") => Ok(Endpoint::Filters),
        ("config", _) => Ok(Endpoint::Config),
        ("stats", "query") => Ok(Endpoint::QueryStats),
        ("stats", "jvm") => Ok(Endpoint::ProcessStats),
        ("stats", "threads") => Ok(Endpoint::ThreadStats),
        ("stats", "region_clients") => Ok(Endpoint::RegionClients),
        ("stats", _) => Ok(Endpoint::Stats),
        ("uid", "assign") => Ok(Endpoint::UidAssign),
        ("uid", "rename") => Ok(Endpoint::UidRename),
        ("uid", "uidmeta") => Ok(Endpoint::UidMeta),
        ("uid", "tsmeta") => Ok(Endpoint::TsMeta),
        ("uid", _) => {
            let message = "Other UID endpoints have not been implemented yet";
            Err(OpenTsdbError::new(StatusCode::NOT_IMPLEMENTED, message))
        }
        ("rollup", _) => Ok(Endpoint::Rollup),
        ("histogram", _) => Ok(Endpoint::Histogram),
        ("tree", of) => Ok(Endpoint::Tree(of.to_owned())),
        _ => Err(not_found()),
    }
}

/// The value of a parameter that must be there.
///
/// # Errors
/// 400 when `name` is missing or empty.
pub fn required<'a>(params: &'a Params, name: &str) -> Result<&'a str, OpenTsdbError> {
    params
        .get(name)
        .filter(|value| !value.is_empty())
        .ok_or_else(|| OpenTsdbError::bad_request(format!("Missing parameter <code>{name}</code>")))
}
