//! Reads a request body within limits: bytes, decompressed bytes, memory of all requests together, silence.
//!
//! The memory of a body counts against a budget that all requests share, until the body's last byte is dropped. So many
//! clients at once get `503` instead of filling the memory of the node. Large bodies are decompressed and decoded on
//! two dedicated threads ([`LargeBodies`]), whose memory returns to the system.

mod large;

use std::io::Read;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt;
use telem_engine::ErrorKind;

pub use self::large::LargeBodies;
use super::ApiError;
use crate::memory::{BLOCK_BYTES, MemoryBudget, MemoryCharge, MemoryTaken};

/// Larger bodies are decoded on a thread of their own: on the threads of the network they would
/// delay every other connection. A thousand points of `put` are below it: they are read in some 50 us, to which handing
/// them over and back would add a good part.
pub(super) const INLINE_BYTES_MAX: usize = 128 << 10;
/// Up to here the room for a body grows with it.
const GROWING_BYTES_MAX: usize = 1 << 20;
/// The room for what is larger. An allocator may keep freed memory for the next allocation, which glibc never does with
/// pieces of more than 32 MiB: each is a mapping of its own and goes back whole. What is not touched of it is no
/// memory.
const MAPPED_BYTES_MIN: usize = (32 << 20) + BLOCK_BYTES;
/// Most room that is made before its bytes come.
const MAPPED_BYTES_MAX: usize = 64 << 20;

/// What request bodies may take.
#[derive(Clone, Debug)]
pub struct BodyLimits {
    /// Largest one, as sent and again when decompressed. 64 MiB by default.
    pub bytes_max: usize,
    /// Memory that those of all running requests share. 256 MiB by default.
    pub budget: BodyBudget,
    /// Places for large ones that are decompressed and decoded at once; one more waits, 30 s by default. 2 by
    /// default: samples are appended one body after another anyway.
    pub large: LargeBodies,
    /// Longest silence while one is sent to us. 30 s by default.
    pub idle_timeout: Duration,
}

