//! What telem and its reader say to each other: JSON, a line each.
//!
//! The one idea: a line is bounded, and one that is no such JSON ends the talk, so that a reader whose memory its library
//! has overwritten can do no harm. Numbers stay in the units of the library; who asks makes base units of them.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest line. A GPU with 7 instances and 1,024 processes has 40 kB.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// Most GPUs of a node that are read; those beyond are left out.
pub const CARDS_MAX: usize = 64;
/// Most processes of a GPU, and most kinds of Xid in one answer.
pub const CARD_PROCESSES_MAX: usize = 1_024;
pub const XIDS_MAX: usize = 64;

/// The first line that a reader gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderOrder {
    pub level: u8,
    /// Where the library is, if not where the system has it.
    pub library: Option<String>,
    /// As [`ReaderQuestion::left_out`]: of these not even who they are is asked.
    #[serde(default)]
    pub left_out: Vec<u32>,
}

/// Asks for the readings of all GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderQuestion {
    pub number: u64,
    /// What changes rarely is asked too: limits, memory errors, partitions.
    pub rare: bool,
    /// GPUs in which a call hung or crashed, by their number in the library.
    pub left_out: Vec<u32>,
}

/// What a reader says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ReaderWord {
    /// What is there: at the start, and when it changed.
    Cards { driver: String, cards: Vec<NvidiaCard> },
    /// Of one GPU, in the order of their numbers.
    Reading(Box<NvidiaReading>),
    /// It is about to call the library, for this GPU where it is one's turn, and the call before took long.
    Alive { card: Option<u32> },
    /// All that there is to say to this question.
    Done { number: u64 },
    /// Nothing can be asked at all. It ends.
    Off { why: String, cause: OffCause },
}

/// Why nothing can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OffCause {
    /// There is no library, or a program without dynamic loading.
    NoLibrary,
    NoDriver,
    /// Library and kernel module are of different versions.
    Mismatch,
    NoPermission,
    /// It must be started anew.
    Other,
}

/// A GPU that the library counts. One that it cannot open is a number alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvidiaCard {
    /// Its number in the library.
    pub index: u32,
    pub uuid: String,
    pub name: String,
    /// As the kernel writes it, `0000:07:00.0`.
    pub pci: String,
    pub serial: String,
    pub vbios: String,
    pub memory_bytes: Option<u64>,
    pub limit_milliwatts: Option<u32>,
    /// Calls that this user may not make.
    pub refused: Vec<String>,
    /// Nothing of it may be asked: it is not this user's, or not this job's.
    #[serde(default)]
    pub is_closed: bool,
}

/// What a GPU says of itself at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NvidiaReading {
    pub card: u32,
    /// It answered.
    pub up: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_activity: Option<u32>,
    /// Used and all, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<[u64; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_milliwatts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_millijoules: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_megahertz: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_megahertz: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_temperature: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_milliwatts: Option<u32>,
    /// By power, heat and hardware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled: Option<[Throttled; 3]>,
    /// Corrected and not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_errors: Option<[Option<u64>; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replays: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<GpmProfile>,
    /// Since the answer before: which Xid, how often.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub xids: Vec<(u64, u64)>,
    /// Process, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<(u32, u64)>>,
    /// Where the GPU is partitioned: number of the instance, used and all in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<Vec<(u32, [u64; 2])>>,
}

/// How long clocks were held down for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Throttled {
    #[default]
    Unknown,
    /// As the driver counts it.
    Nanos(u64),
    /// More since the answer before, estimated: the reason was given at its end.
    MoreMicros(u64),
}

/// What GPM measured between two questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpmProfile {
    pub sm_active: Option<f64>,
    pub sm_occupancy: Option<f64>,
    pub tensor_active: Option<f64>,
    pub memory_bandwidth: Option<f64>,
    /// Over all links in that time, received and transmitted.
    pub link_bytes: [Option<u64>; 2],
}

/// # Errors
/// The other side is gone.
pub fn say(to: &mut impl Write, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Lines out of a stream.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// Up to where there is no line end.
    searched: usize,
}

impl FrameBuffer {
    /// The next whole line that was read already.
    ///
    /// # Errors
    /// One that is too long, or not what it should be.
    pub fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some(length) = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.bytes.len();
            if self.bytes.len() - self.start > LINE_BYTES_MAX {
                return Err(nonsense());
            }
            return Ok(None);
        };
        let end = self.searched + length;
        let line = &self.bytes[self.start..end];
        let told = if line.len() > LINE_BYTES_MAX { Err(nonsense()) } else { Ok(serde_json::from_slice(line)?) };
        (self.start, self.searched) = (end + 1, end + 1);
        told.map(Some)
    }

    /// Reads what there is, once.
    ///
    /// # Errors
    /// Those of the stream; `UnexpectedEof` at its end.
    pub fn fill(&mut self, from: &mut impl Read) -> io::Result<()> {
        self.bytes.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        let mut piece = [0; 8 << 10];
        match from.read(&mut piece)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.bytes.extend_from_slice(&piece[..read]);
                Ok(())
            }
        }
    }
}

fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a line beyond its limit")
}
