//! Other users of the same machine: connections that they open neither keep the owner out nor cost much.
//!
//! A stranger is a shell of another user, which only root can start.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;

use crate::process::{Connection, PATIENCE, Server};

const STRANGER: &str = "65533";

/// A shell of another user, which ends with this.
struct Shell(Child);

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Shell {
    /// One that does what `script` says, waits until it prints a line, and is left to go on. `None` unless we are root.
    fn start(script: &str) -> Option<Shell> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can become another user");
            return None;
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid", STRANGER, "--regid", STRANGER, "--clear-groups", "bash", "-c", script]);
        let mut shell = Shell(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        let mut said = BufReader::new(shell.0.stdout.take().unwrap());
        let (tell, told) = channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = tell.send(said.read_line(&mut line).map(|_| line));
        });
        let line = told.recv_timeout(PATIENCE).expect("the shell says that it is ready").unwrap();
        assert_eq!(line.trim(), "ready");
        Some(shell)
    }
}

fn host_and_port(server: &Server) -> (String, String) {
    let (host, port) = server.address.rsplit_once(':').unwrap();
    (host.to_owned(), port.to_owned())
}

/// What a client of our own user is answered.
fn status(server: &Server) -> u16 {
    Connection::tcp(&server.address).request("GET", "/api/version", &[], b"").unwrap().status
}

#[test]
fn what_a_stranger_opens_does_not_keep_the_owner_out() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(&dir.path().join("db"), &["--connections-max", "64"]);
    let (host, port) = host_and_port(&server);
    // More than there are places, then ever more of them as fast as they come.
    let flood = format!(
        "for n in {{1..100}}; do exec {{held}}<>/dev/tcp/{host}/{port}; done; echo ready; \
         while exec 3<>/dev/tcp/{host}/{port}; do :; done 2>/dev/null; read -r"
    );
    let Some(_stranger) = Shell::start(&flood) else { return };
    for asked in 0..50 {
        assert_eq!(status(&server), 200, "request {asked}");
    }
    let mut held: Vec<TcpStream> = Vec::new();
    for _ in 0..30 {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.write_all(b"GET /api/version HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).unwrap();
        assert_eq!(&begin, b"HTTP/1.1 200");
        held.push(stream);
    }
}

#[test]
fn one_stranger_leaves_room_for_another_with_the_token() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::serve(&dir.path().join("db"), &["--connections-max", "64"]);
    let file: serde_json::Value = serde_json::from_slice(&std::fs::read(server.connection_file()).unwrap()).unwrap();
    let token = file["token"].as_str().unwrap().to_owned();
    let (host, port) = host_and_port(&server);
    let hold = format!("for n in {{1..100}}; do exec {{held}}<>/dev/tcp/{host}/{port}; done; echo ready; read -r");
    let Some(_stranger) = Shell::start(&hold) else { return };
    let ask = format!(
        "exec 3<>/dev/tcp/{host}/{port}; printf 'GET /api/version HTTP/1.1\\r\\nHost: localhost\\r\\n\
         Authorization: Bearer {token}\\r\\nConnection: close\\r\\n\\r\\n' >&3; \
         read -r protocol status reason <&3; [ \"$status\" = 200 ] && echo ready || echo \"$status\""
    );
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65532", "--regid", "65532", "--clear-groups", "bash", "-c", &ask]);
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert_eq!(said.trim(), "ready");
}

/// Bytes that a process has read of files.
fn bytes_read(id: u32) -> u64 {
    let counts = std::fs::read_to_string(format!("/proc/{id}/io")).unwrap();
    let line = counts.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
    line.parse().unwrap()
}

/// Where the kernel answers over netlink, nothing is read that grows with the sockets of the machine.
#[test]
fn a_connection_costs_the_same_however_many_others_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(&dir.path().join("db"), &[]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let idle: Vec<_> = (0..200)
        .map(|_| (TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener.accept().unwrap()))
        .collect();
    assert_eq!(status(&server), 200);
    let before = bytes_read(server.id());
    for _ in 0..50 {
        assert_eq!(status(&server), 200);
    }
    let read = bytes_read(server.id()) - before;
    // The table has 150 bytes for each of 400 sockets at least, and was read for each connection.
    assert!(read < 50 * 150 * 400, "{read} bytes were read for 50 connections");
    drop(idle);
}
