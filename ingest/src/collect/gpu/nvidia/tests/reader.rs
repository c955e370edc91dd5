//! The reader as a process of its own: this test binary, started again.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use telem_engine::{Clock, SystemClock, Timestamp};

use super::stand_in::{Driver, H100, StandIn};
use crate::collect::gpu::nvidia::frames::{FrameBuffer, LINE_BYTES_MAX, NvidiaReading, OffCause, ReaderWord, say};
use crate::collect::gpu::nvidia::read_for_parent;
use crate::collect::gpu::nvidia::reader::{
    CALL_DEADLINE, LEFT_OUT_FOR, NvidiaReader, QuestionExtent, ReaderAnswers, ReaderState, START_DEADLINE,
    START_INTERVAL, VendorReader,
};

const MARK: &str = "as-a-reader";

/// What the hidden command does, when this binary is started as a reader; else nothing.
#[test]
fn reads_for_its_parent() {
    if std::env::args().any(|word| word == MARK) {
        read_for_parent();
        std::process::exit(0);
    }
}

/// This binary as a reader.
pub fn program(stand_in: &StandIn) -> VendorReader {
    let test = "collect::gpu::nvidia::tests::reader::reads_for_its_parent";
    VendorReader::Program {
        program: std::env::current_exe().unwrap(),
        words: ["--exact", test, MARK, "--nocapture", "--test-threads=1"].map(OsString::from).to_vec(),
        library: Some(stand_in.library()),
    }
}

/// It stands until a test moves it.
#[derive(Debug, Default)]
pub struct Hand {
    millis: AtomicU64,
}

impl Hand {
    pub fn set(&self, second: u64) {
        self.set_millis(second * 1_000);
    }

    pub fn set_millis(&self, millis: u64) {
        self.millis.store(millis, Ordering::Relaxed);
    }
}

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.millis.load(Ordering::Relaxed) as i64)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.millis.load(Ordering::Relaxed))
    }
}

struct Desk {
    stand_in: StandIn,
    clock: Arc<Hand>,
    reader: NvidiaReader,
}

impl Desk {
    fn new(more: &str) -> Self {
        let stand_in = StandIn::new(Driver::New, &format!("{H100}{more}"));
        let clock = Arc::new(Hand::default());
        let reader = NvidiaReader::new(program(&stand_in), 2, Arc::<Hand>::clone(&clock));
        Self { stand_in, clock, reader }
    }

    fn plays(&self, more: &str) {
        self.stand_in.plays(&format!("{H100}{more}"));
    }

    fn ask(&mut self, second: u64) -> ReaderAnswers {
        self.clock.set(second);
        self.reader.ask(QuestionExtent::Usual)
    }

    /// Asks until that many GPUs have answered.
    fn answers(&mut self, second: u64, count: usize) -> Vec<NvidiaReading> {
        let patience = SystemClock::new();
        let mut readings: Vec<NvidiaReading> = Vec::new();
        while readings.len() < count {
            let newer = self.ask(second).readings;
            readings.retain(|known| newer.iter().all(|new| new.card != known.card));
            readings.extend(newer);
            assert!(patience.monotonic() < Duration::from_secs(60), "only {readings:?} of {:?}", self.reader);
        }
        readings.sort_by_key(|reading| reading.card);
        readings
    }
}

