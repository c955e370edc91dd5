//! `telem open`: the address of the page of a running telem, with the token.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use telem_engine::Options;
use telem_engine::lock::{self, LockTrace};

use super::{CliFailure, ls};
use crate::config;
use crate::connection::{Connection, FILE_NAME};
use crate::net::socket;
use crate::shell::quoted;

/// What opens an address, the first that there is.
const OPENERS: [&str; 2] = ["xdg-open", "open"];

/// Print the address of a running telem's page, with its token
///
/// The token stands behind a #, which browsers keep to themselves: the page takes it out of the address, and sends it
/// with its questions. Without a name the connection file is that of TELEM_CONNECTION, which a job has. An address
/// whose token is not known is printed as it is. A connection file that a killed telem left is an error.
#[derive(Debug, Args)]
#[command(after_help = SHORT_EXAMPLES, after_long_help = EXAMPLES)]
pub struct OpenArgs {
    /// A connection file, a directory that has one, or http://HOST:PORT
    #[arg(value_name = "FILE|DIR|URL")]
    named: Option<String>,
    /// Open it in a browser, too
    #[arg(long)]
    browser: bool,
}

const SHORT_EXAMPLES: &str = "\
Examples:
  telem open ./trial
  telem open http://localhost:4242 --browser";

const EXAMPLES: &str = "\
Examples:
  telem open ./trial                           # the data directory of `telem serve`
  telem open http://127.0.0.1:4242             # with the token of TELEM_TOKEN, if there is one
  telem open http://localhost:4242 --browser   # behind a tunnel

Environment:
  TELEM_CONNECTION   the connection file, if none is named
  TELEM_TOKEN        the token of an address";

/// # Errors
/// Failed when there is no connection file, or no browser.
pub fn run(args: &OpenArgs) -> Result<(), CliFailure> {
    let link = link(args.named.as_deref(), config::environment)?;
    writeln!(io::stdout(), "{link}")?;
    if args.browser { open(&link) } else { Ok(()) }
}

fn link(named: Option<&str>, environment: impl Fn(&str) -> Option<String>) -> Result<String, CliFailure> {
    let of_file = environment("TELEM_CONNECTION").map(PathBuf::from);
    match named {
        Some(url) if url.contains("://") => {
            let url = url.trim_end_matches('/');
            let same = of_file.and_then(|file| Connection::read(&file).ok()).filter(|known| known.url == url);
            let token = environment("TELEM_TOKEN").or(same.map(|known| known.token));
            Ok(with_token(url, token.as_deref()))
        }
        Some(path) => of_connection(Path::new(path)),
        None => match of_file {
            Some(file) => of_connection(&file),
            None => Err(CliFailure::Usage(
                "nothing says which telem: name a connection file, a data directory or http://HOST:PORT; inside of a \
                 job TELEM_CONNECTION does"
                    .to_owned(),
            )),
        },
    }
}

fn of_connection(path: &Path) -> Result<String, CliFailure> {
    let file = if path.is_dir() { path.join(FILE_NAME) } else { path.to_path_buf() };
    let connection = Connection::read(&file).map_err(|error| {
        CliFailure::Failed(format!(
            "cannot read the connection file {}: {error}; it is there while a telem runs, which prints its place",
            file.display()
        ))
    })?;
    match gone(&file, &connection) {
        Some(why) => Err(CliFailure::Failed(why)),
        None => Ok(with_token(&connection.url, Some(&connection.token))),
    }
}

/// That the server which left this file is dead, and what to do. `None` where it lives, or may: of one on another host
/// only a person knows.
fn gone(file: &Path, connection: &Connection) -> Option<String> {
    if connection.socket.as_deref().is_some_and(socket::is_served) {
        return None;
    }
    // The database may have been moved since, together with the file.
    let beside = file.parent().filter(|dir| ls::is_database(dir).unwrap_or(false));
    let data = beside.unwrap_or(&connection.data);
    let Options { disk, machine, .. } = Options::default();
    let owner = match lock::trace(data, &*disk, &*machine).ok()? {
        LockTrace::Held => return None,
        LockTrace::Left(owner) => owner.to_string(),
        LockTrace::Free => {
            let is_here = config::node(None, &config::host_name()).is_ok_and(|here| here == connection.node);
            connection.socket.as_ref().filter(|_| is_here)?;
            format!("process {} on {}", connection.pid, connection.node)
        }
    };
    let advice = match ls::is_database(data) {
        Ok(true) => format!("`telem replay {}` shows what it stored", quoted(&data.to_string_lossy())),
        _ => "`telem ls` lists saved runs, and `telem replay DIR` shows one".to_owned(),
    };
    Some(format!("the telem of {} is gone ({owner}) and did not end by itself; {advice}", file.display()))
}

/// `/#token=...`: what is behind the # is not sent.
fn with_token(url: &str, token: Option<&str>) -> String {
    let token: Option<String> = token.map(|token| url::form_urlencoded::byte_serialize(token.as_bytes()).collect());
    token.map_or_else(|| format!("{url}/"), |token| format!("{url}/#token={token}"))
}

fn open(link: &str) -> Result<(), CliFailure> {
    let start = |opener: &&str| {
        let status = Command::new(opener).arg(link).stdin(Stdio::null()).stdout(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    match OPENERS.iter().any(start) {
        true => Ok(()),
        false => Err(CliFailure::Failed(format!(
            "no browser could be started (tried {}); open the printed address in one",
            OPENERS.join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::link;
    use crate::connection::Connection;

    fn connection() -> Connection {
        Connection {
            url: "http://127.0.0.1:4242".to_owned(),
            socket: None,
            token: "abc".to_owned(),
            pid: 1,
            job: "j".to_owned(),
            node: "n".to_owned(),
            level: 1,
            data: "/d".into(),
            certificate: None,
        }
    }

    #[test]
    fn the_link_has_the_token_behind_a_hash() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("connection.json");
        let _held = connection().publish(&file).unwrap();
        let (dir, file) = (dir.path().to_str().unwrap(), file.to_str().unwrap().to_owned());
        let nothing = |_: &str| None;
        for named in [dir, &file] {
            assert_eq!(link(Some(named), nothing).unwrap(), "http://127.0.0.1:4242/#token=abc");
        }
        let in_a_job = |name: &str| (name == "TELEM_CONNECTION").then(|| file.clone());
        assert_eq!(link(None, in_a_job).unwrap(), "http://127.0.0.1:4242/#token=abc");
        assert_eq!(link(Some("http://127.0.0.1:4242"), in_a_job).unwrap(), "http://127.0.0.1:4242/#token=abc");
        assert_eq!(link(Some("http://other:4242/"), in_a_job).unwrap(), "http://other:4242/");
        let told = |name: &str| (name == "TELEM_TOKEN").then(|| "a b".to_owned());
        assert_eq!(link(Some("http://localhost:1"), told).unwrap(), "http://localhost:1/#token=a+b");
        assert!(link(None, nothing).unwrap_err().into_message().contains("TELEM_CONNECTION"));
    }
}
