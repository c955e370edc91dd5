use super::*;
use crate::segment::delta::DeltaPage;

/// Packs, and unpacks as Parquet's own reader would not need to: by ours.
fn check(values: &[i64]) {
    check_packed(values, pack);
    check_packed(values, pack_values);
    check_packed(values, pack_in_bytes);
}

fn check_packed(values: &[i64], pack: fn(&[i64], &mut Vec<u8>)) {
    let mut bytes = vec![1, 2, 3];
    pack(values, &mut bytes);
    bytes.extend_from_slice(&[0; crate::segment::delta::PADDING]);
    let page = DeltaPage::new(bytes, 3, values.len()).expect("a good header");
    let mut found = Vec::new();
    page.read(0..values.len(), &mut Vec::new(), &mut |values| found.extend_from_slice(values)).expect("whole blocks");
    assert_eq!(found, values);
}

#[test]
fn differences_of_every_width_come_back() {
    for width in 0..=64_u32 {
        let mask = u64::MAX.checked_shr(64 - width).unwrap_or(0);
        let mut value = 7_i64;
        let mut values = vec![value];
        for at in 1..1_000_u64 {
            let difference = at.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) & mask;
            value = value.wrapping_add(difference.cast_signed());
            values.push(value);
        }
        check(&values);
    }
}

#[test]
fn pages_of_any_length_come_back() {
    for len in [1, 2, 3, 63, 64, 65, 66, 255, 256, 257, 258, 513] {
        check(&(0..len).map(|at| at * at % 31).collect::<Vec<i64>>());
        check(&vec![i64::MIN; len as usize]);
    }
    check(&[i64::MAX, i64::MIN, i64::MAX, 0, i64::MIN]);
}

/// Of a page of runs of so many values each, values of a block, and how many bytes it takes less than with blocks of 256.
fn packed(run: i64) -> (u64, usize) {
    let walk = |at: i64| 5_000 + at * at % 97 + (at / run) * 1_717 % 4_000;
    let values: Vec<i64> = (0..16_384).map(walk).collect();
    let (mut bytes, mut large) = (Vec::new(), Vec::new());
    pack_values(&values, &mut bytes);
    pack(&values, &mut large);
    check(&values);
    (u64::from(bytes[0] & 0x7f) | u64::from(bytes[1]) << 7, large.len() - bytes.len())
}

#[test]
fn short_runs_have_small_blocks() {
    let ((short, less), (long, same)) = (packed(360), packed(1 << 20));
    assert_eq!((short, long, same), (128, 256, 0));
    assert!(less > 1_000, "{less} bytes less");
}

#[test]
fn numbers_of_three_bits_take_four() {
    let values: Vec<i64> = (0..257).map(|at| at * at % 7 % 5 + at % 4).collect();
    let mut bytes = Vec::new();
    pack_values(&values, &mut bytes);
    assert!(!bytes[7..11].contains(&3), "widths {:?}", &bytes[7..11]);
    check(&values);
}

#[test]
fn in_bytes_every_width_is_a_multiple_of_eight() {
    for (step, width) in [(0, 0), (1, 8), (255, 8), (256, 16), (70_000, 24), (i64::MAX, 64)] {
        let values: Vec<i64> = (0..257).map(|at| if at < 9 { 0 } else { step }).collect();
        let mut bytes = Vec::new();
        pack_in_bytes(&values, &mut bytes);
        // Behind the header and the least difference; only the first part has a step.
        assert_eq!(bytes[7..11], [width, 0, 0, 0], "{step}");
    }
}
