//! telem's side of the reader: when it is started and asked, and what is done when it hangs or dies.
//!
//! The one idea: telem never waits for more than [`ANSWER_WAIT`]. An answer that takes longer is taken at a later tick,
//! and no question is asked until then. A reader without a sign of life is killed and left behind: where a call hangs in
//! the kernel it does not even die, and nobody waits for it. The GPU in whose turn that happened is left out at first,
//! so that the others go on.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use telem_engine::Clock;

use super::answers::answer;
use super::frames::{
    FrameBuffer, NvidiaCard, NvidiaReading, OffCause, ReaderOrder, ReaderQuestion, ReaderWord, TurnNote, say,
};

/// How long a tick waits for an answer; 8 GPUs answer in some 20 ms.
pub const ANSWER_WAIT: Duration = Duration::from_millis(300);
/// How long one call of the library may take.
pub const CALL_DEADLINE: Duration = Duration::from_secs(5);
/// How long one call may take at the start: where no process holds the GPUs, each is initialised, for seconds.
pub const START_DEADLINE: Duration = Duration::from_secs(30);
/// A reader is started at most that often, unless a GPU was just left out for the first time.
pub const START_INTERVAL: Duration = Duration::from_secs(60);
/// How long a GPU is left out in whose turn the reader hung or died. At the second time it is for good.
pub const LEFT_OUT_FOR: Duration = Duration::from_secs(600);
/// Most readers that were killed and have not died. Then no other is started.
pub const UNDEAD_MAX: usize = 2;

/// How often it is seen whether a reader has ended that may have, a millisecond apart.
const EXIT_LOOKS: u32 = 10;

/// The process that calls the libraries of vendors of GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VendorReader {
    /// Nobody: those GPUs are not read.
    #[default]
    Nobody,
    /// A child process: a program that calls [`super::read_for_parent`] when it is started with these words.
    Program { program: PathBuf, words: Vec<OsString>, library: Option<String> },
    /// A thread of this process, which waits for its answers: for tests.
    Thread { library: String, patience: Duration },
}

/// How much a question asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionExtent {
    /// What changes from tick to tick.
    Usual,
    /// What changes rarely, too.
    WithRare,
}

/// The reader, whether it runs or not.
pub struct NvidiaReader {
    how: VendorReader,
    level: u8,
    clock: Arc<dyn Clock>,
    talk: Option<Talk>,
    questions: u64,
    /// When a reader may be started again.
    again: Duration,
    undead: Vec<Child>,
    left_out: BTreeMap<u32, LeftOutCard>,
    state: ReaderState,
    /// What was told of it at least once.
    told: Vec<&'static str>,
}

/// What is known of the reader besides its readings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReaderState {
    /// It was not started, or rests.
    #[default]
    Resting,
    Running,
    /// It hung or died, and is started again later.
    Failed,
    /// It said that nothing can be asked.
    Off {
        why: String,
        cause: OffCause,
    },
}

#[derive(Debug)]
struct LeftOutCard {
    times: u32,
    until: Option<Duration>,
}

/// A reader that runs.
#[derive(Debug)]
struct Talk {
    stream: UnixStream,
    /// Its end is the end of telem.
    life: UnixStream,
    turn: TurnNote,
    /// Until when a read of `stream` waits now.
    waits: Waits,
    child: Option<Child>,
    frames: FrameBuffer,
    /// Of this reader; empty until it told them.
    cards: Option<Vec<NvidiaCard>>,
    driver: String,
    /// The question that is not answered yet.
    open: Option<ReaderQuestion>,
    /// When it gave a sign of life, or was asked.
    sign: Duration,
}

/// How long reading from a reader waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    No,
    /// As long as a tick waits for an answer.
    Long,
}

/// What came of asking.
#[derive(Debug, Default)]
pub struct ReaderAnswers {
    /// Of each GPU the newest.
    pub readings: Vec<NvidiaReading>,
    /// The GPUs were told anew.
    pub cards: Option<Vec<NvidiaCard>>,
    /// A new question was asked.
    pub asked: bool,
}

