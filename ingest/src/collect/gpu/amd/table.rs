//! `gpu_metrics` of amdgpu: bytes in, numbers out.
//!
//! The one idea: a version is believed only if the table has the size of that version, because some were changed before
//! they were final. Versions 1.4 to 1.8 begin alike, and of one with another size only that beginning is taken. The
//! layouts are those of `struct gpu_metrics_v1_*` in the kernel's `kgd_pp_interface.h`, little endian. A number whose
//! bits are all ones is not available.

/// What a table tells, in its own units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AmdMetrics {
    /// °C.
    pub edge: Option<u16>,
    pub hotspot: Option<u16>,
    pub memory_temperature: Option<u16>,
    /// W.
    pub power: Option<u16>,
    /// %, at most 100.
    pub compute_activity: Option<u16>,
    pub memory_activity: Option<u16>,
    /// 2⁻¹⁶ J.
    pub energy: Option<u64>,
    /// MHz.
    pub compute_clock: Option<u16>,
    pub memory_clock: Option<u16>,
    /// KB over all links: read from other GPUs, and written to them.
    pub links: [Option<u64>; 2],
    pub residencies: Option<AmdResidencies>,
    /// The activity of each partition, in %; empty where the GPU is not partitioned.
    pub partitions: Vec<Option<u16>>,
}

/// How often the firmware found each reason to hold clocks down, and how often it looked. They wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AmdResidencies {
    pub looks: u32,
    /// Hardware: another part of the node asked for it.
    pub prochot: u32,
    /// The power limit.
    pub power: u32,
    /// Heat of the socket, of voltage regulators, of the memory.
    pub thermal: [u32; 3],
}

/// Where the fields of a version are.
#[derive(Clone, Copy, Debug)]
pub struct AmdLayout {
    /// The second half of the version; the first is 1.
    pub content: u8,
    pub size: u16,
    pub edge: Option<usize>,
    pub hotspot: usize,
    pub memory_temperature: usize,
    pub power: usize,
    /// That of the memory follows.
    pub compute_activity: usize,
    pub energy: usize,
    pub compute_clock: usize,
    pub memory_clock: usize,
    /// Eight links each.
    pub links: Option<[usize; 2]>,
    /// Six numbers.
    pub residencies: Option<usize>,
    pub partitions: Option<AmdPartitions>,
}

/// Where the partitions of a version are.
#[derive(Clone, Copy, Debug)]
pub struct AmdPartitions {
    pub count: usize,
    pub first: usize,
    /// From one to the next.
    pub stride: usize,
}

pub const LINKS: usize = 8;
pub const PARTITIONS_MAX: usize = 8;
/// Compute dies of a partition.
pub const DIES: usize = 8;
const FORMAT: u8 = 1;

/// All that versions 1.4 to 1.8 have in common.
const LATER: AmdLayout = AmdLayout {
    content: 0,
    size: 0,
    edge: None,
    hotspot: 4,
    memory_temperature: 6,
    power: 10,
    compute_activity: 12,
    energy: 0,
    compute_clock: 0,
    memory_clock: 0,
    links: None,
    residencies: None,
    partitions: None,
};

pub const LAYOUTS: [AmdLayout; 6] = [
    AmdLayout {
        content: 3,
        size: 120,
        edge: Some(4),
        hotspot: 6,
        memory_temperature: 8,
        power: 22,
        compute_activity: 16,
        energy: 24,
        compute_clock: 54,
        memory_clock: 58,
        ..LATER
    },
    AmdLayout {
        content: 4,
        size: 288,
        energy: 24,
        compute_clock: 240,
        memory_clock: 280,
        links: Some([104, 168]),
        ..LATER
    },
    AmdLayout {
        content: 5,
        size: 360,
        energy: 88,
        compute_clock: 312,
        memory_clock: 352,
        links: Some([176, 240]),
        ..LATER
    },
    AmdLayout {
        content: 6,
        size: 1_664,
        energy: 16,
        compute_clock: 264,
        memory_clock: 304,
        links: Some([128, 192]),
        residencies: Some(32),
        partitions: Some(AmdPartitions { count: 306, first: 312, stride: 168 }),
        ..LATER
    },
    AmdLayout {
        content: 7,
        size: 2_208,
        energy: 24,
        compute_clock: 296,
        memory_clock: 336,
        links: Some([136, 200]),
        residencies: Some(40),
        partitions: Some(AmdPartitions { count: 338, first: 344, stride: 232 }),
        ..LATER
    },
    AmdLayout {
        content: 8,
        size: 3_360,
        energy: 24,
        compute_clock: 296,
        memory_clock: 336,
        links: Some([136, 200]),
        residencies: Some(40),
        partitions: Some(AmdPartitions { count: 338, first: 344, stride: 376 }),
        ..LATER
    },
];

