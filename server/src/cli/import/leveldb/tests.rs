//! Records over blocks, cut and damaged.

use super::*;

/// A file of these records.
fn file(records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = START.to_vec();
    for record in records {
        let (mut rest, mut is_first) = (&record[..], true);
        loop {
            let left = BLOCK_BYTES - bytes.len() % BLOCK_BYTES;
            if left < HEADER_BYTES {
                bytes.resize(bytes.len() + left, 0);
                continue;
            }
            let (data, behind) = rest.split_at(rest.len().min(left - HEADER_BYTES));
            let kind = match (is_first, behind.is_empty()) {
                (true, true) => FULL,
                (true, false) => FIRST,
                (false, false) => MIDDLE,
                (false, true) => LAST,
            };
            let mut sum = crc32fast::Hasher::new();
            sum.update(&[kind]);
            sum.update(data);
            bytes.extend_from_slice(&sum.finalize().to_le_bytes());
            bytes.extend_from_slice(&u16::try_from(data.len()).unwrap().to_le_bytes());
            bytes.push(kind);
            bytes.extend_from_slice(data);
            (rest, is_first) = (behind, false);
            if rest.is_empty() {
                break;
            }
        }
    }
    bytes
}

fn read(bytes: &[u8]) -> Vec<LogRecord> {
    let mut reader = LogReader::new(bytes).unwrap();
    let mut found = Vec::new();
    loop {
        let record = reader.next().unwrap();
        let is_last = matches!(record, LogRecord::CutOff | LogRecord::End);
        found.push(record);
        if is_last {
            return found;
        }
    }
}

fn records(lengths: &[usize]) -> Vec<Vec<u8>> {
    (1_u8..).zip(lengths).map(|(at, length)| vec![at; *length]).collect()
}

#[test]
fn records_of_any_length_come_back() {
    let edge = BLOCK_BYTES - HEADER_BYTES;
    for lengths in [
        &[5, 0, 7][..],
        &[edge - 7, 1],
        &[edge - 13, 3],
        &[edge - 14, 3],
        &[edge - 20, 3, 4],
        &[100_000, 1, 70_000],
        &[],
    ] {
        let written = records(lengths);
        let expected: Vec<LogRecord> = written.iter().cloned().map(LogRecord::Record).chain([LogRecord::End]).collect();
        assert!(read(&file(&written)) == expected, "{lengths:?}");
    }
    let mut padded = file(&records(&[5]));
    padded.resize(3 * BLOCK_BYTES, 0);
    assert_eq!(read(&padded), [LogRecord::Record(vec![1; 5]), LogRecord::End]);
}

#[test]
fn what_is_before_a_cut_or_damage_is_read_and_what_is_behind_damage_too() {
    let written = records(&[5, 40_000, 6]);
    let bytes = file(&written);
    let [first, second, third] = [0, 1, 2].map(|at| LogRecord::Record(written[at].clone()));
    for cut in [20, 26, 5_000, BLOCK_BYTES, BLOCK_BYTES + 3, BLOCK_BYTES + 8, bytes.len() - 14] {
        assert!(read(&bytes[..cut]) == [first.clone(), LogRecord::CutOff], "{cut}");
    }
    assert!(read(&bytes[..bytes.len() - 1]) == [first.clone(), second, LogRecord::CutOff]);
    let mut damaged = bytes.clone();
    damaged[1_000] ^= 1;
    let broken = LogRecord::Broken("the checksum is not that of the data");
    assert!(read(&damaged) == [first, broken, third, LogRecord::End]);
    assert!(LogReader::new(&b":W&B\xe1\xbe\x01"[..]).is_err());
}
