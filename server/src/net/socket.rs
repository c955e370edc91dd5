//! The Unix socket: in a private directory, under a short path, replacing only a dead one.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::net::UnixListener;

use crate::config;
use crate::private_dir::{self, Privacy, PrivateDirError};

/// The kernel takes 107 bytes; scripts put a prefix like `unix:` before it.
const PATH_BYTES_MAX: usize = 99;

/// How often a name is tried that others take at the same moment.
const NAMING_TRIES: usize = 8;

/// How often, and after which time, the turn to name a socket is asked for. A turn takes less than a millisecond; a
/// process that is stopped in its own delays others by a second.
const TURN_TRIES: u32 = 200;
const TURN_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("{0}: repair it, or set XDG_RUNTIME_DIR to a directory that only you can enter")]
    Directory(#[from] PrivateDirError),
    #[error("the socket path {} has {found} bytes; at most {PATH_BYTES_MAX} are allowed: set XDG_RUNTIME_DIR to a shorter one", path.display())]
    LongPath { path: PathBuf, found: usize },
    #[error("{} is served by a running telem", path.display())]
    Alive { path: PathBuf },
    #[error("{} is in the way of the socket and is not a socket; remove it", path.display())]
    InTheWay { path: PathBuf },
    #[error("{} belongs to user {uid}; take another place with -u PATH", path.display())]
    Foreign { path: PathBuf, uid: u32 },
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

fn io_error<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> SocketError + use<'a> {
    move |source| SocketError::Io { action, path: path.to_path_buf(), source }
}

/// Where the socket of a service is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketPlace {
    /// In XDG_RUNTIME_DIR, if it has a value and is the user's alone; else where [`SocketPlace::Common`] is.
    ///
    /// Jobs inherit XDG_RUNTIME_DIR from the login node, and on a compute node it does not exist; under sudo it is
    /// somebody else's.
    OfUser { xdg_runtime_dir: Option<PathBuf> },
    /// The same place on all nodes of a job, whatever each has in XDG_RUNTIME_DIR: `/tmp/telem-UID`, and where that
    /// name is taken the next one, or the same in `/dev/shm`.
    Common,
    /// In this directory and no other.
    In(PathBuf),
}

impl SocketPlace {
    /// The directory, made if it is not there; says which names were taken.
    ///
    /// # Errors
    /// When no directory can be had that is the user's alone.
    pub fn directory(&self, uid: u32) -> Result<PathBuf, PrivateDirError> {
        self.directory_in(&ROOTS.map(Path::new), uid)
    }

    pub(super) fn directory_in(&self, roots: &[&Path], uid: u32) -> Result<PathBuf, PrivateDirError> {
        match self {
            Self::In(dir) => return private_dir::own(dir, uid, Privacy::Closed).map(|()| dir.clone()),
            Self::OfUser { xdg_runtime_dir: Some(dir) } if is_usable(dir, uid) => return Ok(dir.clone()),
            Self::OfUser { .. } | Self::Common => {}
        }
        let mut refused = None;
        for root in roots {
            match private_dir::below(root, &config::private_name(uid), uid, Privacy::Closed) {
                Ok(found) => {
                    if let Some(error) = refused {
                        tracing::warn!("the socket is in {}, because {error}", found.path.display());
                    }
                    found.tell_passed("the socket is");
                    return Ok(found.path);
                }
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Err(refused.unwrap_or_else(|| PrivateDirError::Io {
            action: "find a place for the socket in",
            path: PathBuf::new(),
            source: io::ErrorKind::NotFound.into(),
        }))
    }
}

/// A public place that every machine has.
const ROOTS: [&str; 2] = ["/tmp", "/dev/shm"];

/// Whether a socket can be created in a directory that the user named for sockets.
fn is_usable(dir: &Path, uid: u32) -> bool {
    let is_short = dir.join(file_name("")).as_os_str().len() <= PATH_BYTES_MAX;
    is_short && dir.is_absolute() && private_dir::check(dir, uid, Privacy::Closed).is_ok()
}

/// `<8 hex digits of what>.sock`.
pub fn file_name(what: &str) -> String {
    // FNV-1a: stable for ever, and names need no more than to differ.
    let hash = what.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}.sock")
}

/// A listening socket; its file goes when it is dropped.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode, so that a successor's file is not removed for ours.
    identity: (u64, u64),
}

