use super::*;
use crate::segment::read::DeltaPage;

/// Packs, and unpacks as Parquet's own reader would not need to: by ours.
fn check(values: &[i64]) {
    let mut bytes = vec![1, 2, 3];
    pack(values, &mut bytes);
    bytes.extend_from_slice(&[0; crate::segment::read::DELTA_PADDING]);
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
