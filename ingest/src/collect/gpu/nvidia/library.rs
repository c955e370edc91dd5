//! NVML (`libnvidia-ml.so.1`): its calls, and what an error of one means.
//!
//! The one idea: what a GPU does not have is not asked again. So each value of each GPU remembers whether to ask, and a
//! GPU that is lost is asked by its number once a minute. Everything here may take long, hang or crash, which is why it
//! runs in a process of its own. Units and traps are those of NVIDIA's NVML reference.

use std::collections::BTreeMap;
use std::time::Duration;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{Clock as ClockKind, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id;
use nvml_wrapper::{Device, EventSet, GpmSample, Nvml};

use super::frames::{
    CARD_PROCESSES_MAX, CARDS_MAX, GpmProfile, NvidiaCard, NvidiaReading, OffCause, ReaderOrder, ReaderQuestion,
    Throttled, XIDS_MAX,
};

/// How often a GPU that is lost is asked for, and the number of GPUs.
const SEARCH_INTERVAL: Duration = Duration::from_secs(60);
/// GPM needs that long between two samples.
const PROFILE_INTERVAL_MIN: Duration = Duration::from_millis(100);
/// The error of a struct whose version the driver does not know. The crate has no name for it.
const VERSION_UNKNOWN: u32 = 25;
/// What GPM counts links in.
const MEBIBYTE: f64 = (1 << 20) as f64;

/// Why clocks are held down, and the fields that count it, in nanoseconds. NVIDIA renumbered some of them; the crate
/// translates.
const THROTTLE_FIELDS: [(usize, u32); 4] = [
    (POWER, field_id::NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP),
    (HEAT, field_id::NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN),
    (HEAT, field_id::NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN),
    (HARDWARE, field_id::NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN),
];
const POWER: usize = 0;
const HEAT: usize = 1;
const HARDWARE: usize = 2;

/// Why nothing can be asked any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Off {
    pub why: String,
    pub cause: OffCause,
}

impl Off {
    fn of(error: &NvmlError) -> Option<Self> {
        let cause = match error {
            NvmlError::DriverNotLoaded => OffCause::NoDriver,
            NvmlError::LibRmVersionMismatch => OffCause::Mismatch,
            NvmlError::Uninitialized => OffCause::Other,
            _ => return None,
        };
        Some(Self { why: error.to_string(), cause })
    }
}

/// What a failed call means for its GPU.
#[derive(Debug, PartialEq, Eq)]
enum CallFailure {
    /// This GPU never has it.
    Never,
    /// This user may not ask for it.
    Refused,
    /// The GPU is gone until somebody resets it.
    Lost,
    /// Not this time.
    Passing,
    Off(Off),
}

fn meaning(error: &NvmlError) -> CallFailure {
    if let Some(off) = Off::of(error) {
        return CallFailure::Off(off);
    }
    match error {
        NvmlError::NotSupported
        | NvmlError::FailedToLoadSymbol(_)
        | NvmlError::FunctionNotFound
        | NvmlError::InvalidArg
        | NvmlError::UnexpectedVariant(VERSION_UNKNOWN) => CallFailure::Never,
        NvmlError::NoPermission => CallFailure::Refused,
        NvmlError::GpuLost | NvmlError::ResetRequired | NvmlError::IrqIssue => CallFailure::Lost,
        _ => CallFailure::Passing,
    }
}

/// The calls whose outcome is remembered for each GPU.
#[derive(Clone, Copy, Debug)]
enum LibraryCall {
    Utilization,
    Memory,
    Power,
    Energy,
    Temperature,
    SmClock,
    MemoryClock,
    Limit,
    Fields,
    ThrottleReasons,
    Corrected,
    Uncorrected,
    Replays,
    Profile,
    Events,
    Processes,
    Partitions,
}

/// By [`LibraryCall`], for people.
const CALLS: [&str; 17] = [
    "utilization",
    "memory",
    "power",
    "energy",
    "temperature",
    "the clock of its multiprocessors",
    "the clock of its memory",
    "its power limit",
    "field values",
    "throttling",
    "corrected memory errors",
    "uncorrected memory errors",
    "PCIe replays",
    "GPM",
    "Xids",
    "processes",
    "MIG",
];

/// The loaded library and its GPUs.
#[derive(Debug)]
pub struct NvmlLibrary {
    nvml: &'static Nvml,
    level: u8,
    cards: Vec<Card>,
    /// As [`Nvml::device_count`] said.
    count: u32,
    searched: Duration,
    /// GPUs that were not looked for.
    left_out: Vec<u32>,
}