/// How a reader ended.
#[derive(Debug)]
enum ReaderEnd {
    Hung,
    Died(io::Error),
    Off { why: String, cause: OffCause },
}

impl fmt::Debug for NvidiaReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { how, talk, state, left_out, undead, .. } = self;
        f.debug_struct("NvidiaReader")
            .field("how", how)
            .field("talk", talk)
            .field("state", state)
            .field("left_out", left_out)
            .field("undead", undead)
            .finish_non_exhaustive()
    }
}

impl NvidiaReader {
    pub fn new(how: VendorReader, level: u8, clock: Arc<dyn Clock>) -> Self {
        Self {
            how,
            level,
            clock,
            talk: None,
            questions: 0,
            again: Duration::ZERO,
            undead: Vec::new(),
            left_out: BTreeMap::new(),
            state: ReaderState::default(),
            told: Vec::new(),
        }
    }

    /// Whether there may be one at all.
    pub fn is_possible(&self) -> bool {
        self.how != VendorReader::Nobody
    }

    pub fn is_running(&self) -> bool {
        self.talk.is_some()
    }

    pub fn state(&self) -> &ReaderState {
        &self.state
    }

    pub fn driver(&self) -> &str {
        self.talk.as_ref().map_or("", |talk| &talk.driver)
    }

    /// GPUs that are not asked because a call hung or crashed in their turn.
    pub fn left_out(&self) -> impl Iterator<Item = u32> {
        self.left_out
            .iter()
            .filter(|(_, left)| left.until.is_none_or(|until| until > self.clock.monotonic()))
            .map(|(card, _)| *card)
    }

    /// Whether the next question starts it.
    pub fn is_due(&self) -> bool {
        self.talk.is_none() && self.clock.monotonic() >= self.again
    }

    /// Ends it; it is started again at the next question, but not before [`START_INTERVAL`] is over.
    pub fn rest(&mut self) {
        if let Some(talk) = self.talk.take() {
            self.end(talk);
            self.again = self.clock.monotonic() + START_INTERVAL;
            self.state = ReaderState::Resting;
        }
    }

    /// Takes what was answered since the tick before, and asks again if that was all. Starts a reader where there is
    /// none and may be one.
    pub fn ask(&mut self, extent: QuestionExtent) -> ReaderAnswers {
        let mut answers = ReaderAnswers::default();
        self.bury();
        if self.talk.is_none() && !self.start() {
            return answers;
        }
        let left_out: Vec<u32> = self.left_out().collect();
        let Some(mut talk) = self.talk.take() else { return answers };
        let number = self.questions + 1;
        let question = ReaderQuestion { number, rare: extent == QuestionExtent::WithRare, left_out };
        match talk.round(question, self.patience(), &*self.clock, &mut answers) {
            Ok(asked) => {
                self.questions += u64::from(asked);
                answers.asked = asked;
                if talk.cards.is_some() {
                    self.state = ReaderState::Running;
                }
                self.talk = Some(talk);
            }
            Err(end) => self.ended(talk, end),
        }
        answers
    }

    fn patience(&self) -> Duration {
        match &self.how {
            VendorReader::Thread { patience, .. } => *patience,
            _ => ANSWER_WAIT,
        }
    }

    /// Whether one runs now.
    fn start(&mut self) -> bool {
        let now = self.clock.monotonic();
        if now < self.again {
            return false;
        }
        if self.undead.len() >= UNDEAD_MAX {
            self.tell_once("undead", "readers of NVIDIA's library hang and cannot be ended; its GPUs are not read");
            return false;
        }
        self.again = now + START_INTERVAL;
        match self.spawn(now) {
            Ok(talk) => {
                self.talk = Some(talk);
                // Why nothing could be asked holds until something is answered.
                if !matches!(self.state, ReaderState::Off { .. }) {
                    self.state = ReaderState::Running;
                }
                true
            }
            Err(error) => {
                self.tell_once("start", &format!("the reader of NVIDIA's library cannot be started: {error}"));
                self.state = ReaderState::Failed;
                false
            }
        }
    }