/// Waits for the end of a process.
pub fn is_gone(pid: u32) {
    let patience = SystemClock::new();
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // One that nobody has waited for yet is a zombie.
    while !state().is_empty() && !state().contains(") Z ") {
        assert!(patience.monotonic() < Duration::from_secs(60), "process {pid} goes on");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

fn cards(readings: &[NvidiaReading]) -> Vec<(u32, bool)> {
    readings.iter().map(|reading| (reading.card, reading.up)).collect()
}

#[test]
fn a_process_answers_with_the_readings_of_all_gpus() {
    let mut desk = Desk::new("");
    let readings = desk.answers(1, 2);
    assert_eq!(cards(&readings), [(0, true), (1, true)]);
    assert_eq!(readings[1].power_milliwatts, Some(412_345));
    assert_eq!((desk.reader.state(), desk.reader.driver()), (&ReaderState::Running, "550.54.15"));
    let pid = desk.reader.pid().unwrap();
    assert_ne!(pid, std::process::id());
    drop(desk);
    is_gone(pid);
}

#[test]
fn a_call_that_never_returns_costs_its_gpu_and_the_others_go_on() {
    let mut desk = Desk::new("");
    desk.answers(1, 2);
    desk.plays("1 nvmlDeviceGetPowerUsage never\n");
    assert!(desk.ask(61).readings.is_empty());
    let pid = desk.reader.pid().unwrap();
    assert!(desk.ask(61 + CALL_DEADLINE.as_secs()).readings.is_empty(), "it is waited for");
    assert_eq!(desk.reader.state(), &ReaderState::Running);
    assert!(desk.ask(62 + CALL_DEADLINE.as_secs()).readings.is_empty());
    assert_eq!((desk.reader.state(), desk.reader.told()), (&ReaderState::Failed, &["hangs"][..]));
    is_gone(pid);

    // It is started again at once, without that GPU: the others lose a few seconds.
    assert_eq!(cards(&desk.answers(68, 1)), [(0, true)]);
    assert_eq!(desk.reader.left_out().collect::<Vec<_>>(), [1]);
    assert_eq!(cards(&desk.answers(69, 1)), [(0, true)]);

    // Once more, and not again after that.
    let later = 67 + LEFT_OUT_FOR.as_secs() + 1;
    assert!(desk.ask(later).readings.is_empty());
    desk.ask(later + CALL_DEADLINE.as_secs() + 1);
    assert_eq!(cards(&desk.answers(later + 100, 1)), [(0, true)]);
    assert_eq!(cards(&desk.answers(later + 100_000, 1)), [(0, true)]);
    assert_eq!(desk.reader.left_out().collect::<Vec<_>>(), [1]);
    assert_eq!(desk.reader.told(), ["hangs"], "and told once");
}

#[test]
fn a_crash_costs_its_gpu_and_the_reader_is_started_again_at_once() {
    let mut desk = Desk::new("");
    desk.answers(1, 2);
    desk.plays("0 nvmlDeviceGetTemperature crash\n");
    let patience = SystemClock::new();
    while desk.ask(2).readings.is_empty() && desk.reader.state() == &ReaderState::Running {
        assert!(patience.monotonic() < Duration::from_secs(60));
    }
    assert_eq!((desk.reader.state(), desk.reader.told()), (&ReaderState::Failed, &["died"][..]));
    assert_eq!(cards(&desk.answers(3, 1)), [(1, true)]);

    // The second time it is for good.
    let later = 3 + LEFT_OUT_FOR.as_secs() + 1;
    while desk.reader.state() == &ReaderState::Running {
        desk.ask(later);
        assert!(patience.monotonic() < Duration::from_secs(60));
    }
    desk.plays("");
    assert_eq!(cards(&desk.answers(later + 1, 1)), [(1, true)]);
    assert_eq!(cards(&desk.answers(later + 100_000, 1)), [(1, true)]);
    assert_eq!(desk.reader.left_out().collect::<Vec<_>>(), [0]);
}

/// Until the reader has answered or ended, once.
fn until_failed(desk: &mut Desk, second: u64) {
    let patience = SystemClock::new();
    while desk.reader.state() != &ReaderState::Failed {
        assert!(desk.ask(second).readings.is_empty());
        assert!(patience.monotonic() < Duration::from_secs(60), "{:?}", desk.reader);
    }
}

/// Each is asked when the library is loaded: who the GPU is, and first of all for it.
#[test]
fn a_gpu_that_hangs_or_crashes_before_it_says_who_it_is_costs_itself_alone() {
    for call in ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo_v2"] {
        let mut desk = Desk::new(&format!("1 {call} crash\n"));
        until_failed(&mut desk, 1);
        assert_eq!(desk.reader.told(), ["died"], "{call}");
        assert_eq!(desk.reader.left_out().collect::<Vec<_>>(), [1], "{call}");
        assert_eq!(cards(&desk.answers(2, 1)), [(0, true)], "{call}");

        let mut desk = Desk::new(&format!("0 {call} never\n"));
        assert!(desk.ask(1).readings.is_empty());
        assert!(desk.ask(1 + START_DEADLINE.as_secs()).readings.is_empty(), "it is waited for");
        assert_eq!(desk.reader.state(), &ReaderState::Running);
        until_failed(&mut desk, 2 + START_DEADLINE.as_secs());
        assert_eq!(desk.reader.left_out().collect::<Vec<_>>(), [0], "{call}");
        assert_eq!(cards(&desk.answers(3 + START_DEADLINE.as_secs(), 1)), [(1, true)], "{call}");
        assert_eq!(cards(&desk.answers(100, 1)), [(1, true)], "{call}");
    }
}

/// As when a GPU falls off its bus while telem runs: then the reader is started again, which asks all GPUs who they are.
#[test]
fn a_gpu_whose_calls_all_hang_takes_no_other_with_it() {
    let mut desk = Desk::new("");
    desk.answers(1, 2);
    desk.plays("1 * never\n");
    assert!(desk.ask(10).readings.is_empty());
    until_failed(&mut desk, 11 + CALL_DEADLINE.as_secs());
    assert_eq!(cards(&desk.answers(20, 1)), [(0, true)]);

    // It is tried once more after a while, also by who it is, and then never again.
    let later = 20 + LEFT_OUT_FOR.as_secs();
    assert!(desk.ask(later).readings.is_empty());
    until_failed(&mut desk, later + CALL_DEADLINE.as_secs() + 1);
    assert_eq!(cards(&desk.answers(later + 100, 1)), [(0, true)]);
    assert_eq!(cards(&desk.answers(later + 100_000, 1)), [(0, true)]);
}

#[test]
fn a_gpu_that_says_slowly_who_it_is_is_waited_for() {
    let mut desk = Desk::new("* nvmlDeviceGetUUID sleep_ms 700\n1 nvmlDeviceGetSerial sleep_ms 700\n");
    assert_eq!(cards(&desk.answers(1, 2)), [(0, true), (1, true)]);
    assert_eq!((desk.reader.state(), desk.reader.told().len()), (&ReaderState::Running, 0));
}

#[test]
fn an_answer_that_takes_longer_than_a_tick_waits_is_taken_later() {
    let mut desk = Desk::new("");
    desk.answers(1, 2);
    desk.plays("1 nvmlDeviceGetPowerUsage sleep_ms 800\n");
    let readings = desk.answers(2, 2);
    assert_eq!(cards(&readings), [(0, true), (1, true)]);
    assert_eq!(readings[1].power_milliwatts, Some(412_345));
    assert_eq!((desk.reader.state(), desk.reader.told().len()), (&ReaderState::Running, 0));
}

#[test]
fn where_nothing_can_be_asked_it_is_tried_once_a_minute() {
    let mut desk = Desk::new("* nvmlInit_v2 return 18\n");
    let patience = SystemClock::new();
    while !matches!(desk.reader.state(), ReaderState::Off { .. }) {
        desk.ask(1);
        assert!(patience.monotonic() < Duration::from_secs(60));
    }
    let ReaderState::Off { why, cause } = desk.reader.state().clone() else { unreachable!() };
    assert_eq!((&*why, cause), ("RM detects a driver/library version mismatch", OffCause::Mismatch));
    desk.plays("");
    desk.ask(START_INTERVAL.as_secs());
    assert_eq!(desk.reader.pid(), None);
    assert_eq!(desk.answers(62, 2).len(), 2);
    assert_eq!(desk.reader.told().len(), 0, "a reason is told by who found it");
}

#[test]
fn a_reader_that_rests_ends_and_starts_again() {
    let mut desk = Desk::new("");
    desk.answers(1, 2);
    let pid = desk.reader.pid().unwrap();
    desk.clock.set(100);
    desk.reader.rest();
    is_gone(pid);
    assert_eq!(desk.reader.state(), &ReaderState::Resting);
    assert!(desk.ask(159).readings.is_empty());
    assert_eq!(desk.answers(160, 2).len(), 2);
}

/// As when telem is killed while a call never returns.
#[test]
fn a_reader_whose_call_hangs_ends_with_telem() {
    let mut desk = Desk::new("");
    desk.answers(1, 2);
    desk.plays("* nvmlDeviceGetPowerUsage never\n");
    desk.ask(2);
    let (pid, child) = (desk.reader.pid().unwrap(), desk.reader.forget());
    is_gone(pid);
    child.unwrap().wait().unwrap();
}

#[test]
fn a_program_that_is_not_there_is_told_once() {
    let clock = Arc::new(Hand::default());
    let how = VendorReader::Program { program: "/nowhere/telem".into(), words: Vec::new(), library: None };
    let mut reader = NvidiaReader::new(how, 2, Arc::<Hand>::clone(&clock));
    for second in [1, 62] {
        clock.set(second);
        assert!(reader.ask(QuestionExtent::WithRare).readings.is_empty());
    }
    assert_eq!((reader.state(), reader.told()), (&ReaderState::Failed, &["start"][..]));
}

/// `cat` says what it hears, which is no answer; `true` says nothing.
#[test]
fn a_program_that_talks_nonsense_is_ended() {
    for program in ["cat", "true"] {
        let clock = Arc::new(Hand::default());
        let path = ["/bin", "/usr/bin"].map(|dir| Path::new(dir).join(program)).into_iter().find(|path| path.exists());
        let how = VendorReader::Program { program: path.unwrap(), words: Vec::new(), library: None };
        let mut reader = NvidiaReader::new(how, 2, clock);
        reader.ask(QuestionExtent::WithRare);
        let died = program == "true";
        let patience = SystemClock::new();
        while died && reader.state() == &ReaderState::Running {
            reader.ask(QuestionExtent::WithRare);
            assert!(patience.monotonic() < Duration::from_secs(60));
        }
        assert_eq!(reader.told().len(), usize::from(died), "output to nowhere is not a sign of life");
    }
}

fn lines(bytes: &[u8]) -> Vec<Result<ReaderWord, std::io::ErrorKind>> {
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    let mut frames = FrameBuffer::default();
    let mut told = Vec::new();
    let writer = std::thread::spawn({
        let bytes = bytes.to_vec();
        move || drop(theirs.write_all(&bytes))
    });
    'all: loop {
        loop {
            match frames.next() {
                Ok(Some(one)) => told.push(Ok(one)),
                Ok(None) => break,
                Err(error) => {
                    told.push(Err(error.kind()));
                    break 'all;
                }
            }
        }
        if frames.fill(&mut ours).is_err() {
            break;
        }
    }
    drop(ours);
    writer.join().unwrap();
    told
}

