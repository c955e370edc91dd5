//! What a command and its user learn about a service that is ready.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::config;
use crate::job::{Places, describe, mpi_profile};
use crate::service::Ready;

/// The environment of the command, so that its processes find the service, and know where the job is saved, if it is.
pub fn environment(ready: &Ready, start: &describe::Start, places: &Places) -> Vec<(String, OsString)> {
    let saved = places.saved_below();
    let told: [(&str, OsString); 6] = [
        ("TELEM_CONNECTION", absolute(&ready.connection_file).into()),
        ("TELEM_SOCKET", absolute(&ready.socket).into()),
        ("TELEM_URL", ready.url.clone().into()),
        ("TELEM_LEVEL", start.level.to_string().into()),
        ("TELEM_JOB", start.id.clone().into()),
        // Empty, and not left out: what a job around this one says of itself is not true of this one.
        ("TELEM_SAVED", saved.map(absolute).unwrap_or_default().into()),
    ];
    let own = told.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(of_proxy(ready, start));
    let dragon = ready.dragon.iter().flat_map(|dragon| dragon.environment(start.level, config::environment));
    let preloaded = std::env::var_os("LD_PRELOAD");
    let mpi = places.mpi_library.iter().map(|library| mpi_profile::environment(library, preloaded.as_deref()));
    own.chain(dragon).chain(mpi).collect()
}

/// Programs with Metric Proxy's library find the socket, too. A name that the user gave the job stays.
fn of_proxy(ready: &Ready, start: &describe::Start) -> impl Iterator<Item = (String, OsString)> {
    let is_named = config::environment("PROXY_JOB_ID").is_some();
    let name = (!is_named).then(|| ("PROXY_JOB_ID".to_owned(), start.id.clone().into()));
    let path = ("PROXY_PATH".to_owned(), absolute(&ready.socket).into());
    [path, ("PROXY_PERIOD".to_owned(), "1000".into())].into_iter().chain(name)
}

/// The command may go elsewhere.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

pub fn greeting(ready: &Ready, job: &str) -> String {
    let recovery = ready.recovery.as_ref().map(|text| format!(" · recovered: {text}")).unwrap_or_default();
    let (url, data) = (&ready.url, ready.data.display());
    format!("listening on {url} · page {url}/ · job {job} · live data in {data}{recovery}")
}
