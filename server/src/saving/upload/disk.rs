//! The directory of a node at its head, as a disk: each call is a request, retried within a deadline.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use bytes::Bytes;
use telem_engine::disk::{Disk, ReadFile, SyncFile, WriteFile};
use telem_engine::mirror;
use tokio::runtime::Runtime;

use super::routes::LENGTH_HEADER;
use super::store::READ_BYTES_MAX;
use crate::client::{Client, ClientError};

/// Bytes of a file in one request: what a slow network carries well within [`ATTEMPT_TIMEOUT`].
const PART_BYTES: usize = 1 << 20;
/// Longest silence of the head at one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest that one attempt may take.
const ATTEMPT_MAX: Duration = Duration::from_secs(60);
/// How often a request is tried where the head may be back in a moment.
const ATTEMPTS: u32 = 4;
/// How long to wait before the second attempt; twice that before the third, and so on.
const PAUSE: Duration = Duration::from_millis(250);
/// An answer that is an error is read up to here.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// Says where the head may be now: one that was started again may be elsewhere.
pub type Heads = Box<dyn Fn() -> Vec<Client> + Send + Sync>;

/// Asks a head, from threads that may wait.
pub struct Asking {
    look: Heads,
    /// What that said when it was asked last; the first is the one that answered last. Empty after none did.
    heads: Mutex<Vec<Client>>,
    node: String,
    /// From when there is something to ask; made and dropped on the thread that asks, where it may be waited for.
    runtime: Mutex<Option<Runtime>>,
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").field("node", &self.node).finish_non_exhaustive()
    }
}

/// What a head answered.
pub struct HeadAnswer {
    pub status: StatusCode,
    /// The length of a file.
    pub length: Option<u64>,
    pub body: Vec<u8>,
    /// Earlier attempts got no answer: what was asked for may have been done by one of them.
    pub again: bool,
}

impl Asking {
    pub fn new(look: Heads, node: String) -> Self {
        Self { look, heads: Mutex::default(), node, runtime: Mutex::default() }
    }

    pub fn node(&self) -> &str {
        &self.node
    }

    /// Asks for `/api/nodes/NODE/` and `what`; an answer of any status but "busy" is one.
    ///
    /// # Errors
    /// NotConnected when no head answered.
    pub fn ask(&self, method: &Method, what: &str, body: &Bytes) -> io::Result<HeadAnswer> {
        let path = format!("/api/nodes/{}/{what}", self.node);
        let mut trouble = "there is no head to ask".to_owned();
        let mut again = false;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                thread::sleep(PAUSE * (1 << (attempt - 1)));
            }
            let mut heads = std::mem::take(&mut *self.heads());
            if heads.is_empty() {
                heads = (self.look)().into_iter().map(|head| head.with_silence(ATTEMPT_TIMEOUT)).collect();
            }
            for at in 0..heads.len() {
                match self.once(&heads[at], method, &path, body)? {
                    Ok(answered) => {
                        heads.swap(0, at);
                        *self.heads() = heads;
                        if answered.status == StatusCode::SERVICE_UNAVAILABLE {
                            trouble = problem(&answered);
                            break;
                        }
                        return Ok(HeadAnswer { again, ..answered });
                    }
                    Err(error) => {
                        again |= !matches!(error, ClientError::Unreachable { .. });
                        trouble = error.to_string();
                    }
                }
            }
        }
        Err(io::Error::new(io::ErrorKind::NotConnected, trouble))
    }

    fn heads(&self) -> MutexGuard<'_, Vec<Client>> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// When the system has nothing left to wait with.
    fn once(
        &self,
        head: &Client,
        method: &Method,
        path: &str,
        body: &Bytes,
    ) -> io::Result<Result<HeadAnswer, ClientError>> {
        let ask = async {
            let answer = head.send(method.clone(), path, body.clone()).await?;
            let status = answer.status();
            let length = answer.header(LENGTH_HEADER).and_then(|length| length.parse().ok());
            let bytes_max = if status.is_success() { READ_BYTES_MAX as usize } else { ERROR_BYTES_MAX };
            Ok(HeadAnswer { status, length, body: answer.read(bytes_max).await?, again: false })
        };
        // Nothing that panics runs while it is held.
        let mut runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = match &mut *runtime {
            Some(runtime) => runtime,
            none => none.insert(tokio::runtime::Builder::new_current_thread().enable_all().build()?),
        };
        let answered = runtime.block_on(async { tokio::time::timeout(ATTEMPT_MAX, ask).await });
        let silent = |_| Err(ClientError::Silent { address: head.address().clone(), after: ATTEMPT_MAX });
        Ok(answered.unwrap_or_else(silent))
    }
}

/// What an error answer says.
pub fn problem(answered: &HeadAnswer) -> String {
    let json: Option<serde_json::Value> = serde_json::from_slice(&answered.body).ok();
    let message = json.as_ref().and_then(|json| json["error"]["message"].as_str()).map(str::to_owned);
    message.unwrap_or_else(|| format!("the head answered {}", answered.status))
}

/// The files of a node's copy at its head. Paths are those of the head.
#[derive(Clone, Debug)]
pub struct HeadDisk {
    asking: Arc<Asking>,
    dir: PathBuf,
}

impl HeadDisk {
    /// `dir`: what the head gave.
    pub fn new(asking: Arc<Asking>, dir: PathBuf) -> Self {
        Self { asking, dir }
    }

