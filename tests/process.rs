//! The real binary as a child process, and a small HTTP client that shares no code with the server's.
//!
//! Every server listens on a port that the system chose. Tests wait for the line that it prints, and kill it by its
//! process id when they end, however they end.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::Value as Json;
use telem_engine::{Clock, SystemClock};
use tempfile::TempDir;

/// Longest that anything in these tests is waited for; it only bounds a failure.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Longest that an end may take that telem promises within five seconds: its longer deadlines are half a minute and more,
/// and the rest is what a machine may take that is very busy.
pub const SOON: Duration = Duration::from_secs(20);

/// Ports that the system gives nobody who asks for any.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A port of this machine that is free, and that nobody gets who asks for any: for a server that is started again where
/// it was, or that is told where to listen.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let width = PORTS.end - PORTS.start;
    // Processes that were started together do not try the same.
    let mixed = u16::try_from(std::process::id().wrapping_mul(101) % u32::from(width)).unwrap();
    loop {
        let port = PORTS.start + (mixed + NEXT.fetch_add(1, Ordering::Relaxed)) % width;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A `telem` command with `args`.
pub fn telem<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_telem"));
    command.args(args).stdin(Stdio::null());
    quiet(&mut command);
    command
}

/// Takes from the environment whatever says something to telem.
pub fn quiet(command: &mut Command) {
    const OF_SCHEDULERS: [&str; 8] = ["SLURM", "PBS_", "LSB_", "FLUX_", "PALS_", "OMPI_", "PMI", "MPI_LOCAL"];
    for (name, _) in std::env::vars_os() {
        let starts = ["TELEM_", "XDG_RUNTIME_DIR"].into_iter().chain(OF_SCHEDULERS);
        if starts.into_iter().any(|start| name.to_string_lossy().starts_with(start)) {
            command.env_remove(name);
        }
    }
    command.env("RUST_BACKTRACE", "0");
}

/// A running `telem serve` or `telem replay`.
pub struct Server {
    child: Child,
    lines: Receiver<String>,
    /// Every line that was printed so far, stdout and stderr together.
    pub printed: Vec<String>,
    pub address: String,
    /// Holds its Unix socket.
    _runtime_dir: TempDir,
}

impl Server {
    /// `telem serve --level 1 --data DIR --listen 127.0.0.1:0` and `more`.
    pub fn serve(data: &Path, more: &[&str]) -> Server {
        let mut command = telem(["serve", "--level", "1", "--listen", "127.0.0.1:0", "--data"]);
        command.arg(data).args(more);
        Self::start(command)
    }

    /// `telem replay DIRS --listen 127.0.0.1:0` and `more`.
    pub fn replay<S: AsRef<OsStr>>(dirs: impl IntoIterator<Item = S>, more: &[&str]) -> Server {
        let mut command = telem(["replay", "--listen", "127.0.0.1:0"]);
        command.args(more).args(dirs);
        Self::start(command)
    }

