//! The reader: the process that calls NVIDIA's library, and answers telem's questions from its standard input.
//!
//! The one idea: it only answers. So it needs no clock of ticks, no log and no decision; whatever happens to it is seen
//! by telem. Its standard input is a socket, which carries both directions and is closed when telem ends. While a call
//! hangs nobody reads it, so its standard output is another one, on which a second thread waits for that end. (A signal
//! at the end of the parent would come too early: the kernel sends it when the thread that started the process ends.)
//!
//! An answer is sent as a whole, since each piece would wake telem, unless it takes long. So that telem knows in whose
//! turn a call hung or crashed, the number of a GPU is noted when its turn begins, in a file of memory that both have:
//! a note wakes nobody, and nobody reads it in good times.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::process::{Resource, Rlimit};
use telem_engine::{Clock, SystemClock};

use super::frames::{FrameBuffer, ReaderOrder, ReaderQuestion, ReaderWord, TurnNote, say};
use super::library::{NvmlLibrary, Off};

/// How long it is silent at most while calls of the library return.
pub const SILENCE_MAX: Duration = Duration::from_millis(500);
/// How long what was read waits for the rest of the answer.
const WHOLE_AFTER: Duration = Duration::from_millis(50);
/// How long it has to end by itself when telem is gone.
const GRACE: Duration = Duration::from_secs(1);
/// As the other threads that collect.
const NICENESS: i32 = 10;

/// What the hidden command of telem does. Returns when telem has no more questions.
pub fn read_for_parent() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    // What a crash of a vendor's library leaves behind helps nobody here.
    let _ = rustix::process::setrlimit(Resource::Core, none);
    let _ = rustix::process::setpriority_process(None, NICENESS);
    let given = (
        rustix::io::dup(rustix::stdio::stdin()),
        rustix::io::dup(rustix::stdio::stdout()),
        rustix::io::dup(rustix::stdio::stderr()),
    );
    let (Ok(talk), Ok(life), Ok(turn)) = given else { return };
    // What a library writes is for neither of them.
    let Ok(nowhere) = File::options().write(true).open("/dev/null") else { return };
    let closed = rustix::stdio::dup2_stdout(&nowhere).and_then(|()| rustix::stdio::dup2_stderr(&nowhere));
    if closed.is_err() {
        return;
    }
    let (life, turn) = (UnixStream::from(life), TurnNote::from(File::from(turn)));
    let guard = std::thread::Builder::new().name("telem-guard".to_owned());
    if guard.spawn(move || die_with_parent(life)).is_ok() {
        // An error is the end of telem.
        let _ = answer(UnixStream::from(talk), turn, &SystemClock::new());
    }
}

/// Waits for the end of telem, and ends this process, whatever its library does.
fn die_with_parent(mut life: UnixStream) {
    let mut nothing = [0; 64];
    loop {
        match life.read(&mut nothing) {
            Ok(bytes) if bytes > 0 => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // That is no socket: nobody is to be waited for.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOTSOCK.raw_os_error()) => return,
            _ => break,
        }
    }
    std::thread::park_timeout(GRACE);
    // Not an exit: that would call the library once more, which may wait for the call that hangs.
    std::process::abort();
}

/// ReaderAnswers until the other side is gone, or nothing can be asked. `turn` has whose turn it is.
///
/// # Errors
/// Those of the stream.
pub fn answer(mut stream: UnixStream, turn: TurnNote, clock: &dyn Clock) -> io::Result<()> {
    let mut frames = FrameBuffer::default();
    let order: ReaderOrder = next(&mut frames, &mut stream)?;
    let spoke = clock.monotonic();
    let whose = None;
    let mut voice = Voice { stream: stream.try_clone()?, turn, whose, unsaid: Vec::new(), clock, spoke, failed: None };
    let loaded = NvmlLibrary::load(&order, clock.monotonic(), &mut |card| voice.alive(card));
    let mut library = match loaded {
        Ok(library) => library,
        Err(off) => return voice.off(off),
    };
    voice.cards(&library)?;
    voice.send()?;
    loop {
        let question: ReaderQuestion = next(&mut frames, &mut stream)?;
        voice.spoke = clock.monotonic();
        if let Err(off) = answer_one(&mut library, &question, &mut voice)? {
            return voice.off(off);
        }
    }
}

fn answer_one(
    library: &mut NvmlLibrary,
    question: &ReaderQuestion,
    voice: &mut Voice<'_>,
) -> io::Result<Result<(), Off>> {
    let now = voice.clock.monotonic();
    let mut is_new = match library.search_again(now, &question.left_out, &mut |card| voice.alive(card)) {
        Ok(is_new) => is_new,
        Err(off) => return Ok(Err(off)),
    };
    for at in 0..library.len() {
        if question.left_out.contains(&library.index(at)) || library.is_closed(at) {
            continue;
        }
        let now = voice.clock.monotonic();
        match library.read(at, question, now, &mut |card| voice.alive(card)) {
            Ok(answer) => {
                is_new |= answer.is_news;
                voice.say(&ReaderWord::Reading(Box::new(answer.reading)))?;
            }
            Err(off) => return Ok(Err(off)),
        }
    }
    if is_new {
        voice.cards(library)?;
    }
    voice.note_turn(None);
    voice.say(&ReaderWord::Done { number: question.number })?;
    voice.send()?;
    Ok(Ok(()))
}

fn next<T: serde::de::DeserializeOwned>(frames: &mut FrameBuffer, stream: &mut impl Read) -> io::Result<T> {
    loop {
        if let Some(said) = frames.next()? {
            return Ok(said);
        }
        frames.fill(stream)?;
    }
}

/// What is said to telem, and when last.
struct Voice<'a> {
    stream: UnixStream,
    turn: TurnNote,
    /// The GPU whose turn was noted last.
    whose: Option<u32>,
    unsaid: Vec<u8>,
    clock: &'a dyn Clock,
    spoke: Duration,
    /// In a place that could not return it.
    failed: Option<io::Error>,
}

impl Voice<'_> {
    /// Says it with what comes next.
    fn say(&mut self, told: &ReaderWord) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        say(&mut self.unsaid, told)
    }

    fn send(&mut self) -> io::Result<()> {
        self.spoke = self.clock.monotonic();
        self.stream.write_all(&self.unsaid)?;
        self.unsaid.clear();
        Ok(())
    }

    /// Before a call of the library, for that GPU where it is one's turn.
    fn alive(&mut self, card: Option<u32>) {
        self.note_turn(card);
        let silent = self.clock.monotonic().saturating_sub(self.spoke);
        let sent = if silent > SILENCE_MAX {
            self.say(&ReaderWord::Alive { card }).and_then(|()| self.send())
        } else if silent > WHOLE_AFTER && !self.unsaid.is_empty() {
            self.send()
        } else {
            Ok(())
        };
        if let Err(error) = sent {
            self.failed = Some(error);
        }
    }

    /// Whose turn it is from now on.
    fn note_turn(&mut self, card: Option<u32>) {
        if self.whose != card {
            self.whose = card;
            if let Err(error) = self.turn.write(card) {
                self.failed = Some(error);
            }
        }
    }

    fn cards(&mut self, library: &NvmlLibrary) -> io::Result<()> {
        self.say(&ReaderWord::Cards { driver: library.driver(), cards: library.cards() })
    }

    fn off(&mut self, Off { why, cause }: Off) -> io::Result<()> {
        self.say(&ReaderWord::Off { why, cause })?;
        self.send()
    }
}