    /// The name of a file or folder below the directory; that itself is the empty one.
    fn name(&self, path: &Path) -> io::Result<String> {
        let name = path.strip_prefix(&self.dir).ok().and_then(Path::to_str).map(str::to_owned);
        name.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("it is not in {}", self.dir.display())))
    }

    fn file(&self, path: &Path) -> io::Result<HeadFile> {
        Ok(HeadFile { asking: Arc::clone(&self.asking), name: self.name(path)?, len: 0 })
    }

    fn done(&self, method: &Method, what: &str) -> io::Result<HeadAnswer> {
        fine(self.asking.ask(method, what, &Bytes::new())?)
    }
}

/// The answer, unless it says that the head could not do it.
fn fine(answered: HeadAnswer) -> io::Result<HeadAnswer> {
    let kind = match answered.status {
        status if status.is_success() => return Ok(answered),
        StatusCode::NOT_FOUND => io::ErrorKind::NotFound,
        StatusCode::CONFLICT => io::ErrorKind::AlreadyExists,
        StatusCode::INSUFFICIENT_STORAGE => io::ErrorKind::StorageFull,
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => io::ErrorKind::PermissionDenied,
        StatusCode::BAD_REQUEST => io::ErrorKind::InvalidInput,
        // The head was started anew and knows no directory of ours.
        StatusCode::GONE => io::ErrorKind::NotConnected,
        _ => io::ErrorKind::Other,
    };
    Err(io::Error::new(kind, problem(&answered)))
}

impl Disk for HeadDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let file = self.file(path)?;
        let answered = self.asking.ask(&Method::PUT, &format!("files/{}", file.name), &Bytes::new())?;
        let again = answered.again;
        match fine(answered) {
            Ok(_) => Ok(Box::new(file)),
            // Made by an attempt whose answer was lost: nobody else makes files in our directory.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && again && file.len_at_head()? == 0 => {
                Ok(Box::new(file))
            }
            Err(error) => Err(error),
        }
    }

    fn reopen(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let file = self.file(path)?;
        let len = file.len_at_head()?;
        Ok(Box::new(HeadFile { len, ..file }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let file = self.file(path)?;
        let len = file.len_at_head()?;
        Ok(Arc::new(HeadFile { len, ..file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.name(from)?, self.name(to)?);
        let answered = self.asking.ask(&Method::POST, &format!("files/{from}?do=rename&to={to}"), &Bytes::new())?;
        let again = answered.again;
        match fine(answered) {
            // Renamed by an attempt whose answer was lost.
            Err(error) if error.kind() == io::ErrorKind::NotFound && again => Ok(()),
            done => done.map(drop),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let answered = self.asking.ask(&Method::DELETE, &format!("files/{}", self.name(path)?), &Bytes::new())?;
        let again = answered.again;
        match fine(answered) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && again => Ok(()),
            done => done.map(drop),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let answered = self.done(&Method::GET, &format!("files?folder={}", self.name(dir)?))?;
        let names: Vec<String> = serde_json::from_slice(&answered.body)?;
        Ok(names.into_iter().map(|name| dir.join(name)).collect())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.done(&Method::POST, &format!("files?do=make&folder={}", self.name(dir)?)).map(drop)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        // The name of the directory itself: durable before it was given to us.
        if self.dir.starts_with(dir) && self.dir != dir {
            return Ok(());
        }
        self.done(&Method::POST, &format!("files?do=sync&folder={}", self.name(dir)?)).map(drop)
    }
}

#[derive(Clone, Debug)]
struct HeadFile {
    asking: Arc<Asking>,
    name: String,
    /// How far it is written; of a file to read, how long it was when it was opened.
    len: u64,
}

impl HeadFile {
    fn len_at_head(&self) -> io::Result<u64> {
        let answered = fine(self.asking.ask(&Method::HEAD, &format!("files/{}", self.name), &Bytes::new())?)?;
        answered.length.ok_or_else(|| io::Error::other("the head does not say how long the file is"))
    }

    fn told(&self, what: &str) -> io::Result<()> {
        fine(self.asking.ask(&Method::POST, &format!("files/{}?do={what}", self.name), &Bytes::new())?).map(drop)
    }
}

impl WriteFile for HeadFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        for part in bytes.chunks(PART_BYTES) {
            let what = format!("files/{}?at={}&crc32={:08x}", self.name, self.len, mirror::checksum(part));
            fine(self.asking.ask(&Method::PUT, &what, &Bytes::copy_from_slice(part))?)?;
            self.len += part.len() as u64;
        }
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.told(&format!("truncate&bytes={len}"))?;
        self.len = len;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.told("sync")
    }

    fn sync_handle(&self) -> io::Result<Box<dyn SyncFile>> {
        Ok(Box::new(self.clone()))
    }
}

impl SyncFile for HeadFile {
    fn sync(&self) -> io::Result<()> {
        self.told("sync")
    }
}

impl ReadFile for HeadFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        let what = format!("files/{}?from={offset}&bytes={}", self.name, buffer.len());
        let found = fine(self.asking.ask(&Method::GET, &what, &Bytes::new())?)?.body;
        if found.len() < buffer.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer.copy_from_slice(&found[..buffer.len()]);
        Ok(())
    }
}
