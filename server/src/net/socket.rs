//! The Unix socket: in a directory that is ours alone, under a short path, in place of a dead one only.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// The kernel takes 107 bytes; scripts put a prefix like `unix:` before it.
const PATH_BYTES_MAX: usize = 99;

#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("{} {found}; it must be a directory of uid {uid} with mode 0700: mend it, or set XDG_RUNTIME_DIR to one that is", path.display())]
    UnsafeDirectory { path: PathBuf, found: String, uid: u32 },
    #[error("the socket path {} has {found} bytes; at most {PATH_BYTES_MAX} are allowed: set XDG_RUNTIME_DIR to a shorter one", path.display())]
    LongPath { path: PathBuf, found: usize },
    #[error("{} is served by a running telem", path.display())]
    Alive { path: PathBuf },
    #[error("{} is in the way of the socket and is not one; remove it", path.display())]
    InTheWay { path: PathBuf },
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

impl SocketError {
    /// What is wrong with a directory, without advice that is for sockets alone.
    pub fn found(&self) -> String {
        match self {
            SocketError::UnsafeDirectory { path, found, uid } => {
                format!("{} {found}, and must be a directory of uid {uid} with mode 0700", path.display())
            }
            SocketError::Io { action, path, source } => format!("cannot {action} {}: {source}", path.display()),
            other => other.to_string(),
        }
    }
}

fn io_error<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> SocketError + use<'a> {
    move |source| SocketError::Io { action, path: path.to_path_buf(), source }
}

/// The directory of sockets of user `uid`: `xdg_runtime_dir` where it exists and is that user's alone, else
/// `/tmp/telem-UID`, else the same in `/dev/shm`.
///
/// Jobs inherit XDG_RUNTIME_DIR from the login node, and on a compute node nothing stands there; under sudo it is
/// somebody else's; and anybody may have made the one in `/tmp`.
pub fn directory(xdg_runtime_dir: Option<&Path>, uid: u32) -> PathBuf {
    let wanted = xdg_runtime_dir.filter(|dir| dir.is_absolute() && dir.exists()).map(Path::to_path_buf);
    let tmp = PathBuf::from(format!("/tmp/telem-{uid}"));
    let usable = |dir: &PathBuf| !dir.exists() || check(dir, uid).is_ok();
    let mut places = wanted.into_iter().chain([tmp.clone(), format!("/dev/shm/telem-{uid}").into()]);
    places.find(usable).unwrap_or(tmp)
}

/// That of a job of many nodes: the same on all of them, whatever each has in XDG_RUNTIME_DIR.
pub fn common_directory(uid: u32) -> PathBuf {
    directory(None, uid)
}

/// `<8 hex digits of what>.sock`.
pub fn file_name(what: &str) -> String {
    // FNV-1a: stable for ever, and names need no more than to differ.
    let hash = what.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}.sock")
}

/// Makes `dir` unless it is there, and checks that nobody but `uid` can put anything into it.
///
/// # Errors
/// UnsafeDirectory when it is a link, somebody else's or open to others.
pub fn own_directory(dir: &Path, uid: u32) -> Result<(), SocketError> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(io_error("create", dir)(error)),
        _ => {}
    }
    check(dir, uid)
}

/// # Errors
/// UnsafeDirectory; Io where it is not there.
fn check(dir: &Path, uid: u32) -> Result<(), SocketError> {
    // Of the link itself, not of what it leads to: in /tmp anybody can place a link.
    let found = fs::symlink_metadata(dir).map_err(io_error("look at", dir))?;
    let wrong = if !found.is_dir() {
        "is no directory".to_owned()
    } else if found.uid() != uid {
        format!("belongs to uid {}", found.uid())
    } else if found.mode() & 0o777 != 0o700 {
        format!("has mode {:04o}", found.mode() & 0o777)
    } else {
        return Ok(());
    };
    Err(SocketError::UnsafeDirectory { path: dir.to_path_buf(), found: wrong, uid })
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
    /// Listens at `dir`/`name`, in place of a socket that a dead process left there.
    ///
    /// # Errors
    /// Alive when a process listens there; see [`SocketError`].
    pub fn bind(dir: &Path, name: &str, uid: u32) -> Result<Socket, SocketError> {
        own_directory(dir, uid)?;
        let path = dir.join(name);
        let bytes = path.as_os_str().len();
        if bytes > PATH_BYTES_MAX {
            return Err(SocketError::LongPath { path, found: bytes });
        }
        clear(&path)?;
        let listener = UnixListener::bind(&path).map_err(io_error("listen on", &path))?;
        fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(io_error("set the mode of", &path))?;
        let identity = fs::symlink_metadata(&path).map(|m| (m.dev(), m.ino())).map_err(io_error("look at", &path))?;
        Ok(Socket { listener, path, identity })
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

/// True when nothing stands at `path`, false when a dead socket does.
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
