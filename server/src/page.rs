//! The shell of the built-in page: a document, a style sheet and scripts, which are in the binary. They hold no data,
//! so they are served to anybody, also to those who follow a link of another site. What the page shows it asks for
//! below `/api`, where every request is judged like any other.
//!
//! The names of files have the hash of all files in their path. So a browser may keep them for ever, and never mixes
//! files of two versions.

mod files;
#[cfg(test)]
mod tests;

use std::hash::{DefaultHasher, Hasher};
use std::io::Write;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Path, State as Of};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use self::files::{FILES, INDEX};
use crate::http::ApiError;

/// What a browser lets the page do: load its own files, ask its own server, and make no markup of text.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
);
const DOCUMENT: &str = "text/html; charset=UTF-8";
/// Of what the same path never gives in another version.
const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("no-cache");
const FOLDER: &str = "/page/";
const PLACEHOLDER: &str = "{HASH}";
/// Hexadecimal digits of a hash.
const HASH_DIGITS: usize = 12;

/// Whether a request is for the shell, which everybody may see.
pub fn is_for_the_shell(method: &Method, path: &str) -> bool {
    [Method::GET, Method::HEAD].contains(method) && (path == "/" || path.starts_with(FOLDER))
}

/// Whose page a request comes from, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskingPage {
    /// One of another origin that was named.
    Admitted,
    /// Any other, or none.
    NotAdmitted,
}

/// Tells browsers not to guess what an answer is, not to say in links where they come from and, unless a page of
/// another origin is admitted, to let none embed it.
pub fn guard(answer: &mut HeaderMap, asking: AskingPage) {
    answer.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if asking == AskingPage::NotAdmitted {
        let name = HeaderName::from_static("cross-origin-resource-policy");
        answer.insert(name, HeaderValue::from_static("same-origin"));
    }
}

/// One file, as it is in the source.
#[derive(Clone, Copy, Debug)]
pub struct PageFile {
    pub name: &'static str,
    pub media: &'static str,
    pub text: &'static str,
}

/// The files as they are served.
#[derive(Debug)]
pub struct PageShell {
    hash: String,
    document: PackedFile,
    files: Vec<(&'static str, PackedFile)>,
}

/// A file, and what gzip makes of it once somebody asks.
#[derive(Debug)]
struct PackedFile {
    media: &'static str,
    plain: Bytes,
    packed: OnceLock<Option<Bytes>>,
}

impl PackedFile {
    fn new(media: &'static str, plain: Bytes) -> Self {
        Self { media, plain, packed: OnceLock::new() }
    }

    fn answer(&self, asked: &HeaderMap) -> Response {
        let kind = (header::CONTENT_TYPE, self.media);
        let vary = (header::VARY, "accept-encoding");
        let packed = takes_gzip(asked).then(|| self.packed.get_or_init(|| pack(&self.plain)).clone()).flatten();
        match packed {
            Some(packed) => ([kind, vary, (header::CONTENT_ENCODING, "gzip")], packed).into_response(),
            None => ([kind, vary], self.plain.clone()).into_response(),
        }
    }
}

/// A script or a style sheet without the lines that are comments, and without indentation: both are for those who read the
/// source, and a tenth of what a slow link would carry.
fn lean(text: &str) -> String {
    let is_comment = |line: &str| line.starts_with("//") || (line.starts_with("/*") && line.ends_with("*/"));
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !is_comment(line));
    lines.flat_map(|line| [line, "\n"]).collect()
}

fn pack(plain: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).and_then(|()| encoder.finish()).ok().map(Bytes::from)
}

fn takes_gzip(asked: &HeaderMap) -> bool {
    let lists = asked.get_all(header::ACCEPT_ENCODING).iter().filter_map(|list| list.to_str().ok());
    let mut offers = lists.flat_map(|list| list.split(',')).map(|offer| offer.split_once(';').unwrap_or((offer, "")));
    offers.any(|(name, weight)| {
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_none_or(|weight| weight > 0.0)
    })
}

impl Default for PageShell {
    fn default() -> Self {
        let mut hasher = DefaultHasher::new();
        for (name, text) in FILES.iter().map(|file| (file.name, file.text)).chain([("", INDEX)]) {
            hasher.write_usize(name.len());
            hasher.write(name.as_bytes());
            hasher.write_usize(text.len());
            hasher.write(text.as_bytes());
        }
        let mut hash = format!("{:016x}", hasher.finish());
        hash.truncate(HASH_DIGITS);
        let document = Bytes::from(INDEX.replace(PLACEHOLDER, &hash));
        let plain = |file: &PageFile| PackedFile::new(file.media, Bytes::from(lean(file.text)));
        let files = FILES.iter().map(|file| (file.name, plain(file))).collect();
        Self { hash, document: PackedFile::new(DOCUMENT, document), files }
    }
}

impl PageShell {
    /// `/`, and the files below `/page/`.
    pub fn routes(self: Arc<Self>) -> Router {
        let router = Router::new().route("/", get(document)).route("/page/{hash}/{name}", get(file));
        router.with_state(self)
    }

    fn guarded(&self, mut response: Response, kept: HeaderValue) -> Response {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
        headers.insert(header::CACHE_CONTROL, kept);
        if let Ok(tag) = HeaderValue::from_str(&self.tag()) {
            headers.insert(header::ETAG, tag);
        }
        response
    }

    /// Changes with any file.
    fn tag(&self) -> String {
        format!("\"{}\"", self.hash)
    }
}

async fn document(Of(shell): Of<Arc<PageShell>>, asked: HeaderMap) -> Response {
    let known = asked.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok()).unwrap_or_default();
    let tag = shell.tag();
    let is_known = known.split(',').any(|one| [&*tag, "*"].contains(&one.trim().trim_start_matches("W/")));
    let response = if is_known { StatusCode::NOT_MODIFIED.into_response() } else { shell.document.answer(&asked) };
    shell.guarded(response, ASK_AGAIN)
}

async fn file(
    Of(shell): Of<Arc<PageShell>>,
    Path((hash, name)): Path<(String, String)>,
    asked: HeaderMap,
) -> Result<Response, ApiError> {
    let missing = |what: String| ApiError::new(StatusCode::NOT_FOUND, what);
    if hash != shell.hash {
        return Err(missing(format!(
            "the page of '{hash}' is that of another telem; this one's is {}: load / again",
            shell.hash
        )));
    }
    let found = shell.files.iter().find(|(known, _)| *known == name);
    let (_, file) = found.ok_or_else(|| missing(format!("the page has no file '{name}'")))?;
    Ok(shell.guarded(file.answer(&asked), FOR_EVER))
}