#[derive(Debug)]
struct Card {
    about: NvidiaCard,
    state: CardState,
    unasked: [bool; CALLS.len()],
    /// Fields of [`THROTTLE_FIELDS`] that this GPU does not count.
    uncounted: [bool; 3],
    has_memory_temperature: bool,
    /// It is divided into instances, each with memory of its own.
    is_partitioned: bool,
    /// When reasons of throttling were asked.
    asked: Option<Duration>,
    gpm: Option<(GpmSample<'static>, Duration)>,
    events: Option<EventSet<'static>>,
}

#[derive(Debug)]
enum CardState {
    Ready(Device<'static>),
    Lost {
        asked: Duration,
    },
    /// It may not be asked.
    Closed,
}

impl Card {
    fn new(about: NvidiaCard, state: CardState) -> Self {
        Self {
            about,
            state,
            unasked: [false; CALLS.len()],
            uncounted: [false; 3],
            has_memory_temperature: true,
            is_partitioned: false,
            asked: None,
            gpm: None,
            events: None,
        }
    }
}

impl NvmlLibrary {
    /// Loads it and looks for GPUs. `now`: monotonic.
    ///
    /// # Errors
    /// Why nothing can be asked.
    pub fn load(order: &ReaderOrder, now: Duration, alive: AliveSign<'_>) -> Result<Self, Off> {
        let loaded = match &order.library {
            Some(path) => Nvml::builder().lib_path(path.as_ref()).init(),
            None => Nvml::init(),
        };
        let nvml = loaded.map_err(|error| {
            Off::of(&error).unwrap_or_else(|| Off {
                why: error.to_string(),
                cause: match error {
                    NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => OffCause::NoLibrary,
                    NvmlError::NoPermission => OffCause::NoPermission,
                    _ => OffCause::Other,
                },
            })
        })?;
        // There is one for as long as the process lives. Dropped, it would panic where the library lacks a symbol.
        let nvml: &'static Nvml = Box::leak(Box::new(nvml));
        let mut library =
            Self { nvml, level: order.level, cards: Vec::new(), count: 0, searched: now, left_out: Vec::new() };
        library.search(now, &order.left_out, alive)?;
        Ok(library)
    }

    pub fn driver(&self) -> String {
        self.nvml.sys_driver_version().unwrap_or_default()
    }

    pub fn cards(&self) -> Vec<NvidiaCard> {
        self.cards.iter().map(|card| card.about.clone()).collect()
    }

    /// Looks for GPUs again where that is due; whether there are other ones now.
    ///
    /// # Errors
    /// Why nothing can be asked any more.
    pub fn search_again(&mut self, now: Duration, left_out: &[u32], alive: AliveSign<'_>) -> Result<bool, Off> {
        let is_given_back = self.left_out.iter().any(|index| !left_out.contains(index));
        if now.saturating_sub(self.searched) < SEARCH_INTERVAL && !is_given_back {
            return Ok(false);
        }
        self.search(now, left_out, alive)
    }

    /// Whether something was found. Each GPU has a turn already when it is opened and asked who it is: that may hang or
    /// crash too, and must not cost those that answer.
    fn search(&mut self, now: Duration, left_out: &[u32], alive: AliveSign<'_>) -> Result<bool, Off> {
        self.searched = now;
        self.left_out = left_out.to_vec();
        alive(None);
        let count = match self.nvml.device_count() {
            Ok(count) => count,
            Err(error) => match meaning(&error) {
                CallFailure::Off(off) => return Err(off),
                _ => self.count,
            },
        };
        self.count = count;
        let mut is_new = false;
        for index in 0..count.min(CARDS_MAX as u32) {
            let known = self.cards.iter().position(|card| card.about.index == index);
            if known.is_some_and(|at| !self.is_closed(at)) || left_out.contains(&index) {
                continue;
            }
            alive(Some(index));
            let found = match self.nvml.device_by_index(index) {
                Ok(device) => Some(Card::new(describe(&device, index, alive), CardState::Ready(device))),
                Err(error) => unopened(index, &error, now)?,
            };
            let Some(card) = found else { continue };
            match known {
                Some(_) if matches!(card.state, CardState::Closed) => {}
                Some(at) => {
                    self.cards[at] = card;
                    is_new = true;
                }
                None => {
                    self.cards.push(card);
                    is_new = true;
                }
            }
        }
        alive(None);
        self.cards.sort_by_key(|card| card.about.index);
        Ok(is_new)
    }

