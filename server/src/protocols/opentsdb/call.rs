//! What a request asks: its endpoint, its method after overriding, its parameters.

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use telem_query::tsq::Fidelity;

use super::errors::Failure;

/// Longest name of a JSONP callback.
const CALLBACK_BYTES_MAX: usize = 128;

/// The endpoints that are answered here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Put,
    Query,
    /// The newest samples.
    Last,
    Annotation,
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
}

#[derive(Clone, Debug)]
pub struct Call {
    pub endpoint: Endpoint,
    pub method: Method,
    pub params: Params,
}

impl Call {
    /// # Errors
    /// 404, 405 or 501 in OpenTSDB's words; 400 for an unknown serializer.
    pub fn read(request: &Request) -> Result<Call, Failure> {
        let params = Params::parse(request.uri().query().unwrap_or_default());
        let method = request.method();
        if matches!(*method, Method::OPTIONS | Method::HEAD | Method::TRACE | Method::CONNECT) {
            let details = format!("The HTTP method [{method}] is not permitted");
            return Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed").details(details));
        }
        let endpoint = endpoint(request.uri().path())?;
        if let Some(name) = params.get("serializer").filter(|name| *name != "json") {
            return Err(Failure::bad_request("Requested serializer was not found")
                .details(format!("Could not find a serializer with the name: {name}")));
        }
        let method = overridden(method, &params)?;
        Ok(Call { endpoint, method, params })
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
fn overridden(method: &Method, params: &Params) -> Result<Method, Failure> {
    let Some(name) = params.get("method_override").filter(|_| *method == Method::GET) else {
        return Ok(method.clone());
    };
    match name.to_ascii_lowercase().as_str() {
        "get" => Ok(Method::GET),
        "post" => Ok(Method::POST),
        "put" => Ok(Method::PUT),
        "delete" => Ok(Method::DELETE),
        "patch" => Ok(Method::PATCH),
        _ => Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, "Unknown or unsupported method override value")
            .details(format!("found '{name}', expected get, post, put, delete or patch"))),
    }
}

/// `/api[/v1]/<endpoint>`, whatever the case, with or without a slash at the end.
fn endpoint(path: &str) -> Result<Endpoint, Failure> {
    let path = path.to_ascii_lowercase();
    let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
    parts.next_if_eq(&"api");
    if let Some(version) = parts.peek().and_then(|part| version(part)) {
        if version > 1 {
            let message = "Requested API version is greater than the max implemented";
            return Err(Failure::new(StatusCode::NOT_IMPLEMENTED, message)
                .details(format!("API version [{version}] is greater than the max [1]")));
        }
        parts.next();
    }
    match (parts.next(), parts.next()) {
        (Some("put"), None) => Ok(Endpoint::Put),
        (Some("query"), None) => Ok(Endpoint::Query),
        (Some("query"), Some("last")) => Ok(Endpoint::Last),
        (Some("annotation"), None) => Ok(Endpoint::Annotation),
        (Some("annotation"), Some("bulk")) => Ok(Endpoint::Annotations),
        (Some("suggest"), None) => Ok(Endpoint::Suggest),
        (Some("search"), Some("lookup")) => Ok(Endpoint::Lookup),
        (Some("search"), Some(kind)) => Ok(Endpoint::Search(kind.to_owned())),
        (Some("aggregators"), None) => Ok(Endpoint::Aggregators),
        (Some("config"), Some("filters")) => Ok(Endpoint::Filters),
        (Some("config"), None) => Ok(Endpoint::Config),
        (Some("version"), None) => Ok(Endpoint::Version),
        (Some("dropcaches"), None) => Ok(Endpoint::DropCaches),
        _ => Err(Failure::new(StatusCode::NOT_FOUND, "Endpoint not found")),
    }
}

/// The number in `v2`.
fn version(part: &str) -> Option<u32> {
    let digits = part.strip_prefix('v')?;
    digits.starts_with(|c: char| c.is_ascii_digit()).then(|| digits.parse().unwrap_or(u32::MAX))
}

/// The parameters of a URI, decoded, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params(Vec<(String, String)>);

impl Params {
    pub fn parse(query: &str) -> Params {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        });
        Params(pairs.collect())
    }

    /// The last value given for `name`; empty for a name that stands alone.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rfind(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Whether `name` stands there, with whatever value: `summary` is as good as `summary=true`.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// # Errors
    /// 400 when `name` is missing or empty.
    pub fn required(&self, name: &str) -> Result<&str, Failure> {
        self.get(name)
            .filter(|value| !value.is_empty())
            .ok_or_else(|| Failure::bad_request(format!("Missing parameter <code>{name}</code>")))
    }
}

/// Undoes percent-encoding and `+` for a blank. What is no encoding stays; what is no UTF-8 becomes U+FFFD.
fn decode(text: &str) -> String {
    let hex = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = match bytes[at] {
            b'%' => hex(bytes.get(at + 1)).zip(hex(bytes.get(at + 2))),
            _ => None,
        };
        match (bytes[at], code) {
            (_, Some((high, low))) => {
                decoded.push((high * 16 + low) as u8);
                at += 2;
            }
            (b'+', _) => decoded.push(b' '),
            (byte, _) => decoded.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}
