//! Finds a single flipped bit, the most frequent kind of decay, by its checksum.
//!
//! CRC-32 is linear. If two texts of one length differ in one bit, their checksums differ by a number that depends only
//! on the place of that bit, and below 2^32 bits no two places share a number. So a single flipped bit can be found and
//! corrected. Greater damage looks like one bit with a probability of bits / 2^32. So a corrected text must also pass
//! every other check, and only short stretches are tried where there are few other checks.

/// Longest stretch that is tried where only its form can be checked besides.
pub const SHORT_BYTES_MAX: usize = 64 << 10;
/// The same where every row is held against what else is known of it.
pub const CHECKED_BYTES_MAX: usize = 64 << 20;

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// The place in [`TABLE`] of each upper byte.
const FROM_UPPER: [u8; 256] = {
    let mut from = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        from[(TABLE[byte] >> 24) as usize] = byte as u8;
        byte += 1;
    }
    from
};

/// `bytes` with the one flipped bit corrected that makes `crc32` their checksum; `None` when there is no such bit, or
/// these are more than `bytes_max`.
pub fn turned_back(bytes: &[u8], crc32: u32, bytes_max: usize) -> Option<Vec<u8>> {
    let difference = crc32fast::hash(bytes) ^ crc32;
    if difference == 0 || bytes.len() > bytes_max {
        return None;
    }
    // What each bit of a byte makes of the checksum, from the last byte to the first.
    let mut of_bit: [u32; 8] = std::array::from_fn(|bit| TABLE[1 << bit]);
    for at in (0..bytes.len()).rev() {
        if let Some(bit) = of_bit.iter().position(|one| *one == difference) {
            let mut good = bytes.to_vec();
            good[at] ^= 1 << bit;
            return Some(good);
        }
        for one in &mut of_bit {
            *one = TABLE[(*one & 0xFF) as usize] ^ (*one >> 8);
        }
    }
    None
}

/// What a checksum was before `len` bytes, of which only their number counts: the difference of two checksums is known
/// behind the bytes, and this is the difference before them.
pub fn checksum_before(mut difference: u32, len: usize) -> u32 {
    for _ in 0..len {
        // The byte that left it chose the only entry of the table that has this upper byte.
        let left = FROM_UPPER[(difference >> 24) as usize];
        difference = (difference ^ TABLE[usize::from(left)]) << 8 | u32::from(left);
    }
    difference
}

#[cfg(test)]
mod tests;
