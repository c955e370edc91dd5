//! Splits numbers of eight bytes into eight streams (Parquet's BYTE_STREAM_SPLIT): all first bytes, then all second
//! ones, and so on.

/// Numbers and their bytes.
const EIGHT: usize = 8;

/// Appends the streams of `values`, `count` of them, to `bytes`.
pub fn split(count: usize, values: impl Iterator<Item = u64>, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    bytes.resize(start + count * EIGHT, 0);
    if count == 0 {
        return;
    }
    let mut streams: Vec<&mut [u8]> = bytes[start..].chunks_exact_mut(count).collect();
    let mut numbers = [0; EIGHT];
    let mut len = 0;
    values.enumerate().for_each(|(at, value)| {
        numbers[len] = value;
        len += 1;
        if len == EIGHT {
            let from = at + 1 - EIGHT;
            for (stream, eight) in streams.iter_mut().zip(transposed(numbers)) {
                stream[from..from + EIGHT].copy_from_slice(&eight.to_le_bytes());
            }
            len = 0;
        }
    });
    for (byte, stream) in streams.iter_mut().enumerate() {
        for (at, number) in numbers[..len].iter().enumerate() {
            stream[count - len + at] = number.to_le_bytes()[byte];
        }
    }
}

/// Byte `n` of number `m` becomes byte `m` of number `n`: squares of four, two and one bytes change places.
fn transposed(mut numbers: [u64; EIGHT]) -> [u64; EIGHT] {
    const STEPS: [(usize, u64); 3] = [(4, 0xffff_ffff), (2, 0x0000_ffff_0000_ffff), (1, 0x00ff_00ff_00ff_00ff)];
    for (distance, low) in STEPS {
        let bits = distance * EIGHT;
        for at in 0..EIGHT {
            if at & distance == 0 {
                let (upper, lower) = (numbers[at], numbers[at + distance]);
                numbers[at] = upper & low | (lower & low) << bits;
                numbers[at + distance] = upper >> bits & low | lower & !low;
            }
        }
    }
    numbers
}
