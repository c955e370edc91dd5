//! `telem grafana`: writes everything that a Grafana needs to show telem into a directory.
//!
//! The dashboards and the provisioning are those of the source folder `grafana/`, and are part of the binary. [`files`]
//! holds the contents; this file chooses the place and prints the next steps.

mod files;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use axum::http::Uri;
use chrono::{DateTime, SecondsFormat};
use clap::Args;
use telem_engine::disk::OsDisk;
use telem_engine::{Db, Timestamp};

use self::files::DashboardOptions;
pub use self::files::{DASHBOARDS, DashboardRange};
use super::CliFailure;
use super::source::{StrictArg, open_read_only};
use crate::connection::Connection;
use crate::shell::quoted;
use crate::token::Token;

/// A file with a token is read up to here.
const TOKEN_FILE_BYTES_MAX: u64 = 64 << 10;
/// The Grafana that the printed commands for containers start: one in which everything works, see grafana/README.md.
const IMAGE: &str = "grafana/grafana:12.1.0";

/// Write a data source and dashboards for Grafana
///
/// It prints how to start a Grafana with them. There are four dashboards: the nodes of a job, custom metrics, MPI,
/// and telem itself. They work for a running job and for a saved one. Files that telem wrote are overwritten, other
/// files never.
#[derive(Debug, Args)]
#[command(after_help = SHORT_EXAMPLES, after_long_help = EXAMPLES)]
pub struct GrafanaArgs {
    /// Directory to write to; created if it does not exist
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Saved databases; the dashboards open at their time range
    #[arg(long, value_name = "SAVED", num_args = 1..)]
    db: Vec<PathBuf>,
    /// Address at which Grafana finds telem
    ///
    /// The address of a running job, of `telem serve`, or of `telem replay`.
    #[arg(long, value_name = "URL", default_value = "http://localhost:4242", value_parser = url)]
    url: String,
    /// File with telem's token
    ///
    /// A connection file, or a file with only the token. The data source is then readable only by you.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

const SHORT_EXAMPLES: &str = "\
Examples:
  telem grafana ./grafana
  telem grafana ./grafana --db ./telem-4711     # at the time of the saved job";

const EXAMPLES: &str = "\
Examples:
  telem grafana ./grafana
  telem grafana ./grafana --db ./telem-4711     # opens at the time of the saved job
  telem grafana ./grafana --url http://localhost:4300 --token-file ./data/connection.json";

/// # Errors
/// Usage for a token file that holds none; Failed when a file there is not ours or cannot be written.
pub fn run(args: GrafanaArgs) -> Result<(), CliFailure> {
    let dir = std::path::absolute(&args.dir).map_err(CliFailure::failed)?;
    // Grafana's YAML and the printed commands are text.
    if dir.to_str().is_none_or(|text| text.chars().any(char::is_control)) {
        return Err(CliFailure::Usage(format!(
            "{} is not a name that a command line can hold; choose another",
            dir.display()
        )));
    }
    if Db::stands_in(&dir, &OsDisk).map_err(CliFailure::failed)? {
        return Err(CliFailure::Usage(format!(
            "{0} is a database; name another directory for Grafana's files, and this one behind --db: \
             telem grafana ./grafana --db {0}",
            args.dir.display()
        )));
    }
    let shown = if args.db.is_empty() { None } else { shown(&args.db)? };
    let wanted = DashboardOptions { url: args.url, token: args.token_file.as_deref().map(token).transpose()?, shown };
    let files = files::files(&dir, &wanted).map_err(CliFailure::failed)?;
    files::write(&dir, &files).map_err(CliFailure::failed)?;
    let mut out = io::stdout().lock();
    out.write_all(report(&dir, &args.db, &wanted).as_bytes())?;
    Ok(out.flush()?)
}

/// The time range of all that is saved in `dirs`; `None` when that is nothing.
fn shown(dirs: &[PathBuf]) -> Result<Option<DashboardRange>, CliFailure> {
    let bounds = open_read_only(dirs, StrictArg::default())?.db.info().map_err(CliFailure::failed)?.time_bounds;
    if bounds.is_none() {
        eprintln!("warning: nothing is saved there; the dashboards show the last 15 minutes");
    }
    Ok(bounds.and_then(|(first, last)| DashboardRange::around(first, last)))
}

/// The token in `path`.
fn token(path: &Path) -> Result<Token, CliFailure> {
    let text = files::read(path, TOKEN_FILE_BYTES_MAX).map_err(CliFailure::failed)?;
    let found = match serde_json::from_str::<Connection>(&text) {
        Ok(connection) => connection.token,
        Err(_) => text.trim().to_owned(),
    };
    Token::chosen(&found).map_err(|_| {
        CliFailure::Usage(format!(
            "{} holds no token; expected a connection file, or at least 16 visible ASCII characters",
            path.display()
        ))
    })
}

pub fn url(text: &str) -> Result<String, String> {
    let wrong = |why: &str| format!("'{text}' is not a URL of a telem ({why}); write http://HOST:PORT");
    let uri: Uri = text.parse().map_err(|error| wrong(&format!("{error}")))?;
    let authority = uri.authority().ok_or_else(|| wrong("no host"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || authority.host().is_empty() {
        return Err(wrong("expected http:// or https:// and a host"));
    }
    // It is in a file that every user may read.
    if authority.as_str().contains('@') {
        return Err(wrong("a password does not belong in it; see --token-file"));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// What was written and what to do with it.
fn report(dir: &Path, saved: &[PathBuf], wanted: &DashboardOptions) -> String {
    let at = |rest: &str| quoted(&dir.join(rest).to_string_lossy());
    let mut text = format!(
        "wrote {}: a data source that asks {}, and the dashboards {}\n",
        dir.display(),
        wanted.url,
        files::DASHBOARDS.map(|(uid, _)| uid).join(", ")
    );
    if wanted.token.is_some() {
        text.push_str("the data source holds the token: it is readable by you alone, and so must Grafana run as you\n");
    }
    if !saved.is_empty() {
        let saved: Vec<String> = saved.iter().map(|dir| quoted(&dir.to_string_lossy())).collect();
        let listen = wanted.url.split_once("://").map_or("", |(_, rest)| rest);
        let listen = listen.strip_prefix("localhost").map(|port| format!(" --listen {port}")).unwrap_or_default();
        let listen = if listen == " --listen :4242" || listen == " --listen " { String::new() } else { listen };
        // A string takes whatever is written to it.
        writeln!(text, "\nserve the saved data:\n  telem replay {}{listen}", saved.join(" ")).unwrap_or_default();
    }
    let own = [
        ("GF_PATHS_PROVISIONING", at("provisioning")),
        ("GF_PATHS_DATA", at("data")),
        ("GF_PATHS_LOGS", at("data/log")),
        ("GF_PATHS_PLUGINS", at("data/plugins")),
        ("GF_SERVER_HTTP_ADDR", "127.0.0.1".to_owned()),
        ("GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH", at("dashboards/telem-node.json")),
    ];
    let each = |between: &str| own.each_ref().map(|(name, value)| format!("{name}={value}")).join(between);
    let whole = quoted(&dir.to_string_lossy());
    let bind = quoted(&format!("{0}:{0}", dir.display()));
    writeln!(
        text,
        "\nstart Grafana with them (10.4 to 12), whichever of these you have:\n  \
         {} \\\n    grafana server --homepath /usr/share/grafana\n  \
         apptainer run --bind {whole} \\\n    --env {} \\\n    docker://{IMAGE}\n  \
         docker run --rm --network host --user \"$(id -u)\" --volume {bind} \\\n    --env {} \\\n    {IMAGE}",
        each(" \\\n  "),
        each(" \\\n    --env "),
        each(" \\\n    --env "),
    )
    .unwrap_or_default();
    text.push_str(
        "Grafana must run as you: telem answers other users of this machine only with a token.\n\
         A Grafana that runs already takes the files of provisioning/ into its own provisioning folder.\n",
    );
    let range = wanted.shown.as_ref().map(DashboardRange::in_a_link).unwrap_or_default();
    text.push_str(
        "\nthen open (the first login is admin, admin; change it, other users of this machine reach Grafana too):\n",
    );
    for (uid, _) in files::DASHBOARDS {
        writeln!(text, "  http://localhost:3000/d/{uid}{range}").unwrap_or_default();
    }
    text
}

/// RFC 3339 in milliseconds, as Grafana writes a time.
fn rfc3339(time: Timestamp) -> Option<String> {
    let time = DateTime::from_timestamp_millis(time.millis())?;
    Some(time.to_rfc3339_opts(SecondsFormat::Millis, true))
}
