//! What telem and its reader say to each other: JSON, a line each.
//!
//! The one idea: a line is bounded, and one that is no such JSON ends the talk, so that a reader whose memory its library
//! has overwritten can do no harm. Numbers stay in the units of the library; who asks makes base units of them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use serde::de::DeserializeOwned;
use serde::ser::SerializeTuple;
use serde::{Deserialize, Serialize, Serializer};

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

/// What a GPU says of itself at one time. In a line it is a list of its fields: to write and to read their names takes
/// longer than the values.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NvidiaReading {
    pub card: u32,
    /// It answered.
    pub up: bool,
    pub utilization: Option<u32>,
    pub memory_activity: Option<u32>,
    /// Used and all, in bytes.
    pub memory: Option<[u64; 2]>,
    pub power_milliwatts: Option<u32>,
    pub energy_millijoules: Option<u64>,
    pub temperature: Option<u32>,
    pub sm_megahertz: Option<u32>,
    pub memory_megahertz: Option<u32>,
    pub memory_temperature: Option<u32>,
    pub limit_milliwatts: Option<u32>,
    /// By power, heat and hardware.
    pub throttled: Option<[Throttled; 3]>,
    /// Corrected and not.
    pub memory_errors: Option<[Option<u64>; 2]>,
    pub replays: Option<u32>,
    pub profile: Option<GpmProfile>,
    /// Since the answer before: which Xid, how often.
    pub xids: Vec<(u64, u64)>,
    /// Process, bytes.
    pub processes: Option<Vec<(u32, u64)>>,
    /// Where the GPU is partitioned: number of the instance, used and all in bytes.
    pub instances: Option<Vec<(u32, [u64; 2])>>,
}

impl Serialize for NvidiaReading {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            card,
            up,
            utilization,
            memory_activity,
            memory,
            power_milliwatts,
            energy_millijoules,
            temperature,
            sm_megahertz,
            memory_megahertz,
            memory_temperature,
            limit_milliwatts,
            throttled,
            memory_errors,
            replays,
            profile,
            xids,
            processes,
            instances,
        } = self;
        let mut list = serializer.serialize_tuple(19)?;
        list.serialize_element(card)?;
        list.serialize_element(up)?;
        list.serialize_element(utilization)?;
        list.serialize_element(memory_activity)?;
        list.serialize_element(memory)?;
        list.serialize_element(power_milliwatts)?;
        list.serialize_element(energy_millijoules)?;
        list.serialize_element(temperature)?;
        list.serialize_element(sm_megahertz)?;
        list.serialize_element(memory_megahertz)?;
        list.serialize_element(memory_temperature)?;
        list.serialize_element(limit_milliwatts)?;
        list.serialize_element(throttled)?;
        list.serialize_element(memory_errors)?;
        list.serialize_element(replays)?;
        list.serialize_element(profile)?;
        list.serialize_element(xids)?;
        list.serialize_element(processes)?;
        list.serialize_element(instances)?;
        list.end()
    }
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

/// In which GPU's turn the reader is: a file of memory that telem looks into when the reader hangs or dies. It holds the
/// number of the GPU and one more, and zero where it is nobody's turn.
#[derive(Debug)]
pub struct TurnNote(File);

impl TurnNote {
    /// # Errors
    /// Those of the system.
    pub fn new() -> io::Result<Self> {
        Ok(Self(File::from(rustix::fs::memfd_create("telem-turn", rustix::fs::MemfdFlags::CLOEXEC)?)))
    }

    /// The same note, for the other side.
    ///
    /// # Errors
    /// Those of the system.
    pub fn share(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// # Errors
    /// Those of the system.
    pub fn write(&self, card: Option<u32>) -> io::Result<()> {
        let number = card.map_or(0, |card| card.saturating_add(1));
        self.0.write_all_at(&number.to_le_bytes(), 0)
    }

    /// `None` where it is nobody's turn, and where the file was overwritten by something else.
    pub fn read(&self) -> Option<u32> {
        let mut number = [0; 4];
        self.0.read_exact_at(&mut number, 0).ok()?;
        u32::from_le_bytes(number).checked_sub(1).filter(|card| (*card as usize) < CARDS_MAX)
    }
}

impl From<File> for TurnNote {
    fn from(file: File) -> Self {
        Self(file)
    }
}

impl From<TurnNote> for OwnedFd {
    fn from(note: TurnNote) -> Self {
        note.0.into()
    }
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
