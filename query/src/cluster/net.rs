//! Connections to nodes: one for each node, kept open and watched for signs of life; every wait has a limit.
//!
//! [`Channels`] returns a channel at once and connects when the channel is used. Only then is the query known, and with
//! it the meaning of a lost node: at the head it is recorded in the query's [`Attempt`]; on a node of the tree it is an
//! error that names it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest, GetWorkerInfoResponse,
    SetPlanRequest, WorkerChannel, WorkerToCoordinatorMsg,
};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::{timeout, timeout_at};
use tonic::body::Body;
use tonic::transport::Endpoint;
use tower::ServiceExt;
use url::Url;

use super::lost::reason::{reason, why};
use super::lost::{Attempt, Delivery, lost, lost_by};
use crate::error::crossing::Crossing;

/// An established connection.
pub trait NodeConnection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> NodeConnection for T {}

/// Makes connections to nodes: what knows of addresses and of TLS is not here.
pub trait Dial: fmt::Debug + Send + Sync + 'static {
    /// Not waited for longer than [`Wire::connect_timeout`].
    fn dial(&self, url: &Url) -> BoxFuture<'static, io::Result<Box<dyn NodeConnection>>>;
}

/// Plain TCP.
#[derive(Clone, Copy, Debug)]
pub struct DialTcp;

impl Dial for DialTcp {
    fn dial(&self, url: &Url) -> BoxFuture<'static, io::Result<Box<dyn NodeConnection>>> {
        let address = url.socket_addrs(|| None);
        async move {
            // A URL of a node has an address, not a name, so nothing is looked up.
            let stream = TcpStream::connect(&address?[..]).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn NodeConnection>)
        }
        .boxed()
    }
}

/// How nodes are reached.
#[derive(Clone)]
pub struct Wire {
    /// Sent as `Authorization: Bearer TOKEN`.
    pub token: String,
    pub dial: Arc<dyn Dial>,
    /// Longest that a connection may take to come about. 3 s.
    pub connect_timeout: Duration,
    /// Longest that a node may show no sign of life before it counts as lost. 5 s.
    pub silence_max: Duration,
}

impl Wire {
    /// The defaults.
    pub fn new(token: String, dial: Arc<dyn Dial>) -> Self {
        Self { token, dial, connect_timeout: Duration::from_secs(3), silence_max: Duration::from_secs(5) }
    }

    /// What lets us in: the value of a request's `Authorization`.
    ///
    /// # Errors
    /// When the token has characters that no header may have.
    fn authorization(&self) -> Result<HeaderValue> {
        let value = HeaderValue::try_from(format!("Bearer {}", self.token));
        let mut value =
            value.map_err(|_| DataFusionError::Configuration("the token is not a header's value".into()))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("dial", &self.dial).field("silence_max", &self.silence_max).finish_non_exhaustive()
    }
}

/// Connections that are open, by address. Clones share them.
#[derive(Clone)]
pub(super) struct Channels {
    wire: Wire,
    /// The runtime of connections: queries come and go, with their threads.
    home: Handle,
    open: Arc<Mutex<BTreeMap<Url, BoxCloneSyncChannel>>>,
}

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channels").field("wire", &self.wire).finish_non_exhaustive()
    }
}

impl Channels {
    pub fn new(wire: Wire, home: Handle) -> Self {
        Self { wire, home, open: Arc::default() }
    }