impl Socket {
    /// Listens at `dir`/`name`, in place of a socket that a dead process left there. `dir` must be of `uid` alone.
    ///
    /// # Errors
    /// Alive when a process listens there; see [`SocketError`].
    pub fn bind(dir: &Path, name: &str, uid: u32) -> Result<Socket, SocketError> {
        private_dir::own(dir, uid, Privacy::Closed)?;
        let _turn = turn(dir);
        Self::bind_at(dir.join(name))
    }

    /// Listens at a path that may be in a directory of others, such as `/tmp`: a dead socket of ours is replaced, anything
    /// of another user is an error. Nobody else may connect.
    ///
    /// # Errors
    /// Alive when a process listens there; Foreign when it is of another user; see [`SocketError`].
    pub fn bind_among_others(path: &Path, uid: u32) -> Result<Socket, SocketError> {
        match fs::symlink_metadata(path) {
            Ok(found) if found.uid() != uid => Err(SocketError::Foreign { path: path.to_path_buf(), uid: found.uid() }),
            Ok(_) => Self::bind_at(path.to_path_buf()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::bind_at(path.to_path_buf()),
            Err(error) => Err(io_error("look at", path)(error)),
        }
    }

    fn bind_at(path: PathBuf) -> Result<Socket, SocketError> {
        let bytes = path.as_os_str().len();
        if bytes > PATH_BYTES_MAX {
            return Err(SocketError::LongPath { path, found: bytes });
        }
        // A socket that is bound and does not listen yet looks dead. So it gets its name when it listens, and only if
        // nobody has that name.
        static NUMBER: AtomicU16 = AtomicU16::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed) % 1_000;
        let unnamed = path.with_extension(format!("{}.{number}", std::process::id()));
        clear(&unnamed)?;
        let listener = UnixListener::bind(&unnamed).map_err(io_error("listen on", &unnamed))?;
        let named = name_it(&unnamed, &path);
        let _ = fs::remove_file(&unnamed);
        Ok(Socket { listener, identity: named?, path })
    }

    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, path = %self.path.display(), "the socket file stays");
        }
    }
}

/// The turn to name sockets in a directory that is ours alone, until what this returns is dropped. Without turns one process
/// could see a dead socket, a second take its name, the first take that living one aside, and a third find no socket at
/// all: two nodes of one machine then had one. `None` where the file system has no such locks or the turn does not come;
/// then names are given as among others.
fn turn(dir: &Path) -> Option<File> {
    let held = File::open(dir).ok()?;
    for _ in 0..TURN_TRIES {
        match flock(&held, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(held),
            Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::park_timeout(TURN_INTERVAL),
            Err(_) => return None,
        }
    }
    None
}

/// Gives a socket that listens its name, in place of a dead one. Returns its device and inode.
fn name_it(unnamed: &Path, path: &Path) -> Result<(u64, u64), SocketError> {
    fs::set_permissions(unnamed, Permissions::from_mode(0o600)).map_err(io_error("set the mode of", unnamed))?;
    for tries_left in (0..NAMING_TRIES).rev() {
        clear(path)?;
        match fs::hard_link(unnamed, path) {
            // Somebody was faster, who may be dead by now.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries_left > 0 => {}
            linked => {
                linked.map_err(io_error("make", path))?;
                break;
            }
        }
    }
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino())).map_err(io_error("look at", path))
}

/// Whether a process listens at `path`.
pub fn is_served(path: &Path) -> bool {
    matches!(is_vacant(path), Err(SocketError::Alive { .. }))
}

/// Removes a dead socket at `path`. It is first taken aside and asked again there, so that one which a
/// process that starts at the same moment has just made is put back instead of being removed.
fn clear(path: &Path) -> Result<(), SocketError> {
    if is_vacant(path)? {
        return Ok(());
    }
    let aside = path.with_extension(format!("{}.old", std::process::id()));
    match fs::rename(path, &aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        moved => moved.map_err(io_error("take aside", path))?,
    }
    match is_vacant(&aside) {
        Ok(_) => fs::remove_file(&aside).map_err(io_error("remove", &aside)),
        Err(alive) => {
            fs::hard_link(&aside, path).map_err(io_error("put back", path))?;
            fs::remove_file(&aside).map_err(io_error("remove", &aside))?;
            Err(alive)
        }
    }
}

/// True if there is nothing at `path`, false if there is a dead socket.
fn is_vacant(path: &Path) -> Result<bool, SocketError> {
    use std::os::unix::fs::FileTypeExt;
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(io_error("look at", path)(error)),
    };
    if !found.file_type().is_socket() {
        return Err(SocketError::InTheWay { path: path.to_path_buf() });
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        // A full backlog (WouldBlock) is a sign of life.
        _ => Err(SocketError::Alive { path: path.to_path_buf() }),
    }
}
