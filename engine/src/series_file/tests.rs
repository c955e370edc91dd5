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

#[test]
fn an_id_at_the_end_of_32_bits_is_corrupt_and_no_overflow() {
    let made = batch(0, &[key("a", &[])]).unwrap();
    let ids: ArrayRef = Arc::new(UInt32Array::from(vec![u32::MAX]));
    let columns = vec![ids, Arc::clone(made.column(1)), Arc::clone(made.column(2))];
    let mut writer = ArrowWriter::try_new(Vec::new(), made.schema(), None).unwrap();
    writer.write(&RecordBatch::try_new(made.schema(), columns).unwrap()).unwrap();
    let error = read(writer.into_inner().unwrap(), u32::MAX, 1).unwrap_err().to_string();
    assert!(error.contains("its ids: found 4294967295, expected less"), "{error}");
}

/// Arrow keeps a copy of the schema among the metadata of a Parquet file. A type there that it does not know is a panic
/// of its reader, so a file that somebody made ended whoever opened the database.
#[test]
fn a_schema_of_arrow_beside_that_of_parquet_is_not_looked_at() {
    use parquet::arrow::arrow_writer::ArrowWriterOptions;
    let keys = [key("a", &[]), key("b", &[("h", "x")])];
    let made = batch(0, &keys).unwrap();
    let schema = KeyValue::new("ARROW:schema".to_owned(), "no base64, and no schema".to_owned());
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![schema])).build();
    let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    let mut writer = ArrowWriter::try_new_with_options(Vec::new(), made.schema(), options).unwrap();
    writer.write(&made).unwrap();
    let expected: Vec<_> = (0..).map(SeriesId).zip(keys).collect();
    assert_eq!(read(writer.into_inner().unwrap(), 0, 2).unwrap(), expected);
}
