//! The connection file is whole, private, and removed with its server.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn connection(pid: u32) -> Connection {
    Connection {
        url: "http://127.0.0.1:4242".to_owned(),
        socket: Some("/run/user/1000/0123abcd.sock".into()),
        token: "secret".to_owned(),
        pid,
        job: "local".to_owned(),
        node: "n1".to_owned(),
        level: 2,
        data: "/data".into(),
        certificate: None,
    }
}

#[test]
fn a_connection_file_is_readable_by_its_user_only_and_goes_with_its_server() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    fs::write(&path, "what a killed server left").unwrap();
    let file = connection(7).publish(&path).unwrap();
    assert_eq!(Connection::read(&path).unwrap(), connection(7));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    drop(file);
    assert!(!path.exists());
}

#[test]
fn the_file_of_a_successor_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let first = connection(7).publish(&path).unwrap();
    let second = connection(8).publish(&path).unwrap();
    drop(first);
    assert_eq!(Connection::read(&path).unwrap().pid, 8);
    drop(second);
}
