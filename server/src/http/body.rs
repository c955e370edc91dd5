//! Reads a request body within limits: bytes, decompressed bytes, memory of all requests together, silence.
//!
//! The memory a body takes is counted against a budget that all requests share until its last byte is dropped,
//! so that many clients at once get `503` instead of filling the memory of the node.

use std::io::Read;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt;
use telem_engine::ErrorKind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::ApiError;
use crate::state::ServerLimits;

/// Larger bodies are decoded on a thread of their own: on the threads of the network they would
/// delay every other connection.
pub(super) const INLINE_BYTES_MAX: usize = 64 << 10;
/// Room that is made for a body before its bytes come, at most.
const ROOM_BYTES_MAX: usize = 1 << 20;
/// Memory is counted in blocks of this size.
const BLOCK_BYTES: usize = 64 << 10;

/// Memory that the bodies of all running requests share; clones share one budget.
#[derive(Clone, Debug)]
pub struct BodyBudget {
    blocks: Arc<Semaphore>,
    bytes_max: usize,
}

impl BodyBudget {
    pub fn new(bytes_max: usize) -> Self {
        let blocks = bytes_max.div_ceil(BLOCK_BYTES).min(Semaphore::MAX_PERMITS);
        Self { blocks: Arc::new(Semaphore::new(blocks)), bytes_max }
    }

    fn charge(&self, charged: &mut Charge, bytes: usize) -> Result<(), ApiError> {
        let missing = bytes.div_ceil(BLOCK_BYTES).saturating_sub(charged.blocks());
        if missing == 0 {
            return Ok(());
        }
        let permit = u32::try_from(missing).ok().and_then(|n| Arc::clone(&self.blocks).try_acquire_many_owned(n).ok());
        let Some(permit) = permit else {
            let what = format!(
                "request bodies take {} bytes together, the most that is allowed; try again in a moment",
                self.bytes_max
            );
            return Err(ApiError::of_kind(ErrorKind::Busy, what));
        };
        match &mut charged.0 {
            Some(before) => before.merge(permit),
            none => *none = Some(permit),
        }
        Ok(())
    }
}

/// What one body has been charged; given back when it is dropped.
#[derive(Debug, Default)]
struct Charge(Option<OwnedSemaphorePermit>);

impl Charge {
    fn blocks(&self) -> usize {
        self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }
}

/// Bytes that hold their charge.
struct Charged {
    bytes: Vec<u8>,
    _charge: Charge,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The whole body of `request`, decompressed when it says `Content-Encoding: gzip`.
///
/// # Errors
/// 413 when it is larger than `limits.body_bytes_max`, as sent or decompressed; 415 for another encoding;
/// 400 when it is not gzip although it says so, or ends too early; 408 when it stalls; 503 when too many bodies are read at once.
pub async fn read(request: Request, limits: &ServerLimits) -> Result<Bytes, ApiError> {
    let (head, body) = request.into_parts();
    let gzip = is_gzip(&head.headers)?;
    let announced = head.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|bytes: u64| bytes > limits.body_bytes_max as u64) {
        return Err(too_large("as sent", limits));
    }
    let mut charge = Charge::default();
    let sent = receive(body, announced.unwrap_or(0), &mut charge, limits).await?;
    if !gzip {
        return Ok(Bytes::from_owner(Charged { bytes: sent, _charge: charge }));
    }
    let limits = limits.clone();
    // Decompression is work for the processor: on the threads of the network it would delay every other connection.
    let inflated = tokio::task::spawn_blocking(move || inflate(&sent, &limits)).await;
    let (bytes, charge) = inflated
        .map_err(|panic| ApiError::of_kind(ErrorKind::Internal, format!("bug in telem: decompression: {panic}")))??;
    Ok(Bytes::from_owner(Charged { bytes, _charge: charge }))
}

