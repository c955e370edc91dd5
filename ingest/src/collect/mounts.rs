//! `/proc/mounts`: the file systems whose space matters.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::text::{fields, lines};

/// Most file systems that are asked for their space; local ones come first.
pub const FILE_SYSTEMS_MAX: usize = 64;

/// One file system where it was mounted first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// What is mounted, as the kernel names it; kinds without a device repeat their name.
    pub device: String,
    pub point: PathBuf,
    pub kind: String,
}

/// Kinds that hold no files of users, or only files of an image. Whatever else says no size is left out later.
#[rustfmt::skip]
const PSEUDO: [&str; 30] = [
    "anon_inodefs", "autofs", "bdev", "binder", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs",
    "devpts", "devtmpfs", "efivarfs", "fuse.lxcfs", "fusectl", "hugetlbfs", "iso9660", "mqueue", "nsfs", "proc",
    "pstore", "ramfs", "rpc_pipefs", "securityfs", "selinuxfs", "squashfs", "sysfs", "tracefs", "fuse.portal",
    "fuse.gvfsd-fuse",
];

/// Kinds with a network behind them: they may hang, and are examined last.
#[rustfmt::skip]
const SHARED: [&str; 14] = [
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "panfs",
    "smb3", "wekafs",
];

/// The file systems of `text`, local ones first, each device once.
pub fn parse(text: &[u8]) -> Vec<Mount> {
    let mut devices: Vec<(Vec<u8>, Mount)> = Vec::new();
    for line in lines(text) {
        let mut fields = fields(line);
        let (Some(device), Some(point), Some(kind)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let Ok(kind) = std::str::from_utf8(kind) else { continue };
        let point = PathBuf::from(OsString::from_vec(unescape(point)));
        if !matters(&point, kind) {
            continue;
        }
        let name = String::from_utf8_lossy(&unescape(device)).into_owned();
        let mount = Mount { device: name, point, kind: kind.to_owned() };
        // What is mounted over another mount hides it.
        devices.retain(|(_, known)| known.point != mount.point);
        // A device that is mounted twice counts once. Names of a kind (tmpfs, overlay) say nothing about which.
        let named = device.contains(&b'/') || device.contains(&b':');
        if !named || !devices.iter().any(|(known, of)| known == device && of.kind == mount.kind) {
            devices.push((device.to_vec(), mount));
        }
    }
    let (mut local, shared): (Vec<Mount>, Vec<Mount>) =
        devices.into_iter().map(|(_, mount)| mount).partition(|mount| !SHARED.contains(&&*mount.kind));
    local.extend(shared);
    local.truncate(FILE_SYSTEMS_MAX);
    local
}

fn matters(point: &std::path::Path, kind: &str) -> bool {
    let under = |root: &str| point.starts_with(root);
    let of_system = under("/proc") || under("/sys") || (under("/dev") && !under("/dev/shm")) || under("/run");
    // A container sees its image as an overlay over /; those of other containers lie deeper.
    let image = kind == "overlay" && point != std::path::Path::new("/");
    !(PSEUDO.contains(&kind) || of_system || image)
}

/// Blanks and backslashes are written as three octal digits.
pub(super) fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let octal = |digits: &[u8]| {
            let value = digits.iter().try_fold(0u32, |value, digit| {
                (b'0'..=b'7').contains(digit).then(|| value * 8 + u32::from(digit - b'0'))
            })?;
            u8::try_from(value).ok()
        };
        match (first, after.get(..3).and_then(octal)) {
            (b'\\', Some(byte)) => {
                plain.push(byte);
                rest = &after[3..];
            }
            _ => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain
}
