use super::*;

#[test]
fn a_copy_has_every_file_but_the_lock_and_a_file_that_differs_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir_all(from.join("n1/wal")).unwrap();
    fs::write(from.join("n1/MANIFEST"), "m".repeat(COMPARED_BYTES + 7)).unwrap();
    fs::write(from.join("n1/WRITER"), "me").unwrap();
    fs::write(from.join("n1/wal/1.wal"), "").unwrap();
    fs::create_dir(&to).unwrap();
    copy(&from, &to).unwrap();
    assert!(to.join("n1/wal/1.wal").is_file() && !to.join("n1/WRITER").exists());
    compare(&from.join("n1/MANIFEST"), &to.join("n1/MANIFEST")).unwrap();
    fs::write(to.join("n1/MANIFEST"), "m".repeat(COMPARED_BYTES + 6) + "x").unwrap();
    assert!(compare(&from.join("n1/MANIFEST"), &to.join("n1/MANIFEST")).is_err());
}
