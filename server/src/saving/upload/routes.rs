//! `/api/nodes/{node}/save`, `/saved` and `/files/...`: nodes ask where to save, report how far they are, and send
//! files that they cannot write themselves. Every request needs the token of the job.
//!
//! | request | effect |
//! |---|---|
//! | `POST save` | returns the node's directory and the probe |
//! | `POST saved` | records how far the node is |
//! | `GET files?folder=F` | lists the names in a folder |
//! | `POST files?do=make\|sync&folder=F` | creates a folder; makes the names in it durable |
//! | `PUT files/NAME` | without `at`: creates an empty file |
//! | `PUT files/NAME?at=N&crc32=HEX` | stores the body behind the first N bytes of the file, and nothing behind it |
//! | `POST files/NAME?do=sync`, `truncate&bytes=N`, `rename&to=NAME` | syncs, truncates or renames the file |
//! | `HEAD files/NAME`, `GET files/NAME?from=N&bytes=M` | returns its length; its bytes |
//! | `DELETE files/NAME` | removes it |

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State as Of};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use serde::{Deserialize, Serialize};
use telem_engine::ErrorKind;

use super::store::{READ_BYTES_MAX, StoreError, UploadStore};
use super::{DirectoryRequest, UploadProgress, Uploads, UploadsError};
use crate::http::{ApiError, body};

/// The length of a file.
pub const LENGTH_HEADER: &str = "x-telem-bytes";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Parameters {
    folder: String,
    r#do: Option<Do>,
    at: Option<u64>,
    crc32: String,
    bytes: Option<u64>,
    from: u64,
    to: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Do {
    Make,
    Sync,
    Truncate,
    Rename,
}

/// The routes of a head that saves its job, for a router of any state.
pub fn routes<S: Clone + Send + Sync + 'static>(uploads: Uploads) -> Router<S> {
    Router::new()
        .route("/api/nodes/{node}/save", post(give))
        .route("/api/nodes/{node}/saved", post(saved))
        .route("/api/nodes/{node}/files", get(list).post(folder))
        .route("/api/nodes/{node}/files/{*name}", put(write).get(read).post(change).delete(remove))
        // Bodies are counted as they are read.
        .layer(DefaultBodyLimit::disable())
        .with_state(uploads)
}

async fn give(Of(uploads): Of<Uploads>, Path(node): Path<String>, request: Request) -> Result<Response, ApiError> {
    uploads.admit(request.headers())?;
    let wanted: DirectoryRequest = json(&body::read(request, &uploads.inner.limits).await?)?;
    let given = beside(move || uploads.give(&node, &wanted)).await??;
    as_json(&given)
}

async fn saved(Of(uploads): Of<Uploads>, Path(node): Path<String>, request: Request) -> Result<Response, ApiError> {
    uploads.admit(request.headers())?;
    let progress: UploadProgress = json(&body::read(request, &uploads.inner.limits).await?)?;
    if uploads.note(&node, progress) { Ok(StatusCode::NO_CONTENT.into_response()) } else { Err(without_place(&node)) }
}

async fn list(
    Of(uploads): Of<Uploads>,
    Path(node): Path<String>,
    Query(parameters): Query<Parameters>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let names = uploads.at_disk(&headers, &node, move |store| store.list(&parameters.folder)).await?;
    as_json(&names)
}