/// The table; `None` where nothing of it is known.
pub fn parse(table: &[u8]) -> Option<AmdMetrics> {
    let [low, high, format, content, ..] = *table else { return None };
    if format != FORMAT {
        return None;
    }
    let size = u16::from_le_bytes([low, high]);
    let layout = LAYOUTS.iter().find(|layout| layout.content == content)?;
    let table = table.get(..usize::from(size))?;
    if size == layout.size {
        return Some(layout.parse(table));
    }
    let begins_alike = content > 3 && table.len() >= LATER.compute_activity + 4;
    begins_alike.then(|| LATER.parse_beginning(table))
}

impl AmdLayout {
    fn parse(&self, table: &[u8]) -> AmdMetrics {
        AmdMetrics {
            edge: self.edge.and_then(|at| u16_at(table, at)),
            energy: u64_at(table, self.energy),
            compute_clock: u16_at(table, self.compute_clock),
            memory_clock: u16_at(table, self.memory_clock),
            links: self.links.map_or([None; 2], |links| links.map(|first| sum_of_links(table, first))),
            residencies: self.residencies.and_then(|first| residencies_at(table, first)),
            partitions: self.partitions.map_or_else(Vec::new, |partitions| partitions.parse(table)),
            ..self.parse_beginning(table)
        }
    }

    fn parse_beginning(&self, table: &[u8]) -> AmdMetrics {
        let percent = |at| u16_at(table, at).filter(|percent| *percent <= 100);
        AmdMetrics {
            hotspot: u16_at(table, self.hotspot),
            memory_temperature: u16_at(table, self.memory_temperature),
            power: u16_at(table, self.power),
            compute_activity: percent(self.compute_activity),
            memory_activity: percent(self.compute_activity + 2),
            ..AmdMetrics::default()
        }
    }
}

impl AmdPartitions {
    /// The mean over the dies of each partition, cut to whole percent as those of the whole GPU are.
    fn parse(&self, table: &[u8]) -> Vec<Option<u16>> {
        let count = u16_at(table, self.count).map_or(0, usize::from);
        if !(2..=PARTITIONS_MAX).contains(&count) {
            return Vec::new();
        }
        let activity = |partition| {
            let first = self.first + partition * self.stride;
            let dies = (0..DIES).filter_map(|die| u32_at(table, first + 4 * die).filter(|percent| *percent <= 100));
            let (sum, dies) = dies.fold((0, 0), |(sum, dies), percent| (sum + percent, dies + 1));
            u16::try_from(sum.checked_div(dies)?).ok()
        };
        (0..count).map(activity).collect()
    }
}

fn sum_of_links(table: &[u8], first: usize) -> Option<u64> {
    let links = (0..LINKS).filter_map(|link| u64_at(table, first + 8 * link));
    links.fold(None, |sum, link| Some(sum.unwrap_or(0u64).saturating_add(link)))
}

fn residencies_at(table: &[u8], first: usize) -> Option<AmdResidencies> {
    let of = |place: usize| u32_at(table, first + 4 * place);
    Some(AmdResidencies { looks: of(0)?, prochot: of(1)?, power: of(2)?, thermal: [of(3)?, of(4)?, of(5)?] })
}

fn u16_at(table: &[u8], at: usize) -> Option<u16> {
    let bytes = table.get(at..at + 2)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?)).filter(|number| *number != u16::MAX)
}

fn u32_at(table: &[u8], at: usize) -> Option<u32> {
    let bytes = table.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?)).filter(|number| *number != u32::MAX)
}

fn u64_at(table: &[u8], at: usize) -> Option<u64> {
    let bytes = table.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?)).filter(|number| *number != u64::MAX)
}
