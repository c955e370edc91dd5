use super::*;

fn key(metric: &str, tags: &[(&str, &str)]) -> SeriesKey {
    SeriesKey::new(metric, TagSet::new(tags.iter().copied()).unwrap()).unwrap()
}

fn read(bytes: Vec<u8>, first_id: u32, count: u32) -> Result<Vec<(SeriesId, SeriesKey)>> {
    let mut read = Vec::new();
    decode(Path::new("series/000001.parquet"), bytes, first_id, count, |id, key| {
        read.push((id, key));
        Ok(())
    })?;
    Ok(read)
}

#[test]
fn keys_are_read_back_with_their_ids_whatever_their_names() {
    let keys = [
        key("a", &[]),
        key("b c", &[("h", "x")]),
        key("ü\"'", &[("k", "v=,"), ("日本", "語")]),
        key("a", &[("b", "c")]),
    ];
    let bytes = encode(40, &keys).unwrap();
    let expected: Vec<_> = (40..).map(SeriesId).zip(keys).collect();
    assert_eq!(read(bytes, 40, 4).unwrap(), expected);
}

#[test]
fn a_hundred_thousand_series_are_read_back() {
    let keys: Vec<SeriesKey> = (0..100_000).map(|at| key("m", &[("n", &at.to_string())])).collect();
    let bytes = encode(0, &keys).unwrap();
    let back = read(bytes, 0, 100_000).unwrap();
    assert!(back.iter().zip(&keys).all(|((_, back), key)| back == key));
}

#[test]
fn ids_other_than_the_manifests_are_corrupt() {
    let bytes = encode(0, [key("a", &[]), key("b", &[])]).unwrap();
    assert!(read(bytes.clone(), 1, 2).is_err());
    assert!(read(bytes.clone(), 0, 3).is_err());
    assert!(read(bytes[..bytes.len() - 5].to_vec(), 0, 2).is_err());
}
