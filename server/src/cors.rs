//! Cross-origin resource sharing: which pages of other origins a browser lets read our answers. By default none.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// Most origins that can be named.
pub(crate) const ORIGINS_MAX: usize = 1_000;

/// What a page may do that may ask.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, DELETE");
/// Headers that a page may send.
pub const HEADERS: &str = "Authorization, Content-Type, Accept, Origin, User-Agent, DNT, Cache-Control, X-Mx-ReqToken, \
     Keep-Alive, X-Requested-With, If-Modified-Since";

/// The origins (`https://grafana.example:3000`) whose pages may send requests; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cors {
    #[default]
    Nobody,
    Everybody,
    /// In lower case.
    Origins(Vec<String>),
}

/// What becomes of a request that a page may have made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It came from no other page, or no pages are configured.
    NoPage,
    /// The answer says that this origin may read it.
    Admitted(HeaderValue),
    Refused {
        origin: String,
    },
}

impl Cors {
    /// `*`, or origins with commas between them.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn parse(list: &str) -> Result<Self, String> {
        let origins: Vec<String> =
            list.split(',').map(str::trim).filter(|one| !one.is_empty()).map(str::to_ascii_lowercase).collect();
        if origins == ["*"] {
            return Ok(Cors::Everybody);
        }
        if origins.iter().any(|origin| origin == "*") {
            return Err(format!("'{list}' contains * and origins; write * alone, or the origins alone"));
        }
        if let Some(odd) = origins.iter().find(|origin| !is_origin(origin)) {
            return Err(format!("'{odd}' is not an origin; write SCHEME://HOST or SCHEME://HOST:PORT, without a path"));
        }
        match origins.len() {
            0 => Err(format!("'{list}' names no origin; write https://HOST[:PORT], or * for every page there is")),
            found if found > ORIGINS_MAX => Err(format!("{found} origins, {ORIGINS_MAX} at most")),
            _ => Ok(Cors::Origins(origins)),
        }
    }

    /// What was named, as `/api/config` shows it.
    pub fn list(&self) -> String {
        match self {
            Cors::Nobody => String::new(),
            Cors::Everybody => "*".to_owned(),
            Cors::Origins(origins) => origins.join(","),
        }
    }

    pub fn judge(&self, headers: &HeaderMap) -> Verdict {
        let Some(origin) = headers.get(header::ORIGIN).filter(|origin| !origin.is_empty()) else {
            return Verdict::NoPage;
        };
        let text = String::from_utf8_lossy(origin.as_bytes()).to_ascii_lowercase();
        match self {
            Cors::Nobody => Verdict::NoPage,
            Cors::Everybody => Verdict::Admitted(origin.clone()),
            Cors::Origins(origins) if origins.contains(&text) => Verdict::Admitted(origin.clone()),
            Cors::Origins(_) => Verdict::Refused { origin: String::from_utf8_lossy(origin.as_bytes()).into_owned() },
        }
    }

    pub fn admits(&self, headers: &HeaderMap) -> bool {
        matches!(self.judge(headers), Verdict::Admitted(_))
    }
}

/// What tells the browser that a page of `origin` may read an answer.
pub fn allow(answer: &mut HeaderMap, origin: HeaderValue) {
    let headers: [(HeaderName, HeaderValue); 4] = [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, origin),
        (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(HEADERS)),
        // An answer for one page is not valid for another.
        (header::VARY, HeaderValue::from_static("Origin")),
    ];
    for (name, value) in headers {
        answer.append(name, value);
    }
}

fn is_origin(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']' | '_');
    text.split_once("://").is_some_and(|(scheme, host)| {
        !scheme.is_empty() && scheme.chars().all(plain) && !host.is_empty() && host.chars().all(plain)
    })
}

#[cfg(test)]
mod tests;
