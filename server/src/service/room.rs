//! A server whose disk is full when it starts: it answers queries at once, and writes when there is room.
//!
//! A writer needs a little room for its lock and its log before it can accept anything. Until there is some, the
//! database is only read: samples are refused with a message that says why, and nothing of the node is collected. The
//! server tests for room by opening the database for writing. The database that this returns is served from then on, at
//! the same address, with the same token.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use telem_engine::{Db, Error, Options};

use super::{Ready, ServiceError, ServiceOptions, ServiceSource, listen_from, open, run_with, serve};
use crate::token::Token;

/// How often it is tried whether there is room.
pub(crate) const TRY_EVERY: Duration = Duration::from_secs(2);
/// With less than this free, opening a database is not tried: it may have much to read before it fails.
pub(crate) const FREE_BYTES_MIN: u64 = 64 << 10;
/// How often it is tried in any case: a quota, or the limit of a file's size, shows in no figure of the disk.
pub(crate) const TRY_ANYWAY_EVERY: u32 = 15;

/// As [`super::run`]. `ready` is called again once there is room.
///
/// # Errors
/// As [`super::run`]; of a full disk where there is no database to read, or the disk fails otherwise.
pub async fn run_even_when_full(
    options: ServiceOptions,
    mut ready: impl FnMut(&Ready),
    stop: impl Future<Output = ()>,
) -> Result<(), ServiceError> {
    let tcp = listen_from(options.listen, options.first_port).await?;
    let error = match open(&options).await {
        Ok(db) => return run_with(db, tcp, options, ready, stop).await,
        Err(ServiceError::Engine(error)) if error.is_out_of_room() => error,
        Err(error) => return Err(error),
    };
    let Ok(found) = open_read_only(&options).await else { return Err(error.into()) };
    tracing::error!(
        "{error}. Until there is room, questions are answered from what is stored, and samples are refused; nothing is \
         collected"
    );
    let token = match &options.token {
        Some(token) => token.clone(),
        None => Token::random()?,
    };
    let options = ServiceOptions { token: Some(token), ..options };
    // Held, so that nobody else gets the port, and clients that come between the two wait.
    let held = tcp.into_std().map_err(ServiceError::Address)?;
    let listener = || {
        let again = held.try_clone().and_then(tokio::net::TcpListener::from_std);
        again.map_err(ServiceError::Address)
    };
    tokio::pin!(stop);
    let mut opened = None;
    let until_room = async {
        tokio::select! {
            () = &mut stop => {}
            found = room(&options) => opened = Some(found),
        }
    };
    let reading = ServiceOptions { source: ServiceSource::NoRoom(found.clone()), head: None, ..options.clone() };
    serve(reading, listener()?, found, None, &mut ready, until_room).await?;
    match opened {
        None => Ok(()),
        Some(db) => {
            let db = db?;
            tracing::warn!("there is room again on the disk of {}: samples are taken", options.data.display());
            run_with(db, listener()?, options, ready, stop).await
        }
    }
}

async fn open_read_only(options: &ServiceOptions) -> telem_engine::Result<Db> {
    let (data, engine) = (options.data.clone(), options.engine.clone());
    blocking(move || Db::open_read_only(&data, engine)).await
}

/// The database, once it can be opened to be written, or fails otherwise than for want of room.
async fn room(options: &ServiceOptions) -> telem_engine::Result<Db> {
    let mut tries: u32 = 0;
    loop {
        tokio::time::sleep(TRY_EVERY).await;
        tries = tries.wrapping_add(1);
        let (data, engine) = (options.data.clone(), options.engine.clone());
        let anyway = tries.is_multiple_of(TRY_ANYWAY_EVERY);
        match blocking(move || open_with_room(&data, engine, anyway)).await {
            Ok(None) => {}
            Ok(Some(db)) => return Ok(db),
            Err(error) if error.is_out_of_room() => tracing::debug!(%error, "there is no room yet"),
            Err(error) => return Err(error),
        }
    }
}

fn open_with_room(data: &Path, engine: Options, anyway: bool) -> telem_engine::Result<Option<Db>> {
    let has_room = rustix::fs::statvfs(data).is_ok_and(|disk| {
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        free >= FREE_BYTES_MIN
    });
    if has_room || anyway { Db::open(data, engine).map(Some) } else { Ok(None) }
}

async fn blocking<T: Send + 'static>(
    open: impl FnOnce() -> telem_engine::Result<T> + Send + 'static,
) -> telem_engine::Result<T> {
    let opened = tokio::task::spawn_blocking(open).await;
    opened.map_err(|panic| Error::Internal { what: format!("opening the database: {panic}") })?
}
