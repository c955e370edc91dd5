//! Nodes within this process, reached through the same protocol over pipes in memory: for trials, tests and benchmarks
//! of many nodes without sockets.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Request;
use http::header::AUTHORIZATION;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tower::Service;
use url::Url;

use super::net::{Dial, NodeConnection};
use super::worker::WorkerService;

/// Bytes on their way in one direction of a pipe.
const PIPE_BYTES: usize = 1 << 20;

/// Reaches the workers that were put at addresses; as at a real node, every request needs the token. Clones share them.
#[derive(Clone)]
pub struct Inside {
    token: Arc<str>,
    workers: Arc<RwLock<BTreeMap<Url, WorkerService>>>,
}

impl Inside {
    /// Requests with `token` are let in.
    pub fn new(token: &str) -> Self {
        Self { token: Arc::from(token), workers: Arc::default() }
    }

    /// Requests to this address go to that worker.
    pub fn put(&self, url: Url, worker: WorkerService) {
        self.workers.write().unwrap_or_else(PoisonError::into_inner).insert(url, worker);
    }

    /// The address no longer answers. Open connections stay open.
    pub fn take(&self, url: &Url) {
        self.workers.write().unwrap_or_else(PoisonError::into_inner).remove(url);
    }
}

impl fmt::Debug for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workers = self.workers.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Inside").field("workers", &workers.len()).finish()
    }
}

impl Dial for Inside {
    fn dial(&self, url: &Url) -> BoxFuture<'static, io::Result<Box<dyn NodeConnection>>> {
        let worker = self.workers.read().unwrap_or_else(PoisonError::into_inner).get(url).cloned();
        let expected = format!("Bearer {}", self.token);
        async move {
            let Some(worker) = worker else { return Err(io::ErrorKind::ConnectionRefused.into()) };
            let guarded = tower::service_fn(move |request: Request<_>| {
                let given = request.headers().get(AUTHORIZATION);
                let is_let_in = given.is_some_and(|given| given.as_bytes() == expected.as_bytes());
                let mut worker = worker.clone();
                async move {
                    match is_let_in {
                        true => worker.call(request).await,
                        false => Ok(tonic::Status::unauthenticated("no token, or a wrong one").into_http()),
                    }
                }
            });
            let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
            tokio::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                let served = server.serve_connection(TokioIo::new(theirs), TowerToHyperService::new(guarded)).await;
                if let Err(error) = served {
                    tracing::debug!(error, "a connection inside of the process broke");
                }
            });
            Ok(Box::new(ours) as Box<dyn NodeConnection>)
        }
        .boxed()
    }
}