    /// Whether that GPU may not be asked.
    pub fn is_closed(&self, at: usize) -> bool {
        matches!(self.cards[at].state, CardState::Closed)
    }

    /// How many GPUs there are to read.
    pub fn len(&self) -> usize {
        self.cards.len()
    }

    /// The number of a GPU in the library.
    pub fn index(&self, at: usize) -> u32 {
        self.cards[at].about.index
    }

    /// Asks one GPU for everything. `now`: monotonic.
    ///
    /// # Errors
    /// Why nothing can be asked any more.
    pub fn read(
        &mut self,
        at: usize,
        question: &ReaderQuestion,
        now: Duration,
        alive: AliveSign<'_>,
    ) -> Result<CardAnswer, Off> {
        let (nvml, level) = (self.nvml, self.level);
        let card = &mut self.cards[at];
        let refused = card.about.refused.len();
        let mut reading = NvidiaReading { card: card.about.index, ..NvidiaReading::default() };
        let mut is_news = false;
        if let CardState::Lost { asked } = &mut card.state {
            if now.saturating_sub(*asked) < SEARCH_INTERVAL {
                return Ok(CardAnswer { reading, is_news });
            }
            *asked = now;
            alive(Some(card.about.index));
            let device = match nvml.device_by_index(card.about.index) {
                Ok(device) => device,
                Err(error) => match meaning(&error) {
                    CallFailure::Off(off) => return Err(off),
                    _ => return Ok(CardAnswer { reading, is_news }),
                },
            };
            if card.about.uuid.is_empty() {
                // It was lost before anybody asked who it is.
                card.about = describe(&device, card.about.index, alive);
                is_news = true;
            }
            card.state = CardState::Ready(device);
        }
        let is_lost = {
            let Card { about, state, unasked, uncounted, has_memory_temperature, is_partitioned, asked, gpm, events } =
                card;
            let CardState::Ready(device) = state else { return Ok(CardAnswer { reading, is_news }) };
            let mut asking = CardRound { about, unasked, alive, answered: false, lost: false, off: None };
            asking.level_2(device, &mut reading);
            reading.instances = asking.instances(device, question, is_partitioned);
            if level >= 3 {
                asking.level_3(device, question, &mut reading);
                asking.throttling(device, now, uncounted, has_memory_temperature, asked, &mut reading);
                reading.profile = asking.profile(nvml, device, now, gpm);
                reading.xids = asking.xids(nvml, device, events);
            }
            if level >= 4 {
                reading.processes = asking.processes(device);
            }
            reading.up = asking.answered && !asking.lost;
            if let Some(off) = asking.off {
                return Err(off);
            }
            asking.lost
        };
        if is_lost {
            reading = NvidiaReading { card: card.about.index, xids: reading.xids, ..NvidiaReading::default() };
            card.state = CardState::Lost { asked: now };
            (card.asked, card.gpm, card.events) = (None, None, None);
        }
        is_news |= card.about.refused.len() > refused;
        Ok(CardAnswer { reading, is_news })
    }
}

/// Called before each call of the library, with the GPU whose turn it is.
pub type AliveSign<'a> = &'a mut dyn FnMut(Option<u32>);

/// What was read of a GPU.
#[derive(Debug)]
pub struct CardAnswer {
    pub reading: NvidiaReading,
    /// Something was refused for the first time, or it is known now who the GPU is.
    pub is_news: bool,
}

/// A GPU that the library counts and does not open; `None` where there is none after all.
fn unopened(index: u32, error: &NvmlError, now: Duration) -> Result<Option<Card>, Off> {
    let about = NvidiaCard { index, ..NvidiaCard::default() };
    Ok(match meaning(error) {
        CallFailure::Off(off) => return Err(off),
        // It belongs to another job.
        CallFailure::Refused => Some(Card::new(NvidiaCard { is_closed: true, ..about }, CardState::Closed)),
        CallFailure::Never => None,
        // Lost since before we came. Off its bus, the library also says that the error is unknown.
        CallFailure::Lost | CallFailure::Passing => Some(Card::new(about, CardState::Lost { asked: now })),
    })
}

fn describe(device: &Device<'static>, index: u32, alive: AliveSign<'_>) -> NvidiaCard {
    let mut turn = || alive(Some(index));
    let mut about = NvidiaCard { index, ..NvidiaCard::default() };
    turn();
    about.uuid = device.uuid().unwrap_or_default();
    turn();
    about.name = device.name().unwrap_or_default();
    turn();
    about.pci = device.pci_info().map(|pci| pci_address(&pci.bus_id)).unwrap_or_default();
    turn();
    about.serial = device.serial().unwrap_or_default();
    turn();
    about.vbios = device.vbios_version().unwrap_or_default();
    turn();
    about.memory_bytes = device.memory_info().ok().map(|memory| memory.total);
    turn();
    about.limit_milliwatts = device.enforced_power_limit().ok();
    about
}

/// The library writes eight digits of the domain in capitals, the kernel four in small letters.
pub fn pci_address(of_library: &str) -> String {
    let small = of_library.trim().to_ascii_lowercase();
    match small.split_once(':') {
        Some((domain, rest)) if domain.len() > 4 && domain.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            let short = domain.trim_start_matches('0');
            format!("{short:0>4}:{rest}")
        }
        _ => small,
    }
}

/// One round of questions to one GPU.
struct CardRound<'a, 'b> {
    about: &'a mut NvidiaCard,
    alive: AliveSign<'b>,
    unasked: &'a mut [bool; CALLS.len()],
    answered: bool,
    lost: bool,
    off: Option<Off>,
}

impl CardRound<'_, '_> {
    fn ask<T>(&mut self, call: LibraryCall, answer: impl FnOnce() -> Result<T, NvmlError>) -> Option<T> {
        if self.lost || self.off.is_some() || self.unasked[call as usize] {
            return None;
        }
        (self.alive)(Some(self.about.index));
        match answer() {
            Ok(value) => {
                self.answered = true;
                Some(value)
            }
            Err(error) => {
                self.failed(call, &error);
                None
            }
        }
    }