/// Does `work` on a body of samples: here if it is small, else beside the threads of the network, where few are decoded
/// at a time: decoded samples take several times their body's size.
///
/// # Errors
/// Internal, when `work` panics.
pub async fn decode<R: Send + 'static>(
    body: Bytes,
    limits: &ServerLimits,
    work: impl FnOnce(&[u8]) -> R + Send + 'static,
) -> Result<R, ApiError> {
    if body.len() <= INLINE_BYTES_MAX {
        return Ok(work(&body));
    }
    let place = Arc::clone(&limits.large_bodies).acquire_owned().await;
    let decoding = tokio::task::spawn_blocking(move || {
        let _place = place;
        work(&body)
    });
    decoding.await.map_err(|panic| ApiError::of_kind(ErrorKind::Internal, format!("bug in telem: {panic}")))
}

/// All bytes of `body`, which says that it has `announced`.
async fn receive(
    mut body: axum::body::Body,
    announced: u64,
    charge: &mut Charge,
    limits: &ServerLimits,
) -> Result<Vec<u8>, ApiError> {
    // Made once instead of moved as it grows. Untouched room is no memory: it is charged as bytes come.
    let room = usize::try_from(announced).map_or(ROOM_BYTES_MAX, |bytes| bytes.min(ROOM_BYTES_MAX));
    let mut received = Vec::with_capacity(room);
    loop {
        let frame = tokio::time::timeout(limits.body_idle_timeout, body.frame()).await.map_err(|_| {
            let what = format!(
                "no byte of the body came for {} s after {} bytes",
                limits.body_idle_timeout.as_secs_f64(),
                received.len()
            );
            ApiError::new(StatusCode::REQUEST_TIMEOUT, what)
        })?;
        let Some(frame) = frame else { return Ok(received) };
        let frame = frame.map_err(|error| {
            let what = format!("the body broke off after {} bytes: {error}", received.len());
            ApiError::new(StatusCode::BAD_REQUEST, what)
        })?;
        let Ok(data) = frame.into_data() else { continue };
        let bytes = received.len() + data.len();
        if bytes > limits.body_bytes_max {
            return Err(too_large("as sent", limits));
        }
        limits.bodies.charge(charge, bytes)?;
        received.extend_from_slice(&data);
    }
}

/// Never holds more than the limit and one block, whatever the compressed bytes promise.
fn inflate(sent: &[u8], limits: &ServerLimits) -> Result<(Vec<u8>, Charge), ApiError> {
    let mut charge = Charge::default();
    let mut inflated = Vec::new();
    let mut decoder = MultiGzDecoder::new(sent);
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let bytes = decoder.read(&mut block).map_err(|error| {
            let what = format!("the body says Content-Encoding: gzip but is not: {error}");
            ApiError::new(StatusCode::BAD_REQUEST, what)
        })?;
        if bytes == 0 {
            return Ok((inflated, charge));
        }
        if inflated.len() + bytes > limits.body_bytes_max {
            return Err(too_large("decompressed", limits));
        }
        limits.bodies.charge(&mut charge, inflated.len() + bytes)?;
        inflated.extend_from_slice(&block[..bytes]);
    }
}

fn is_gzip(headers: &HeaderMap) -> Result<bool, ApiError> {
    let Some(encoding) = headers.get(header::CONTENT_ENCODING) else { return Ok(false) };
    let encoding = String::from_utf8_lossy(encoding.as_bytes()).to_ascii_lowercase();
    match encoding.trim() {
        "" | "identity" => Ok(false),
        "gzip" | "x-gzip" => Ok(true),
        other => {
            let what = format!("Content-Encoding '{other}' is not understood; send gzip or no encoding");
            Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what))
        }
    }
}

fn too_large(how: &str, limits: &ServerLimits) -> ApiError {
    let what = format!(
        "the body is larger than {} bytes {how}, the most that is allowed (option --body-bytes-max); send it in parts",
        limits.body_bytes_max
    );
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, what)
}
