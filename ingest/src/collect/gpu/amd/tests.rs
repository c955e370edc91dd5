//! Tables of each version byte by byte, what is taken where there is none, and residencies as time.

use telem_engine::Timestamp;

use super::table::{AmdMetrics, AmdResidencies, LAYOUTS, parse};
use super::{AmdThrottled, joules, parse_errors};

/// A table of that version in which nothing is available.
fn table(size: u16, content: u8) -> Vec<u8> {
    let mut table = vec![0xff; usize::from(size)];
    put(&mut table, 0, &size.to_le_bytes());
    put(&mut table, 2, &[1, content]);
    table
}

fn put(table: &mut [u8], at: usize, bytes: &[u8]) {
    table[at..at + bytes.len()].copy_from_slice(bytes);
}

#[test]
fn a_table_of_mi300_is_read_from_its_bytes() {
    let mut mi300 = table(360, 5);
    let head = [0x68, 0x01, 0x01, 0x05, 0x3d, 0, 0x36, 0, 0x30, 0, 0x9c, 0x01, 0x57, 0, 0x21, 0];
    put(&mut mi300, 0, &head);
    put(&mut mi300, 88, &[0, 0, 0xb0, 0xad, 1, 0, 0, 0]);
    put(&mut mi300, 312, &[0x34, 0x08]);
    put(&mut mi300, 352, &[0x14, 0x05]);
    let expected = AmdMetrics {
        hotspot: Some(61),
        memory_temperature: Some(54),
        power: Some(412),
        compute_activity: Some(87),
        memory_activity: Some(33),
        energy: Some(7_208_960_000),
        compute_clock: Some(2_100),
        memory_clock: Some(1_300),
        ..AmdMetrics::default()
    };
    assert_eq!(parse(&mi300), Some(expected));
    assert_eq!(joules(7_208_960_000), 110_000.0);
}

#[test]
fn a_table_of_mi200_has_other_places() {
    let mut mi200 = table(120, 3);
    for (at, value) in [(4, 41u16), (6, 45), (8, 48), (16, 99), (18, 12), (22, 305), (54, 1_700), (58, 1_600)] {
        put(&mut mi200, at, &value.to_le_bytes());
    }
    put(&mut mi200, 24, &65_536_123u64.to_le_bytes());
    let expected = AmdMetrics {
        edge: Some(41),
        hotspot: Some(45),
        memory_temperature: Some(48),
        power: Some(305),
        compute_activity: Some(99),
        memory_activity: Some(12),
        energy: Some(65_536_123),
        compute_clock: Some(1_700),
        memory_clock: Some(1_600),
        ..AmdMetrics::default()
    };
    assert_eq!(parse(&mi200), Some(expected));
    assert_eq!(joules(65_536_123), 1_000.001, "to a thousandth, never more than there is");
}

#[test]
fn later_tables_have_links_residencies_and_partitions() {
    for (size, content, [energy, compute, memory, read, written, looks, count, first, stride]) in [
        (1_664, 6, [16, 264, 304, 128, 192, 32, 306, 312, 168]),
        (2_208, 7, [24, 296, 336, 136, 200, 40, 338, 344, 232]),
        (3_360, 8, [24, 296, 336, 136, 200, 40, 338, 344, 376]),
    ] {
        let mut later = table(size, content);
        put(&mut later, energy, &65_536u64.to_le_bytes());
        put(&mut later, compute, &2_000u16.to_le_bytes());
        put(&mut later, memory, &900u16.to_le_bytes());
        put(&mut later, read, &7u64.to_le_bytes());
        put(&mut later, read + 56, &8u64.to_le_bytes());
        put(&mut later, written + 8, &9u64.to_le_bytes());
        for (at, number) in [1_000u32, 1, 2, 3, 4, 5].into_iter().enumerate() {
            put(&mut later, looks + 4 * at, &number.to_le_bytes());
        }
        put(&mut later, count, &2u16.to_le_bytes());
        put(&mut later, first, &90u32.to_le_bytes());
        put(&mut later, first + 4, &71u32.to_le_bytes());
        let expected = AmdMetrics {
            energy: Some(65_536),
            compute_clock: Some(2_000),
            memory_clock: Some(900),
            links: [Some(15), Some(9)],
            residencies: Some(AmdResidencies { looks: 1_000, prochot: 1, power: 2, thermal: [3, 4, 5] }),
            partitions: vec![Some(80), None],
            ..AmdMetrics::default()
        };
        assert_eq!(parse(&later), Some(expected.clone()), "1.{content}");
        put(&mut later, first + stride, &3u32.to_le_bytes());
        assert_eq!(parse(&later).unwrap().partitions, [Some(80), Some(3)]);
        put(&mut later, count, &1u16.to_le_bytes());
        assert_eq!(parse(&later).unwrap().partitions, [], "one is the whole");
        put(&mut later, count, &9u16.to_le_bytes());
        assert_eq!(parse(&later).unwrap().partitions, [], "more than there can be");
    }
    let mut links = table(288, 4);
    put(&mut links, 104, &1u64.to_le_bytes());
    put(&mut links, 168, &2u64.to_le_bytes());
    assert_eq!(parse(&links).unwrap().links, [Some(1), Some(2)]);
}