    /// Whether the node answers; why not, where it does not.
    pub async fn probe(&self, url: &Url) -> Result<(), String> {
        let answered = async { self.connect(url).await?.get_worker_info(GetWorkerInfoRequest {}).await };
        match timeout(self.wire.silence_max, answered).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(reason(&error)),
            Err(_) => Err(self.silent()),
        }
    }

    /// Whether there is a connection, as far as is known.
    pub fn has(&self, url: &Url) -> bool {
        self.open().contains_key(url)
    }

    /// Forgets the connection: the next question makes a new one.
    pub fn forget(&self, url: &Url) {
        self.open().remove(url);
    }

    async fn connect(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        let found = self.open().get(url).cloned();
        if let Some(channel) = found {
            return Ok(create_worker_client(channel));
        }
        let unreachable = |why: String| lost(url, &why);
        // The real address is the dialler's business; HTTP is spoken through whatever it gives.
        let origin =
            format!("http://{}:{}", url.host_str().unwrap_or("node"), url.port_or_known_default().unwrap_or(80));
        let endpoint = Endpoint::from_shared(origin).map_err(|error| unreachable(error.to_string()))?;
        let endpoint = endpoint
            .connect_timeout(self.wire.connect_timeout)
            .http2_keep_alive_interval(self.wire.silence_max / 2)
            .keep_alive_timeout(self.wire.silence_max / 2)
            .keep_alive_while_idle(false)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let (dial, url_, patience) = (Arc::clone(&self.wire.dial), url.clone(), self.wire.connect_timeout);
        let connector = tower::service_fn(move |_: Uri| {
            let dialled = dial.dial(&url_);
            async move {
                let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it does not answer");
                Ok::<_, io::Error>(TokioIo::new(timeout(patience, dialled).await.map_err(late)??))
            }
        });
        let connecting = self.home.spawn(async move { endpoint.connect_with_connector(connector).await });
        let channel = connecting.await.map_err(|_| unreachable("telem is shutting down".to_owned()))?;
        let channel = channel.map_err(|error| unreachable(why(&error)))?;
        // For every request, probes included.
        let authorization = self.wire.authorization()?;
        let channel = BoxCloneSyncChannel::new(channel.map_request(move |mut request: http::Request<Body>| {
            request.headers_mut().insert(http::header::AUTHORIZATION, authorization.clone());
            request.headers_mut().insert(NO_METRICS, HeaderValue::from_static("false"));
            request
        }));
        self.open().insert(url.clone(), channel.clone());
        Ok(create_worker_client(channel))
    }

    fn silent(&self) -> String {
        format!("it has not answered for {} s", self.wire.silence_max.as_secs_f64())
    }

    fn open(&self) -> std::sync::MutexGuard<'_, BTreeMap<Url, BoxCloneSyncChannel>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells a task not to collect metrics: they are not used, and would be most of what nodes send back.
const NO_METRICS: HeaderName = HeaderName::from_static("x-datafusion-distributed-config-distributed.collect_metrics");
/// Bytes that a node may send ahead of the reader.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

#[async_trait]
impl ChannelResolver for Channels {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        Ok(Box::new(Channel { url: url.clone(), channels: self.clone() }))
    }
}

struct Channel {
    url: Url,
    channels: Channels,
}

impl Channel {
    /// The attempt that this is part of, at the head; a node has none.
    fn attempt(task: &TaskContext) -> Option<Arc<Attempt>> {
        task.session_config().get_extension::<Attempt>()
    }

    /// What a failure of the node means: nothing more comes of it where the attempt notes it, else it is an error.
    fn failed(&self, attempt: Option<&Attempt>, error: DataFusionError) -> Result<()> {
        self.channels.forget(&self.url);
        match attempt {
            Some(_) if Crossing::is_refusal(&error) => Err(error),
            Some(attempt) => {
                attempt.lose_by(&self.url, &error);
                Ok(())
            }
            None => Err(lost_by(&self.url, error)),
        }
    }
}

