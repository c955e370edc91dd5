//! What Parquet's format says, from an encoder of its own.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// How a writer cuts a page.
#[derive(Clone, Copy, Debug)]
struct Cut {
    block: usize,
    parts: usize,
    /// Whether the last group has all its bytes.
    whole: bool,
}

const OURS: Cut = Cut { block: 256, parts: 4, whole: true };

fn varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn signed(bytes: &mut Vec<u8>, number: i64) {
    varint(bytes, (number << 1 ^ number >> 63).cast_unsigned());
}

/// Without the padding.
fn encode(values: &[i64], cut: Cut) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [cut.block, cut.parts, values.len()] {
        varint(&mut bytes, number as u64);
    }
    signed(&mut bytes, values[0]);
    let differences: Vec<i64> = values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    for block in differences.chunks(cut.block) {
        let least = *block.iter().min().unwrap();
        signed(&mut bytes, least);
        let of_part: Vec<Vec<u64>> = block
            .chunks(cut.block / cut.parts)
            .map(|part| part.iter().map(|one| one.wrapping_sub(least).cast_unsigned()).collect())
            .collect();
        let width = |part: &Vec<u64>| 64 - part.iter().fold(0, |bits, one| bits | one).leading_zeros();
        // Parts that have nothing may have any width.
        bytes.extend((0..cut.parts).map(|at| of_part.get(at).map_or(77, width) as u8));
        for part in &of_part {
            let width = width(part) as usize;
            let count = if cut.whole { cut.block / cut.parts } else { part.len() };
            let mut bits = vec![0_u8; (width * count).div_ceil(8)];
            for (at, one) in part.iter().enumerate() {
                for bit in (0..width).filter(|bit| one >> bit & 1 == 1) {
                    bits[(at * width + bit) / 8] |= 1 << ((at * width + bit) % 8);
                }
            }
            bytes.extend(bits);
        }
    }
    bytes
}

fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend([0; PADDING]);
    bytes
}

fn page(values: &[i64], cut: Cut) -> DeltaPage {
    DeltaPage::new(padded(encode(values, cut)), 0, values.len()).unwrap()
}

fn read(page: &DeltaPage, rows: Range<usize>) -> Result<Vec<i64>, Torn> {
    let (mut found, mut buffer) = (Vec::new(), Vec::new());
    page.read(rows, &mut buffer, &mut |values| found.extend_from_slice(values))?;
    Ok(found)
}

#[test]
fn any_rows_are_read_in_any_order() {
    let values: Vec<i64> = (0..5_000).map(|at| at * at % 7_919 - 1_000).collect();
    let page = page(&values, OURS);
    for rows in [4_000..4_001, 0..1, 0..5_000, 1..2, 255..258, 256..257, 4_999..5_000, 3_000..5_000, 7..7] {
        assert_eq!(read(&page, rows.clone()).unwrap(), values[rows]);
    }
}

#[test]
fn blocks_that_were_gone_through_are_not_again() {
    let values: Vec<i64> = (0..5_000).map(|at| at % 7).collect();
    let page = page(&values, OURS);
    let known = || page.starts.lock().unwrap().len();
    assert_eq!(known(), 1);
    read(&page, 900..901).unwrap();
    assert_eq!(known(), 4, "the block of row 900 is the fourth");
    read(&page, 0..700).unwrap();
    assert_eq!(known(), 4);
    read(&page, 900..2_000).unwrap();
    assert_eq!(known(), 8);
    let held = page.memory_bytes();
    read(&page, 0..5_000).unwrap();
    assert!(page.memory_bytes() == held && known() <= 5_000_usize.div_ceil(256) + 1);
}

#[test]
fn what_parquet_does_not_allow_is_no_page() {
    let new = |numbers: &[u64], count: usize| {
        let mut bytes = Vec::new();
        numbers.iter().for_each(|number| varint(&mut bytes, *number));
        DeltaPage::new(padded(bytes), 0, count)
    };
    assert!(new(&[256, 4, 1, 0], 1).is_some());
    // A few bytes may not have memory taken for millions of values: the reader of Parquet has pages of larger blocks.
    let block = BLOCK_MAX as u64;
    assert!(new(&[block, 4, 1, 0], 1).is_some() && new(&[block + 128, 4, 1, 0], 1).is_none());
    assert!(new(&[1 << 31, 4, 1 << 31, 0], 1 << 31).is_none());
    for (numbers, count) in [
        (&[256, 4, 1, 0][..], 2),
        (&[256, 4, 0, 0], 0),
        (&[256, 4, 1], 1),
        (&[256, 0, 1, 0], 1),
        (&[0, 4, 1, 0], 1),
        (&[256, 3, 1, 0], 1),
        (&[256, 16, 1, 0], 1),
        (&[], 1),
    ] {
        assert!(new(numbers, count).is_none(), "{numbers:?}");
    }
}

#[test]
fn a_page_that_ends_too_early_is_torn_and_nothing_panics() {
    let values: Vec<i64> = (0..700).map(|at| at * 31 % 100).collect();
    let whole = encode(&values, Cut { whole: false, ..OURS });
    for len in 0..whole.len() {
        if let Some(page) = DeltaPage::new(padded(whole[..len].to_vec()), 0, values.len()) {
            assert_eq!(read(&page, 0..700), Err(Torn), "{len} of {} bytes", whole.len());
        }
    }
    assert_eq!(read(&DeltaPage::new(padded(whole), 0, 700).unwrap(), 0..700).unwrap(), values);
    // The width of the first part.
    let mut wide = encode(&values, OURS);
    wide[8] = 65;
    assert_eq!(read(&DeltaPage::new(padded(wide), 0, 700).unwrap(), 0..700), Err(Torn));
}

fn walk() -> impl Strategy<Value = Vec<i64>> {
    (0..=64_u32, vec(any::<i64>(), 1..1_500)).prop_map(|(width, steps)| {
        let mut value = 0_i64;
        let step = |step: &i64| if width == 0 { 3 } else { step >> (64 - width) };
        let next = |of: &i64| {
            value = value.wrapping_add(step(of));
            value
        };
        steps.iter().map(next).collect()
    })
}

proptest! {
    #[test]
    fn what_was_packed_is_unpacked(
        values in walk(),
        cut in (0..3_usize, 0..3_u32, any::<bool>()).prop_map(|(block, parts, whole)| {
            Cut { block: [128, 256, 640][block], parts: 1 << parts, whole }
        }),
        places in vec((0..1_500_usize, 0..1_500_usize), 1..5),
    ) {
        let cut = if (cut.block / cut.parts).is_multiple_of(32) { cut } else { Cut { parts: 1, ..cut } };
        let page = page(&values, cut);
        for (a, b) in places {
            let (a, b) = (a % values.len(), b % (values.len() + 1));
            let rows = a.min(b)..a.max(b);
            prop_assert_eq!(read(&page, rows.clone()).unwrap(), &values[rows]);
        }
    }

    #[test]
    fn any_bytes_give_values_or_an_error(bytes in vec(any::<u8>(), 0..200), count in 1..1_000_usize) {
        let mut begun = Vec::new();
        [256, 4, count as u64].iter().for_each(|number| varint(&mut begun, *number));
        begun.extend(bytes);
        if let Some(page) = DeltaPage::new(padded(begun), 0, count)
            && let Ok(found) = read(&page, 0..count)
        {
            prop_assert_eq!(found.len(), count);
        }
    }
}