#[test]
fn numbers_of_all_ones_are_not_available() {
    for layout in LAYOUTS {
        assert_eq!(parse(&table(layout.size, layout.content)), Some(AmdMetrics::default()), "1.{}", layout.content);
    }
}

#[test]
fn a_version_of_another_size_is_believed_in_its_beginning_only() {
    let head = AmdMetrics {
        hotspot: Some(61),
        memory_temperature: Some(54),
        power: Some(412),
        compute_activity: Some(87),
        memory_activity: Some(33),
        ..AmdMetrics::default()
    };
    for (size, content, expected) in [
        // An early 1.6.
        (1_640, 6, Some(head.clone())),
        (400, 5, Some(head)),
        // The beginning of 1.3 is another one.
        (128, 3, None),
        (100, 2, None),
        // A list of attributes.
        (512, 9, None),
    ] {
        let mut table = vec![0; usize::from(size)];
        put(&mut table, 0, &u16::to_le_bytes(size));
        put(&mut table, 2, &[1, content]);
        for (at, value) in [(4, 61u16), (6, 54), (10, 412), (12, 87), (14, 33)] {
            put(&mut table, at, &value.to_le_bytes());
        }
        assert_eq!(parse(&table), expected, "1.{content}");
        table[2] = 2;
        assert_eq!(parse(&table), None, "of a laptop");
        table[2] = 1;
        assert_eq!(parse(&table[..usize::from(size) - 1]), None, "cut short");
    }
    for nothing in [&[][..], &[4, 0, 1], &[4, 0, 1, 5], &[0, 0, 1, 5]] {
        assert_eq!(parse(nothing), None);
    }
}

#[test]
fn more_than_a_hundred_percent_is_no_share() {
    let mut mi300 = table(360, 5);
    put(&mut mi300, 12, &101u16.to_le_bytes());
    put(&mut mi300, 14, &100u16.to_le_bytes());
    let metrics = parse(&mi300).unwrap();
    assert_eq!((metrics.compute_activity, metrics.memory_activity), (None, Some(100)));
}

#[test]
fn residencies_are_shares_of_the_time_between_two_readings() {
    let mut throttled = AmdThrottled::default();
    let mut after = |second, looks, [prochot, power, socket, regulators, memory]: [u32; 5]| {
        let thermal = [socket, regulators, memory];
        let now = Some(AmdResidencies { looks, prochot, power, thermal });
        throttled.add(Timestamp::from_seconds(second), now);
        throttled.seconds(now).map(Option::unwrap)
    };
    let max = u32::MAX;
    assert_eq!(after(10, max - 499, [7, max - 100, 3, 4, 5]), [0.0, 0.0, 0.0]);
    assert_eq!(after(20, 500, [7, 149, 103, 54, 5]), [2.5, 1.0, 0.0], "they wrap");
    assert_eq!(after(21, 500, [7, 149, 103, 54, 5]), [2.5, 1.0, 0.0], "the firmware has not looked");
    assert_eq!(after(22, 1_500, [1_007, 149, 103, 54, 5]), [2.5, 1.0, 1.0]);
    assert_eq!(after(23, 0, [0; 5]), [2.5, 1.0, 1.0], "the card was reset");
    assert_eq!(after(24, 100, [5_000; 5]), [3.5, 2.0, 2.0], "never more than the time that passed");
}

#[test]
fn errors_are_corrected_and_uncorrected() {
    assert_eq!(parse_errors(b"ue: 0\nce: 12\n"), [Some(12), Some(0)]);
    assert_eq!(parse_errors(b"ue: 3\n"), [None, Some(3)]);
    assert_eq!(parse_errors(b"ce: -1\nue\n"), [None, None]);
}