impl BodyLimits {
    /// The same limits for bodies that are no larger than `bytes_max` either.
    pub fn at_most(&self, bytes_max: usize) -> Self {
        Self { bytes_max: self.bytes_max.min(bytes_max), ..self.clone() }
    }
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self {
            bytes_max: 64 << 20,
            budget: BodyBudget::new(256 << 20),
            large: LargeBodies::new(2, Duration::from_secs(30)),
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// Memory that the bodies of all running requests share; clones share one budget.
#[derive(Clone, Debug)]
pub struct BodyBudget(MemoryBudget);

impl BodyBudget {
    pub fn new(bytes_max: usize) -> Self {
        Self(MemoryBudget::new(bytes_max))
    }

    /// Memory that they may take together.
    pub fn bytes_max(&self) -> usize {
        self.0.bytes_max()
    }

    /// Memory that they take now.
    pub fn bytes_taken(&self) -> usize {
        self.0.bytes_taken()
    }

    fn charge(&self, charged: &mut MemoryCharge, bytes: usize) -> Result<(), ApiError> {
        self.0.grow(charged, bytes).map_err(|MemoryTaken| {
            let what = format!(
                "request bodies take {} bytes together, the most that is allowed (option --bodies-bytes-max); try again \
                 in a moment",
                self.bytes_max()
            );
            ApiError::of_kind(ErrorKind::Busy, what)
        })
    }
}

/// Bytes that hold their charge.
struct ChargedBytes {
    bytes: Vec<u8>,
    _charge: MemoryCharge,
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A body as it was sent.
struct Sent {
    bytes: Vec<u8>,
    charge: MemoryCharge,
    encoding: Encoding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Plain,
    Gzip,
}

/// The whole body of `request`, decompressed when it says `Content-Encoding: gzip`.
///
/// # Errors
/// 413 when it is larger than `limits.bytes_max`, as sent or decompressed; 415 for another encoding;
/// 400 when it is not gzip although it says so, or ends too early; 408 when it stalls; 503 when too many bodies are read at once.
pub async fn read(request: Request, limits: &BodyLimits) -> Result<Bytes, ApiError> {
    let Sent { bytes, charge, .. } = match small(receive(request, limits).await?, limits)? {
        sent if sent.encoding == Encoding::Plain => sent,
        sent => {
            let given = limits.clone();
            limits.large.work(move |is_wanted| inflate(sent, &given, is_wanted)).await??
        }
    };
    Ok(Bytes::from_owner(ChargedBytes { bytes, _charge: charge }))
}

/// Reads the body of `request` and does `work` on it: here if it is small, else beside the threads of the network, where
/// few are decompressed and decoded at a time: decoded samples take memory too.
///
/// # Errors
/// Those of [`read`]; 503 when its turn does not come; Internal, when `work` panics.
pub async fn read_and_decode<R: Send + 'static>(
    request: Request,
    limits: &BodyLimits,
    work: impl FnOnce(&[u8]) -> R + Send + 'static,
) -> Result<R, ApiError> {
    let sent = small(receive(request, limits).await?, limits)?;
    if sent.encoding == Encoding::Plain && sent.bytes.len() <= INLINE_BYTES_MAX {
        return Ok(work(&sent.bytes));
    }
    let given = limits.clone();
    let decoded = limits.large.work(move |is_wanted| {
        let sent = match sent.encoding {
            Encoding::Plain => sent,
            Encoding::Gzip => inflate(sent, &given, is_wanted)?,
        };
        Ok(work(&sent.bytes))
    });
    decoded.await?
}

/// All bytes of a body, as they come.
async fn receive(request: Request, limits: &BodyLimits) -> Result<Sent, ApiError> {
    let (head, mut body) = request.into_parts();
    let encoding = encoding(&head.headers)?;
    let announced = head.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|bytes: u64| bytes > limits.bytes_max as u64) {
        return Err(too_large("as sent", limits));
    }
    let mut charge = MemoryCharge::default();
    let mut received = Vec::new();
    if let Some(bytes) = announced.and_then(|bytes| usize::try_from(bytes).ok()) {
        make_room(&mut received, bytes, limits)?;
    }
    loop {
        let frame = tokio::time::timeout(limits.idle_timeout, body.frame()).await.map_err(|_| {
            let what = format!(
                "no byte of the body came for {} s after {} bytes",
                limits.idle_timeout.as_secs_f64(),
                received.len()
            );
            ApiError::new(StatusCode::REQUEST_TIMEOUT, what)
        })?;
        let Some(frame) = frame else { return Ok(Sent { bytes: received, charge, encoding }) };
        let frame = frame.map_err(|error| {
            let what = format!("the body broke off after {} bytes: {error}", received.len());
            ApiError::new(StatusCode::BAD_REQUEST, what)
        })?;
        let Ok(data) = frame.into_data() else { continue };
        let bytes = received.len() + data.len();
        if bytes > limits.bytes_max {
            return Err(too_large("as sent", limits));
        }
        limits.budget.charge(&mut charge, bytes)?;
        make_room(&mut received, data.len(), limits)?;
        received.extend_from_slice(&data);
    }
}

/// Makes room for this many more bytes.
///
/// # Errors
/// Busy when the system gives no memory.
fn make_room(bytes: &mut Vec<u8>, more: usize, limits: &BodyLimits) -> Result<(), ApiError> {
    let needed = bytes.len() + more;
    if needed <= bytes.capacity() {
        return Ok(());
    }
    if needed > GROWING_BYTES_MAX {
        let mut mapped = Vec::new();
        let room = limits.bytes_max.clamp(MAPPED_BYTES_MIN, MAPPED_BYTES_MAX).max(needed);
        // Where address space is limited it grows as it must.
        if mapped.try_reserve_exact(room).is_ok() {
            mapped.extend_from_slice(bytes);
            *bytes = mapped;
            return Ok(());
        }
    }
    bytes.try_reserve(more).map_err(|error| {
        let what = format!("the system gives no memory for a body of {needed} bytes ({error}); try again in a moment");
        ApiError::of_kind(ErrorKind::Busy, what)
    })
}

/// Decompresses a small body here, if it is small decompressed too; anything else stays what it is.
fn small(sent: Sent, limits: &BodyLimits) -> Result<Sent, ApiError> {
    if sent.encoding == Encoding::Plain || sent.bytes.len() > INLINE_BYTES_MAX {
        return Ok(sent);
    }
    let mut bytes = Vec::new();
    let most = INLINE_BYTES_MAX.min(limits.bytes_max);
    let decoder = MultiGzDecoder::new(sent.bytes.as_slice());
    decoder.take(most as u64 + 1).read_to_end(&mut bytes).map_err(not_gzip)?;
    if bytes.len() > limits.bytes_max {
        return Err(too_large("decompressed", limits));
    }
    // What was charged for it as sent is less than it takes now by a block at most.
    let is_small = bytes.len() <= INLINE_BYTES_MAX;
    Ok(if is_small { Sent { bytes, charge: sent.charge, encoding: Encoding::Plain } } else { sent })
}

/// Never holds more than the limit and one block, whatever the compressed bytes promise. Stops when no client waits.
fn inflate(sent: Sent, limits: &BodyLimits, is_wanted: &dyn Fn() -> bool) -> Result<Sent, ApiError> {
    let mut charge = MemoryCharge::default();
    let mut inflated = Vec::new();
    let mut decoder = MultiGzDecoder::new(sent.bytes.as_slice());
    let mut block = vec![0; BLOCK_BYTES];
    while is_wanted() {
        let bytes = decoder.read(&mut block).map_err(not_gzip)?;
        if bytes == 0 {
            return Ok(Sent { bytes: inflated, charge, encoding: Encoding::Plain });
        }
        if inflated.len() + bytes > limits.bytes_max {
            return Err(too_large("decompressed", limits));
        }
        limits.budget.charge(&mut charge, inflated.len() + bytes)?;
        make_room(&mut inflated, bytes, limits)?;
        inflated.extend_from_slice(&block[..bytes]);
    }
    Err(ApiError::of_kind(ErrorKind::Unavailable, "the client went away before its body was decompressed"))
}

fn not_gzip(error: std::io::Error) -> ApiError {
    let what = format!("the body says Content-Encoding: gzip but is not: {error}");
    ApiError::new(StatusCode::BAD_REQUEST, what)
}

fn encoding(headers: &HeaderMap) -> Result<Encoding, ApiError> {
    let Some(encoding) = headers.get(header::CONTENT_ENCODING) else { return Ok(Encoding::Plain) };
    let encoding = String::from_utf8_lossy(encoding.as_bytes()).to_ascii_lowercase();
    match encoding.trim() {
        "" | "identity" => Ok(Encoding::Plain),
        "gzip" | "x-gzip" => Ok(Encoding::Gzip),
        other => {
            let what = format!("Content-Encoding '{other}' is not understood; send gzip or no encoding");
            Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what))
        }
    }
}

fn too_large(how: &str, limits: &BodyLimits) -> ApiError {
    let what = format!(
        "the body is larger than {} bytes {how}, the most that is allowed (option --body-bytes-max); send it in parts",
        limits.bytes_max
    );
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, what)
}
