//! How many clients are connected, and their dismissal: before a server leaves its tree, what they sent is read, and what
//! they count is final.

use std::time::Duration;

use tokio::sync::watch;

/// Longest that is waited until all that clients sent is read.
const DISMISSAL_MAX: Duration = Duration::from_secs(1);

/// The clients of all sockets.
#[derive(Debug)]
pub struct ProxyClients {
    connected: watch::Sender<usize>,
    dismissed: watch::Sender<bool>,
}

impl Default for ProxyClients {
    fn default() -> Self {
        Self { connected: watch::Sender::new(0), dismissed: watch::Sender::new(false) }
    }
}

/// Held while a client is connected, and until it has left its job.
#[derive(Debug)]
pub struct ClientPlace<'a>(&'a ProxyClients);

impl Drop for ClientPlace<'_> {
    fn drop(&mut self) {
        self.0.connected.send_modify(|connected| *connected -= 1);
    }
}

impl ProxyClients {
    /// One more.
    pub fn enter(&self) -> ClientPlace<'_> {
        self.connected.send_modify(|connected| *connected += 1);
        ClientPlace(self)
    }

    /// Turns true when clients are to go.
    pub fn dismissed(&self) -> watch::Receiver<bool> {
        self.dismissed.subscribe()
    }

    /// Hangs up on all of them once what they sent is read. Later ones are hung up on as well.
    pub async fn dismiss(&self) {
        self.dismissed.send_replace(true);
        let mut connected = self.connected.subscribe();
        let gone = tokio::time::timeout(DISMISSAL_MAX, connected.wait_for(|connected| *connected == 0)).await;
        if gone.is_err() {
            let connected = *self.connected.borrow();
            tracing::warn!(connected, "clients of Metric Proxy sent still when the server left its tree");
        }
    }
}
