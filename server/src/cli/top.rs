//! `telem top`: a job on a terminal.

mod draw;
mod keys;
mod poll;
mod screen;
mod state;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal, Read, Write};
use std::thread;
use std::time::Duration;

use clap::Args;
use telem_engine::{Clock, SystemClock};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use self::draw::{draw, page};
use self::keys::{KeyOutcome, TopKey, TopView, keys};
use self::poll::TopPoll;
use self::screen::Screen;
use self::state::{TopAnswer, TopState};
use super::serve::stop_signals;
use super::table::terminal_width;
use super::watch::playing::{Playing, playing};
use super::watch::{WatchError, WatchTarget};
use super::{CliFailure, units};

/// How long a server that does not answer any more is asked again.
const AWAY_MAX: Duration = Duration::from_secs(60);
const WIDTH: u16 = 100;
const WIDTHS: std::ops::RangeInclusive<i64> = 40..=500;
/// Bytes of keys that wait; more than anybody types.
const KEYS_WAITING_MAX: usize = 64;

/// Watch a job on a terminal: its nodes and its own metrics
///
/// Shows how much of each node is in use, and the last values of the metrics that the program sent, with their curves
/// of the last minutes; over ssh as well. A saved job is shown at its end, or played with --speed. Keys: q quits,
/// arrows scroll, Tab goes to the other table, s sorts, / filters, ? helps. Where the output is no terminal, or with
/// --once, the picture is printed once.
#[derive(Debug, Args)]
#[command(after_help = SHORT_EXAMPLES, after_long_help = EXAMPLES)]
pub struct TopArgs {
    /// A server, its connection file, or a saved job [default: the job's]
    ///
    /// http://HOST:PORT, unix:PATH of its socket, the connection file, or the directory of a database or a saved job.
    /// One job among several is URL#JOB or DIR#JOB. Without a name the server in the environment: TELEM_CONNECTION,
    /// TELEM_SOCKET, TELEM_URL.
    #[arg(value_name = "URL|FILE|DIR")]
    from: Option<String>,
    /// Print the picture once, as text
    #[arg(long)]
    once: bool,
    /// Columns of that text [default: the terminal's, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(WIDTHS))]
    width: Option<u16>,
    /// Play from the beginning: 1 is as it was, 60 a minute a second
    #[arg(long, value_name = "N", value_parser = playing, conflicts_with = "once")]
    speed: Option<Playing>,
    /// How often to look for what is new
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    interval: Duration,
    /// How far back curves go
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = units::duration)]
    window: Duration,
}

const SHORT_EXAMPLES: &str = "\
Examples:
  telem top --once                               # inside a job
  telem top http://127.0.0.1:4242 --once
  telem top ./telem-4711 --once --width 120";

const EXAMPLES: &str = "\
Examples:
  telem top http://127.0.0.1:4242 --once
  telem top ./telem-4711 --once --width 120
  telem top ./telem-4711 --once --window 10m
  ssh -t login1 telem top http://n1:4242         # from your own machine
  ssh -t login1 telem top runs/a --speed 60      # a minute of the run in each second

Environment:
  TELEM_CONNECTION, TELEM_SOCKET, TELEM_URL   the server; 'telem run' sets them for its job
  TELEM_TOKEN                                 the token, if the server needs one";

/// # Errors
/// Failed where there is nothing to watch.
pub fn run(args: &TopArgs) -> Result<(), CliFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliFailure::failed)?;
    let is_screen = !args.once && io::stdout().is_terminal() && io::stdin().is_terminal();
    runtime.block_on(async {
        let target = WatchTarget::find(args.from.as_deref())?;
        let playing = args.speed.filter(|_| is_screen);
        let mut poll = TopPoll::open(target, args.window, playing).await?;
        let mut state = TopState::new(poll.label(), poll.window_us());
        // Before the terminal is taken: whoever names a server that is not there reads why.
        state.take(poll.next(Duration::ZERO).await?);
        if is_screen {
            return watch(poll, state, args.interval).await;
        }
        let width = args.width.or_else(|| terminal_width().and_then(|width| u16::try_from(width).ok()));
        let mut out = io::stdout().lock();
        out.write_all(page(&state, width.unwrap_or(WIDTH)).as_bytes())?;
        Ok(out.flush()?)
    })
}