#[async_trait]
impl WorkerChannel for Channel {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        request: SetPlanRequest,
        to_worker: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        task: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        let attempt = Self::attempt(task);
        let accepted = async {
            let mut channel = self.channels.connect(&self.url).await?;
            channel.coordinator_channel(headers, request, to_worker, metrics, task).await
        };
        // A busy node may take its time; one that is not there any more is found out by its connection.
        let accepted = match &attempt {
            Some(attempt) => timeout_at(attempt.due(), accepted).await.unwrap_or_else(|_| Err(self.late(attempt))),
            None => accepted.await,
        };
        match accepted {
            Err(error) => {
                self.failed(attempt.as_deref(), error)?;
                Ok(futures::stream::empty().boxed())
            }
            Ok(messages) => {
                let (url, channels) = (self.url.clone(), self.channels.clone());
                let watched = messages.filter_map(move |message| {
                    let kept = match (message, &attempt) {
                        (Err(error), Some(attempt)) if !Crossing::is_refusal(&error) => {
                            channels.forget(&url);
                            attempt.lose_by(&url, &error);
                            None
                        }
                        (Err(error), None) => Some(Err(lost_by(&url, error))),
                        (message, _) => Some(message),
                    };
                    futures::future::ready(kept)
                });
                Ok(watched.boxed())
            }
        }
    }

    async fn execute_task(
        &mut self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        task: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let attempt = Self::attempt(task);
        let streams = request.target_partition_end.saturating_sub(request.target_partition_start);
        let begun = async {
            let mut channel = self.channels.connect(&self.url).await?;
            channel.execute_task(headers, request, metrics, task).await
        };
        // What answers is the node's network side, which is never busy; its work comes in the streams.
        let begun = match &attempt {
            Some(attempt) => timeout_at(attempt.due(), begun).await.unwrap_or_else(|_| Err(self.late(attempt))),
            None => begun.await,
        };
        match begun {
            Err(error) => {
                self.failed(attempt.as_deref(), error)?;
                Ok((0..streams).map(|_| futures::stream::empty().boxed()).collect())
            }
            Ok(streams) => Ok(streams
                .into_iter()
                .map(|stream| match &attempt {
                    Some(attempt) => watched(stream, self.url.clone(), self.channels.clone(), Arc::clone(attempt)),
                    None => {
                        let url = self.url.clone();
                        stream.map(move |batch| batch.map_err(|error| lost_by(&url, error))).boxed()
                    }
                })
                .collect()),
        }
    }

    async fn get_worker_info(&mut self, request: GetWorkerInfoRequest) -> Result<GetWorkerInfoResponse> {
        self.channels.connect(&self.url).await?.get_worker_info(request).await
    }
}

impl Channel {
    fn late(&self, attempt: &Attempt) -> DataFusionError {
        lost(&self.url, &late(attempt))
    }
}

fn late(attempt: &Attempt) -> String {
    format!("it was not done after {:.1} s", attempt.due_after().as_secs_f64())
}

/// A stream at the head: one that fails, or is not done in time, ends and is noted, unless some of it was handed out.
fn watched(
    stream: BoxStream<'static, Result<RecordBatch>>,
    url: Url,
    channels: Channels,
    attempt: Arc<Attempt>,
) -> BoxStream<'static, Result<RecordBatch>> {
    struct Watched {
        stream: BoxStream<'static, Result<RecordBatch>>,
        awaited: Option<super::lost::AwaitedStream>,
        begun: bool,
    }
    let awaited = Some(attempt.expect());
    let state = Some(Watched { stream, awaited, begun: false });
    futures::stream::unfold(state, move |state| {
        let (url, channels, attempt) = (url.clone(), channels.clone(), Arc::clone(&attempt));
        async move {
            let mut watched = state?;
            let held = attempt.parts == Delivery::Held;
            // Rows that stream may take as long as their reader does; each silence of the node is timed separately.
            let due = match held || !watched.begun {
                true => attempt.due(),
                false => tokio::time::Instant::now() + attempt.due_after(),
            };
            let next = timeout_at(due, watched.stream.next()).await;
            let error = match next {
                Ok(Some(Ok(batch))) => {
                    watched.begun = true;
                    watched.awaited = None;
                    return Some((Ok(batch), Some(watched)));
                }
                Ok(None) => return None,
                Ok(Some(Err(error))) => error,
                Err(_) => lost(&url, &late(&attempt)),
            };
            if Crossing::is_refusal(&error) {
                return Some((Err(error), None));
            }
            channels.forget(&url);
            attempt.lose_by(&url, &error);
            match held || !watched.begun {
                true => None,
                false => Some((Err(lost_by(&url, error)), None)),
            }
        }
    })
    .boxed()
}
