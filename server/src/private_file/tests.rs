//! Other users cannot read them, and no process sees half of one.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use super::*;

#[test]
fn a_private_file_is_whole_and_readable_by_its_user_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    write(&path, b"one").unwrap();
    write(&path, b"another").unwrap();
    assert_eq!(read(&path, 7).unwrap(), b"another");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing stays beside it");
}

#[test]
fn a_file_that_others_may_read_is_refused_with_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    write(&path, b"one").unwrap();
    for mode in [0o640, 0o604, 0o602, 0o755] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let error = read(&path, 7).unwrap_err().to_string();
        assert!(error.contains(&format!("mode {mode:04o}")) && error.contains("chmod 600"), "{error}");
    }
    fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
    assert_eq!(read(&path, 7).unwrap(), b"one");
}

#[test]
fn a_file_beyond_the_limit_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    write(&path, b"12345678").unwrap();
    assert!(matches!(read(&path, 7), Err(PrivateFileError::Large { found: 8, bytes_max: 7, .. })));
    assert!(matches!(read(&dir.path().join("absent"), 7), Err(PrivateFileError::Read { .. })));
}

#[test]
fn a_name_that_somebody_took_beside_it_keeps_no_file_from_being_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    let new = |end: &str| dir.path().join(format!("secret.{}.new{end}", std::process::id()));
    std::os::unix::fs::symlink(dir.path().join("stolen"), new("")).unwrap();
    fs::write(new("-2"), "").unwrap();
    write(&path, b"one").unwrap();
    assert_eq!(read(&path, 7).unwrap(), b"one");
    assert!(!dir.path().join("stolen").exists(), "nothing is written through a link");
    assert_eq!(fs::metadata(new("-2")).unwrap().len(), 0);
    (3..=9).for_each(|n| fs::write(new(&format!("-{n}")), "").unwrap());
    assert_eq!(write(&path, b"two").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
}