    /// Starts `command` and waits for the line that says where it listens.
    pub fn start(mut command: Command) -> Server {
        quiet(&mut command);
        let owner_only = std::fs::Permissions::from_mode(0o700);
        let runtime_dir = tempfile::Builder::new().permissions(owner_only).tempdir().unwrap();
        command.env("XDG_RUNTIME_DIR", runtime_dir.path());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (send, lines) = channel();
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for stream in streams {
            let send = send.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let _ = send.send(line);
                }
            });
        }
        let mut server =
            Server { child, lines, printed: Vec::new(), address: String::new(), _runtime_dir: runtime_dir };
        let line = server.wait_for_line("listening on");
        let url = line.split_whitespace().find_map(|word| word.split("://").nth(1)).unwrap_or_else(|| {
            panic!("no address in '{line}'");
        });
        server.address = url.trim_end_matches(['/', ',', '.', ';']).to_owned();
        server
    }

    /// The first line, printed already or soon, that holds `text`.
    pub fn wait_for_line(&mut self, text: &str) -> String {
        if let Some(line) = self.printed.iter().find(|line| line.contains(text)) {
            return line.clone();
        }
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.printed.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {
                    panic!("telem never printed '{text}', but:\n{}", self.printed.join("\n"))
                }
            }
        }
    }

    pub fn connect(&self) -> Connection<TcpStream> {
        Connection::tcp(&self.address)
    }

    pub fn get(&self, path: &str) -> Response {
        self.connect().request("GET", path, &[], b"").unwrap()
    }

    pub fn post(&self, path: &str, body: &Json) -> Response {
        self.connect().request("POST", path, &[], body.to_string().as_bytes()).unwrap()
    }

    /// The rows that `/api/sql` answers.
    pub fn sql(&self, text: &str) -> Response {
        self.connect().request("POST", "/api/sql", &[("Content-Type", "text/plain")], text.as_bytes()).unwrap()
    }

    /// Its connection file.
    pub fn connection_file(&mut self) -> PathBuf {
        let line = self.wait_for_line("connection file ");
        line.split_once("connection file ").map(|(_, path)| path.trim().into()).unwrap()
    }

    /// Its Unix socket.
    pub fn socket(&mut self) -> PathBuf {
        self.wait_for_line("socket ").split_once("socket ").map(|(_, path)| path.trim().into()).unwrap()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// What it ends with by itself; also everything it printed.
    pub fn ended(mut self) -> (ExitStatus, Vec<String>) {
        let status = wait(&mut self.child);
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.printed.push(line);
        }
        (status, std::mem::take(&mut self.printed))
    }

    /// SIGTERM, and what it ends with; also everything it printed.
    pub fn terminate(self) -> (ExitStatus, Vec<String>) {
        self.signal(rustix::process::Signal::TERM);
        self.ended()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for `child` to end, kills it if it takes too long.
fn wait(child: &mut Child) -> ExitStatus {
    let mut status = None;
    poll("a process to end", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// Asks `happened` again and again; for what nothing announces.
pub fn poll(what: &str, mut happened: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !happened() {
        assert!(clock.monotonic() < PATIENCE, "waited {PATIENCE:?} in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// What the server answered.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; null if it is none.
    pub fn json(&self) -> Json {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The answer, which must have had this status.
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }
}

/// One keep-alive connection.
pub struct Connection<S: Read + Write> {
    stream: BufReader<S>,
}

impl Connection<TcpStream> {
    pub fn tcp(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream: BufReader::new(stream) }
    }
}

impl Connection<UnixStream> {
    pub fn unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream: BufReader::new(stream) }
    }
}

impl<S: Read + Write> Connection<S> {
    /// One request and its answer.
    ///
    /// # Errors
    /// What the connection says, also when it ends in the middle of an answer.
    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<Response> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nContent-Length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| *name == "Host") {
            head.push_str("Host: localhost\r\n");
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let stream = self.stream.get_mut();
        // A server may answer and close before it has read a body that it refuses.
        let sent =
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).and_then(|()| stream.flush());
        self.answer(method == "HEAD").map_err(|error| sent.err().unwrap_or(error))
    }

    fn answer(&mut self, no_body: bool) -> std::io::Result<Response> {
        let status_line = self.line()?;
        let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| std::io::Error::other(format!("no status in '{status_line}'")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut response = Response { status, headers, body: Vec::new() };
        if no_body || status == 204 {
            return Ok(response);
        }
        if response.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            loop {
                let line = self.line()?;
                let bytes = usize::from_str_radix(line.split(';').next().unwrap().trim(), 16)
                    .map_err(|_| std::io::Error::other(format!("no chunk length in '{line}'")))?;
                let mut chunk = vec![0; bytes + 2];
                self.stream.read_exact(&mut chunk)?;
                if bytes == 0 {
                    return Ok(response);
                }
                response.body.extend_from_slice(&chunk[..bytes]);
            }
        }
        match response.header("content-length").map(|length| length.parse::<usize>().unwrap()) {
            Some(bytes) => {
                response.body.resize(bytes, 0);
                self.stream.read_exact(&mut response.body)?;
            }
            None => {
                self.stream.read_to_end(&mut response.body)?;
            }
        }
        Ok(response)
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

pub fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}