    fn failed(&mut self, call: LibraryCall, error: &NvmlError) {
        match meaning(error) {
            // It did answer.
            CallFailure::Never => (self.unasked[call as usize], self.answered) = (true, true),
            CallFailure::Refused => {
                (self.unasked[call as usize], self.answered) = (true, true);
                self.about.refused.push(CALLS[call as usize].to_owned());
            }
            CallFailure::Lost => self.lost = true,
            CallFailure::Passing => {}
            CallFailure::Off(off) => self.off = Some(off),
        }
    }

    fn level_2(&mut self, device: &Device<'static>, reading: &mut NvidiaReading) {
        if let Some(rates) = self.ask(LibraryCall::Utilization, || device.utilization_rates()) {
            reading.utilization = Some(rates.gpu);
            reading.memory_activity = Some(rates.memory);
        }
        // What it calls used includes in some versions what the driver keeps for itself, and in others not.
        let memory = self.ask(LibraryCall::Memory, || device.memory_info());
        reading.memory = memory.map(|memory| [memory.total.saturating_sub(memory.free), memory.total]);
        reading.power_milliwatts = self.ask(LibraryCall::Power, || device.power_usage());
        reading.energy_millijoules = self.ask(LibraryCall::Energy, || device.total_energy_consumption());
        reading.temperature = self.ask(LibraryCall::Temperature, || device.temperature(TemperatureSensor::Gpu));
    }

    /// Where the GPU is partitioned now. Of instances NVML tells memory, but no utilisation, power or temperature.
    fn instances(
        &mut self,
        device: &Device<'static>,
        question: &ReaderQuestion,
        is_partitioned: &mut bool,
    ) -> Option<Vec<(u32, [u64; 2])>> {
        if question.rare {
            *is_partitioned =
                self.ask(LibraryCall::Partitions, || device.mig_mode()).is_some_and(|mode| mode.current != 0);
        }
        if !*is_partitioned {
            return None;
        }
        let places = self.ask(LibraryCall::Partitions, || device.mig_device_count())?;
        let mut instances = Vec::new();
        for place in 0..places.min(CARDS_MAX as u32) {
            (self.alive)(Some(self.about.index));
            // Most places are empty.
            let Ok(instance) = device.mig_device_by_index(place) else { continue };
            (self.alive)(Some(self.about.index));
            if let Ok(memory) = instance.memory_info() {
                instances.push((place, [memory.total.saturating_sub(memory.free), memory.total]));
            }
        }
        Some(instances)
    }