    fn spawn(&self, now: Duration) -> io::Result<Talk> {
        let (mut stream, theirs) = UnixStream::pair()?;
        let (life, their_life) = UnixStream::pair()?;
        let turn = TurnNote::new()?;
        stream.set_read_timeout(Some(self.patience()))?;
        let (child, library) = match &self.how {
            VendorReader::Nobody => return Err(io::ErrorKind::Unsupported.into()),
            VendorReader::Program { program, words, library } => {
                let mut command = Command::new(program);
                command.args(words).current_dir("/").stdin(OwnedFd::from(theirs));
                command.stdout(OwnedFd::from(their_life)).stderr(OwnedFd::from(turn.share()?));
                // A signal of the terminal is not for it: telem ends it.
                command.process_group(0);
                (Some(command.spawn()?), library.clone())
            }
            VendorReader::Thread { library, .. } => {
                let (clock, turn) = (Arc::clone(&self.clock), turn.share()?);
                let thread = std::thread::Builder::new().name("telem-nvml".to_owned());
                thread.spawn(move || answer(theirs, turn, &*clock))?;
                (None, Some(library.clone()))
            }
        };
        let left_out = self.left_out().collect();
        say(&mut stream, &ReaderOrder { level: self.level, library, left_out })?;
        Ok(Talk {
            life,
            turn,
            waits: Waits::Long,
            stream,
            child,
            frames: FrameBuffer::default(),
            cards: None,
            driver: String::new(),
            open: None,
            sign: now,
        })
    }

    fn ended(&mut self, talk: Talk, end: ReaderEnd) {
        let now = self.clock.monotonic();
        let turn = talk.turn();
        let status = self.end(talk);
        let at = turn.map(|card| format!(" in the turn of its GPU {card}")).unwrap_or_default();
        match end {
            ReaderEnd::Off { why, cause } => {
                self.state = ReaderState::Off { why, cause };
                return;
            }
            ReaderEnd::Hung => self.tell_once("hangs", &format!("a call of NVIDIA's library hangs{at}")),
            ReaderEnd::Died(error) => {
                let how = status.unwrap_or_else(|| error.to_string());
                self.tell_once("died", &format!("NVIDIA's library ended its reader{at} ({how})"));
            }
        }
        self.state = ReaderState::Failed;
        if let Some(card) = turn {
            let left = self.left_out.entry(card).or_insert(LeftOutCard { times: 0, until: None });
            left.times += 1;
            left.until = (left.times < 2).then_some(now + LEFT_OUT_FOR);
            if left.times == 1 {
                // The others need not wait: what hung or crashed is left out.
                self.again = now;
            }
        }
    }

    /// Kills it, and hardly waits; how it had ended, if it had. One that is not in a call of the library ends by itself
    /// when its stream is closed.
    fn end(&mut self, talk: Talk) -> Option<String> {
        let mut child = talk.child?;
        drop((talk.stream, talk.life));
        let status = exit_of(&mut child);
        if status.is_none() {
            let _ = child.kill();
            self.undead.push(child);
        }
        status.map(|status| match status.signal() {
            Some(signal) => format!("signal {signal}"),
            None => status.to_string(),
        })
    }