#[test]
fn a_line_is_read_up_to_its_limit_and_not_one_byte_further() {
    let long = |length: usize| {
        let text = r#"{"Off":{"why":"","cause":"Other"}}"#;
        let why = "x".repeat(length - text.len());
        format!("{{\"Off\":{{\"why\":\"{why}\",\"cause\":\"Other\"}}}}\n{{\"Done\":{{\"number\":7}}}}\n")
    };
    assert_eq!(lines(long(LINE_BYTES_MAX).as_bytes()).len(), 2);
    assert_eq!(lines(long(LINE_BYTES_MAX + 1).as_bytes()), [Err(std::io::ErrorKind::InvalidData)]);
    assert_eq!(lines(&vec![b'x'; 4 * LINE_BYTES_MAX]), [Err(std::io::ErrorKind::InvalidData)]);
}

proptest! {
    #[test]
    fn what_is_said_is_heard_in_any_pieces(power in any::<Option<u32>>(), xid in any::<u64>(), sm in 0..10_000u32) {
        let profile = super::super::frames::GpmProfile { sm_active: Some(f64::from(sm) / 100.0), ..Default::default() };
        let reading = NvidiaReading {
            power_milliwatts: power, xids: vec![(xid, 1)], profile: Some(profile), ..NvidiaReading::default()
        };
        let told = [ReaderWord::Reading(Box::new(reading)), ReaderWord::Done { number: xid }];
        let mut bytes = Vec::new();
        told.iter().for_each(|one| say(&mut bytes, one).unwrap());
        let heard: Vec<ReaderWord> = lines(&bytes).into_iter().map(Result::unwrap).collect();
        prop_assert_eq!(&heard[..], &told[..]);
    }

    #[test]
    fn nonsense_is_an_end_and_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        lines(&bytes);
    }
}