    fn level_3(&mut self, device: &Device<'static>, question: &ReaderQuestion, reading: &mut NvidiaReading) {
        reading.sm_megahertz = self.ask(LibraryCall::SmClock, || device.clock_info(ClockKind::SM));
        reading.memory_megahertz = self.ask(LibraryCall::MemoryClock, || device.clock_info(ClockKind::Memory));
        if !question.rare {
            return;
        }
        reading.limit_milliwatts = self.ask(LibraryCall::Limit, || device.enforced_power_limit());
        let errors =
            [(LibraryCall::Corrected, MemoryError::Corrected), (LibraryCall::Uncorrected, MemoryError::Uncorrected)]
                .map(|(call, kind)| self.ask(call, || device.total_ecc_errors(kind, EccCounter::Volatile)));
        reading.memory_errors = errors.iter().any(Option::is_some).then_some(errors);
        reading.replays = self.ask(LibraryCall::Replays, || device.pcie_replay_counter());
    }

    /// As the driver counts it; what it does not count is estimated from the reasons that it gives now.
    fn throttling(
        &mut self,
        device: &Device<'static>,
        now: Duration,
        uncounted: &mut [bool; 3],
        has_memory_temperature: &mut bool,
        asked: &mut Option<Duration>,
        reading: &mut NvidiaReading,
    ) {
        let mut ids: Vec<FieldId> = Vec::with_capacity(THROTTLE_FIELDS.len() + 1);
        let counted: Vec<(usize, u32)> =
            THROTTLE_FIELDS.into_iter().filter(|(reason, _)| !uncounted[*reason]).collect();
        ids.extend(counted.iter().map(|(_, id)| FieldId(*id)));
        if *has_memory_temperature {
            ids.push(FieldId(field_id::NVML_FI_DEV_MEMORY_TEMP));
        }
        let mut nanos: [Option<u64>; 3] = [None; 3];
        let mut partial = [false; 3];
        if ids.is_empty() {
            // Nothing of it is there.
        } else if let Some(values) = self.ask(LibraryCall::Fields, || device.field_values_for(&ids)) {
            let mut values = values.into_iter().map(|value| value.and_then(|sample| sample.value));
            for ((reason, _), value) in counted.iter().zip(&mut values) {
                match value {
                    Ok(value) => {
                        let sum = unsigned(&value).and_then(|n| n.checked_add(nanos[*reason].unwrap_or(0)));
                        nanos[*reason] = sum;
                        partial[*reason] |= sum.is_none();
                    }
                    // One part alone is no sum: the counter would fall by the other, and rise by it again.
                    Err(error) => match meaning(&error) {
                        CallFailure::Lost => self.lost = true,
                        CallFailure::Passing | CallFailure::Off(_) => partial[*reason] = true,
                        // Of two parts of a reason both must be there.
                        CallFailure::Never | CallFailure::Refused => uncounted[*reason] = true,
                    },
                }
            }
            for (nanos, _) in nanos.iter_mut().zip(partial).filter(|(_, partial)| *partial) {
                *nanos = None;
            }
            match values.next() {
                Some(Ok(value)) => {
                    reading.memory_temperature =
                        unsigned(&value).and_then(|celsius| u32::try_from(celsius).ok()).filter(|celsius| *celsius > 0);
                }
                Some(Err(error)) if matches!(meaning(&error), CallFailure::Never | CallFailure::Refused) => {
                    *has_memory_temperature = false;
                }
                _ => {}
            }
        }
        if self.unasked[LibraryCall::Fields as usize] {
            *uncounted = [true; 3];
        }
        let mut throttled = [Throttled::Unknown; 3];
        for (place, nanos) in
            throttled.iter_mut().zip(nanos).zip(&*uncounted).filter_map(|(both, no)| (!no).then_some(both))
        {
            if let Some(nanos) = nanos {
                *place = Throttled::Nanos(nanos);
            }
        }
        if uncounted.contains(&true)
            && let Some(reasons) = self.ask(LibraryCall::ThrottleReasons, || device.current_throttle_reasons())
        {
            let since = asked.replace(now).map_or(Duration::ZERO, |before| now.saturating_sub(before));
            for (reason, place) in throttled.iter_mut().enumerate().filter(|(reason, _)| uncounted[*reason]) {
                let more = if holds(reasons, reason) { since } else { Duration::ZERO };
                *place = Throttled::MoreMicros(u64::try_from(more.as_micros()).unwrap_or(0));
            }
        }
        reading.throttled = (throttled != [Throttled::Unknown; 3]).then_some(throttled);
    }