async fn folder(
    Of(uploads): Of<Uploads>,
    Path(node): Path<String>,
    Query(parameters): Query<Parameters>,
    headers: HeaderMap,
) -> Result<StatusCode, ApiError> {
    let what = parameters.r#do;
    let (Some(Do::Make) | Some(Do::Sync)) = what else { return Err(invalid("a folder takes do=make or do=sync")) };
    let work = move |store: &UploadStore| match what {
        Some(Do::Make) => store.make_folder(&parameters.folder),
        _ => store.sync_folder(&parameters.folder),
    };
    uploads.at_disk(&headers, &node, work).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn write(
    Of(uploads): Of<Uploads>,
    Path((node, name)): Path<(String, String)>,
    Query(parameters): Query<Parameters>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    uploads.admit(request.headers())?;
    let headers = request.headers().clone();
    let part = body::read(request, &uploads.inner.limits).await?;
    let Some(at) = parameters.at else {
        if !part.is_empty() {
            return Err(invalid("a part of a file needs its place: ?at=BYTES&crc32=HEX"));
        }
        uploads.at_disk(&headers, &node, move |store| store.create(&name)).await?;
        return Ok(StatusCode::NO_CONTENT);
    };
    let crc32 = u32::from_str_radix(&parameters.crc32, 16)
        .map_err(|_| invalid("a part of a file comes with its CRC-32: ?crc32=HEX"))?;
    uploads.at_disk(&headers, &node, move |store| store.write(&name, at, crc32, &part)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Also of `HEAD`, which wants the length alone.
async fn read(
    Of(uploads): Of<Uploads>,
    Path((node, name)): Path<(String, String)>,
    Query(parameters): Query<Parameters>,
    request: Request,
) -> Result<Response, ApiError> {
    let bytes =
        if request.method() == axum::http::Method::HEAD { 0 } else { parameters.bytes.unwrap_or(READ_BYTES_MAX) };
    let work = move |store: &UploadStore| Ok((store.len(&name)?, store.read(&name, parameters.from, bytes)?));
    let (len, found) = uploads.at_disk(request.headers(), &node, work).await?;
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    let mut response = ([kind], found).into_response();
    response.headers_mut().insert(LENGTH_HEADER, HeaderValue::from(len));
    Ok(response)
}

async fn change(
    Of(uploads): Of<Uploads>,
    Path((node, name)): Path<(String, String)>,
    Query(parameters): Query<Parameters>,
    headers: HeaderMap,
) -> Result<StatusCode, ApiError> {
    let Parameters { r#do, bytes, to, .. } = parameters;
    let work = move |store: &UploadStore| match (r#do, bytes) {
        (Some(Do::Sync), _) => Some(store.sync(&name)).transpose(),
        (Some(Do::Truncate), Some(bytes)) => Some(store.truncate(&name, bytes)).transpose(),
        (Some(Do::Rename), _) => Some(store.rename(&name, &to)).transpose(),
        _ => Ok(None),
    };
    match uploads.at_disk(&headers, &node, work).await? {
        Some(()) => Ok(StatusCode::NO_CONTENT),
        None => Err(invalid("a file takes do=sync, do=truncate&bytes=N or do=rename&to=NAME")),
    }
}

async fn remove(
    Of(uploads): Of<Uploads>,
    Path((node, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<StatusCode, ApiError> {
    uploads.at_disk(&headers, &node, move |store| store.remove(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl Uploads {
    fn admit(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let told = headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        match told {
            Some(guess) if self.inner.token.is(guess) => Ok(()),
            _ => {
                let what = "files of nodes are accepted only with the token of the job";
                Err(ApiError::new(StatusCode::UNAUTHORIZED, what))
            }
        }
    }

    /// Does something to the directory of a node, beside the threads of the network.
    async fn at_disk<R: Send + 'static>(
        &self,
        headers: &HeaderMap,
        node: &str,
        work: impl FnOnce(&UploadStore) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, ApiError> {
        self.admit(headers)?;
        let store = self.store(node).ok_or_else(|| without_place(node))?;
        let busy = |what: &str| ApiError::of_kind(ErrorKind::Busy, format!("{what}; come again in a moment"));
        let turn = store.turn().ok_or_else(|| busy("another request of this node is worked on"))?;
        let place = Arc::clone(&self.inner.at_disk).try_acquire_owned();
        let place = place.map_err(|_| busy("as many nodes as may are being saved"))?;
        let done = beside(move || {
            let _held = (turn, place);
            work(&store)
        });
        Ok(done.await??)
    }
}

async fn beside<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Result<R, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|panic| ApiError::of_kind(ErrorKind::Internal, format!("bug in telem: {panic}")))
}

fn json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| invalid(&format!("the body is not understood: {error}")))
}

fn as_json(answer: &impl Serialize) -> Result<Response, ApiError> {
    let text = serde_json::to_string(answer)
        .map_err(|error| ApiError::of_kind(ErrorKind::Internal, format!("bug in telem: {error}")))?;
    Ok(([(header::CONTENT_TYPE, "application/json; charset=UTF-8")], text).into_response())
}

fn invalid(what: &str) -> ApiError {
    ApiError::of_kind(ErrorKind::Invalid, what)
}

/// The head may have been started anew.
fn without_place(node: &str) -> ApiError {
    ApiError::new(StatusCode::GONE, format!("node '{node}' has no directory here; ask for one: POST save"))
}

impl From<UploadsError> for ApiError {
    fn from(error: UploadsError) -> Self {
        let kind = match &error {
            UploadsError::Name(_) | UploadsError::TooMany => ErrorKind::Invalid,
            UploadsError::Io { .. } => ErrorKind::Unavailable,
            UploadsError::Engine(error) => error.kind(),
        };
        Self::of_kind(kind, error.to_string())
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let status = match &error {
            StoreError::BadName { .. } | StoreError::Damaged { .. } => StatusCode::BAD_REQUEST,
            StoreError::Hole { .. } => StatusCode::CONFLICT,
            StoreError::Io { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => StatusCode::NOT_FOUND,
                io::ErrorKind::AlreadyExists => StatusCode::CONFLICT,
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StatusCode::INSUFFICIENT_STORAGE,
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => StatusCode::FORBIDDEN,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            },
        };
        Self::new(status, error.to_string())
    }
}
