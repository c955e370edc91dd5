use super::*;

#[test]
fn any_one_bit_is_turned_back() {
    let good: Vec<u8> = (0..700_u32).map(|at| (at * 31 % 251) as u8).collect();
    let crc = crc32fast::hash(&good);
    for at in 0..good.len() * 8 {
        let mut flipped = good.clone();
        flipped[at / 8] ^= 1 << (at % 8);
        assert_eq!(turned_back(&flipped, crc, 700).as_ref(), Some(&good), "bit {at}");
    }
}

#[test]
fn two_bits_and_good_bytes_are_left_alone() {
    let good: Vec<u8> = (0..500_u32).map(|at| (at * 7 % 253) as u8).collect();
    let crc = crc32fast::hash(&good);
    assert_eq!(turned_back(&good, crc, 500), None);
    for at in 0..good.len() - 1 {
        let mut damaged = good.clone();
        damaged[at] ^= 0x11;
        assert_eq!(turned_back(&damaged, crc, 500), None, "byte {at}");
    }
}

#[test]
fn what_a_checksum_began_with_is_found_behind_any_bytes() {
    let bytes: Vec<u8> = (0..300_u32).map(|at| (at * 13 % 255) as u8).collect();
    for (before, len) in [(0x5A17_0001_u32, 300), (1, 17), (u32::MAX, 1), (0x8000_0000, 0)] {
        let mut hasher = crc32fast::Hasher::new_with_initial(before);
        hasher.update(&bytes[..len]);
        let difference = hasher.finalize() ^ crc32fast::hash(&bytes[..len]);
        assert_eq!(checksum_before(difference, len), before, "{len} bytes");
    }
}

#[test]
fn long_stretches_and_empty_ones_are_not_tried() {
    let good = vec![0; 100];
    let mut damaged = good.clone();
    damaged[5] = 1;
    assert_eq!(turned_back(&damaged, crc32fast::hash(&good), 100), Some(good.clone()));
    assert_eq!(turned_back(&damaged, crc32fast::hash(&good), 99), None);
    assert_eq!(turned_back(&[], 7, 100), None);
}