    fn profile(
        &mut self,
        nvml: &'static Nvml,
        device: &Device<'static>,
        now: Duration,
        before: &mut Option<(GpmSample<'static>, Duration)>,
    ) -> Option<GpmProfile> {
        if before.is_none() {
            let supported = self.ask(LibraryCall::Profile, || device.gpm_support())?;
            if !supported {
                self.unasked[LibraryCall::Profile as usize] = true;
                return None;
            }
        }
        if before.as_ref().is_some_and(|(_, at)| now.saturating_sub(*at) < PROFILE_INTERVAL_MIN) {
            return None;
        }
        let sample = self.ask(LibraryCall::Profile, || device.gpm_sample())?;
        let profile = before.as_ref().and_then(|(first, at)| {
            let seconds = now.saturating_sub(*at).as_secs_f64();
            let ids = [
                GpmMetricId::SmUtil,
                GpmMetricId::SmOccupancy,
                GpmMetricId::AnyTensorUtil,
                GpmMetricId::DramBwUtil,
                GpmMetricId::NvlinkTotalRxPerSec,
                GpmMetricId::NvlinkTotalTxPerSec,
            ];
            let values = self.ask(LibraryCall::Profile, || gpm_metrics_get(nvml, first, &sample, &ids))?;
            let mut values = values.into_iter().map(|value| Some(value.ok()?.value).filter(|value| value.is_finite()));
            let mut next = || values.next().flatten();
            let (sm_active, sm_occupancy, tensor_active, memory_bandwidth) = (next(), next(), next(), next());
            let link_bytes = [next(), next()].map(|rate| rate.map(|rate| (rate * MEBIBYTE * seconds).max(0.0) as u64));
            Some(GpmProfile { sm_active, sm_occupancy, tensor_active, memory_bandwidth, link_bytes })
        });
        *before = Some((sample, now));
        profile
    }

    /// Those since the call before; it does not wait for any.
    fn xids(
        &mut self,
        nvml: &'static Nvml,
        device: &Device<'static>,
        events: &mut Option<EventSet<'static>>,
    ) -> Vec<(u64, u64)> {
        if events.is_none() {
            let registered = self.ask(LibraryCall::Events, || {
                let set = nvml.create_event_set()?;
                device.register_events(EventTypes::CRITICAL_XID_ERROR, set).map_err(|error| error.error)
            });
            // Where it fails for whatever reason, it is not asked again: the set costs the driver memory.
            self.unasked[LibraryCall::Events as usize] |= registered.is_none();
            *events = registered;
        }
        let Some(events) = events else { return Vec::new() };
        let mut xids = BTreeMap::<u64, u64>::new();
        for _ in 0..XIDS_MAX {
            match events.wait(0) {
                Ok(event) => match event.event_data {
                    Some(XidError::Value(xid)) => *xids.entry(xid).or_default() += 1,
                    Some(XidError::Unknown) => *xids.entry(999).or_default() += 1,
                    None => {}
                },
                // The end of them; the others are told by the calls above.
                Err(_) => break,
            }
        }
        xids.into_iter().collect()
    }

    fn processes(&mut self, device: &Device<'static>) -> Option<Vec<(u32, u64)>> {
        let processes = self.ask(LibraryCall::Processes, || device.running_compute_processes())?;
        // Of processes in other containers there is neither number nor memory.
        let known = processes.iter().filter_map(|process| match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) if process.pid > 0 => Some((process.pid, bytes)),
            _ => None,
        });
        Some(known.take(CARD_PROCESSES_MAX).collect())
    }
}

fn holds(reasons: ThrottleReasons, reason: usize) -> bool {
    let hot = ThrottleReasons::HW_THERMAL_SLOWDOWN;
    match reason {
        POWER => reasons.contains(ThrottleReasons::SW_POWER_CAP),
        HEAT => reasons.intersects(ThrottleReasons::SW_THERMAL_SLOWDOWN | hot),
        // A slowdown by hardware is also given beside its two causes.
        _ => {
            reasons.contains(ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN)
                || reasons.contains(ThrottleReasons::HW_SLOWDOWN) && !reasons.contains(hot)
        }
    }
}

fn unsigned(value: &SampleValue) -> Option<u64> {
    match value {
        SampleValue::U32(value) => Some(u64::from(*value)),
        SampleValue::U64(value) => Some(*value),
        SampleValue::I64(value) => u64::try_from(*value).ok(),
        SampleValue::F64(value) if *value >= 0.0 && *value < 9e18 => Some(*value as u64),
        SampleValue::F64(_) => None,
    }
}