    fn bury(&mut self) {
        self.undead.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    fn tell_once(&mut self, what: &'static str, text: &str) {
        if self.told.contains(&what) {
            tracing::debug!("{text}");
        } else {
            self.told.push(what);
            tracing::warn!("{text}; the node's other sources go on");
        }
    }

    #[cfg(test)]
    pub fn told(&self) -> &[&'static str] {
        &self.told
    }

    /// Closes all that ends when a process does, and kills nobody.
    #[cfg(test)]
    pub fn forget(&mut self) -> Option<Child> {
        self.talk.take()?.child
    }

    #[cfg(test)]
    pub fn pid(&self) -> Option<u32> {
        self.talk.as_ref()?.child.as_ref().map(Child::id)
    }
}

/// Its stream ends a little before it does.
fn exit_of(child: &mut Child) -> Option<ExitStatus> {
    for _ in 0..EXIT_LOOKS {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    None
}

impl Drop for NvidiaReader {
    fn drop(&mut self) {
        if let Some(talk) = self.talk.take() {
            self.end(talk);
        }
        self.bury();
    }
}

impl Talk {
    /// Takes what is there, asks where all was answered, and takes what comes in time; whether it asked.
    fn round(
        &mut self,
        question: ReaderQuestion,
        longest: Duration,
        clock: &dyn Clock,
        answers: &mut ReaderAnswers,
    ) -> Result<bool, ReaderEnd> {
        let began = clock.monotonic();
        // It speaks only when it is asked.
        if !self.is_idle() {
            self.take(answers, Waits::No, longest, clock)?;
        }
        let mut question = Some(question);
        loop {
            if self.is_idle() {
                let Some(question) = question.take() else { break };
                self.ask(question, clock.monotonic())?;
            }
            let passed = clock.monotonic().saturating_sub(began);
            if passed >= longest {
                break;
            }
            self.take(answers, Waits::Long, longest - passed, clock)?;
            if !self.is_idle() {
                break;
            }
        }
        self.check(clock.monotonic())?;
        Ok(question.is_none())
    }

    fn ask(&mut self, question: ReaderQuestion, now: Duration) -> Result<(), ReaderEnd> {
        // The socket of a reader that hangs has room for this one question: it had answered the one before.
        say(&mut self.stream, &question).map_err(ReaderEnd::Died)?;
        self.sign = now;
        self.open = Some(question);
        Ok(())
    }

    /// Whose turn it is in a question or at the start.
    fn turn(&self) -> Option<u32> {
        if self.is_idle() { None } else { self.turn.read() }
    }

    /// Takes lines until the question is answered, or there is none for now.
    fn take(
        &mut self,
        answers: &mut ReaderAnswers,
        waits: Waits,
        longest: Duration,
        clock: &dyn Clock,
    ) -> Result<(), ReaderEnd> {
        let began = clock.monotonic();
        loop {
            while let Some(told) = self.frames.next().map_err(ReaderEnd::Died)? {
                self.sign = clock.monotonic();
                self.hear(told, answers)?;
            }
            // One that talks without end is not listened to for longer either.
            if self.is_idle() || clock.monotonic().saturating_sub(began) >= longest {
                return Ok(());
            }
            if self.waits != waits {
                self.stream.set_nonblocking(waits == Waits::No).map_err(ReaderEnd::Died)?;
                self.waits = waits;
            }
            match self.frames.fill(&mut self.stream) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Ok(());
                }
                Err(error) => return Err(ReaderEnd::Died(error)),
            }
        }
    }

    /// Whether it has answered all.
    fn is_idle(&self) -> bool {
        self.cards.is_some() && self.open.is_none()
    }

    fn hear(&mut self, told: ReaderWord, answers: &mut ReaderAnswers) -> Result<(), ReaderEnd> {
        match told {
            ReaderWord::Cards { driver, cards } => {
                self.driver = driver;
                answers.cards = Some(cards.clone());
                self.cards = Some(cards);
            }
            ReaderWord::Reading(reading) => {
                answers.readings.retain(|known| known.card != reading.card);
                answers.readings.push(*reading);
            }
            ReaderWord::Alive { .. } => {}
            ReaderWord::Done { number } => {
                if self.open.as_ref().is_some_and(|open| open.number == number) {
                    self.open = None;
                }
            }
            ReaderWord::Off { why, cause } => return Err(ReaderEnd::Off { why, cause }),
        }
        Ok(())
    }

    fn check(&self, now: Duration) -> Result<(), ReaderEnd> {
        let deadline = if self.cards.is_none() { START_DEADLINE } else { CALL_DEADLINE };
        let hangs = !self.is_idle() && now.saturating_sub(self.sign) > deadline;
        if hangs { Err(ReaderEnd::Hung) } else { Ok(()) }
    }
}