/// A task that ends with this.
struct OwnedTask(JoinHandle<()>);

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What a poll came to.
enum PollOutcome {
    Answer(Box<TopAnswer>),
    Away(String),
    /// Nothing more comes.
    Over(Option<String>),
}

async fn watch(poll: TopPoll, mut state: TopState, interval: Duration) -> Result<(), CliFailure> {
    let failed = |error: io::Error| CliFailure::failed(error);
    let mut resized = signal(SignalKind::window_change()).map_err(failed)?;
    let mut hung_up = signal(SignalKind::hangup()).map_err(failed)?;
    let mut stop = Box::pin(stop_signals().map_err(failed)?);
    let (send, mut polled) = mpsc::channel(1);
    let _poller = OwnedTask(tokio::spawn(keep_polling(poll, interval, send)));
    let mut typed = typed_keys().map_err(failed)?;
    let mut screen = Screen::open().map_err(failed)?;
    let mut view = TopView::default();
    let mut polls = true;
    loop {
        screen.terminal.draw(|frame| draw(&state, &mut view, frame.buffer_mut())).map_err(failed)?;
        tokio::select! {
            bytes = typed.recv() => {
                // A terminal that is gone types nothing more.
                let Some(bytes) = bytes else { return Ok(()) };
                let quit = |key: TopKey| view.key(key) == KeyOutcome::Quit;
                if keys(&bytes).into_iter().any(quit) {
                    return Ok(());
                }
            }
            came = polled.recv(), if polls => match came {
                Some(PollOutcome::Answer(answer)) => state.take(*answer),
                Some(PollOutcome::Away(why)) => state.notice = Some(why),
                Some(PollOutcome::Over(why)) => (state.notice, polls) = (why.or(state.notice.take()), false),
                None => polls = false,
            },
            _ = resized.recv() => {}
            _ = hung_up.recv() => return Ok(()),
            () = &mut stop => return Ok(()),
        }
    }
}

async fn keep_polling(mut poll: TopPoll, interval: Duration, send: mpsc::Sender<PollOutcome>) {
    let clock = SystemClock::new();
    let mut away_since = None;
    loop {
        tokio::time::sleep(interval).await;
        let now = clock.monotonic();
        let polled = match poll.next(now).await {
            Ok(answer) => {
                away_since = None;
                PollOutcome::Answer(Box::new(answer))
            }
            Err(WatchError::Failed(why)) => PollOutcome::Over(Some(why)),
            Err(WatchError::Away(why)) => {
                let away = clock.monotonic().saturating_sub(*away_since.get_or_insert(now));
                if away >= AWAY_MAX {
                    PollOutcome::Over(Some(format!("it has ended, or cannot be reached any more: {why}")))
                } else {
                    PollOutcome::Away(format!("no answer for {} s: {why}", away.as_secs()))
                }
            }
        };
        let mut is_over = matches!(polled, PollOutcome::Over(_));
        if send.send(polled).await.is_err() || is_over {
            return;
        }
        // At the same time: a later one may be beyond what was shown.
        is_over = away_since.is_none() && poll.is_over(now);
        if is_over {
            // Whoever has gone needs no end.
            send.send(PollOutcome::Over(None)).await.unwrap_or_default();
            return;
        }
    }
}

/// What is typed, as it comes. The thread ends with the process: a read of a terminal cannot be stopped.
fn typed_keys() -> io::Result<mpsc::Receiver<Vec<u8>>> {
    let (send, typed) = mpsc::channel(KEYS_WAITING_MAX);
    let read = move || {
        let mut bytes = [0; 64];
        while let Ok(count @ 1..) = io::stdin().read(&mut bytes) {
            if send.blocking_send(bytes[..count].to_vec()).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("telem-keys".to_owned()).spawn(read)?;
    Ok(typed)
}
