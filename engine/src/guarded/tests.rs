use super::*;

#[test]
fn a_panic_of_the_reader_is_a_corrupt_file() {
    let path = Path::new("segments/x.parquet");
    let none: &[u8] = &[];
    let error = guarded(path, || Ok(none[path.as_os_str().len()])).unwrap_err().to_string();
    assert!(
        error.starts_with("segments/x.parquet: its Parquet: found what its reader does not expect (index"),
        "{error}"
    );
    assert_eq!(guarded(path, || Ok(5)).ok(), Some(5));
}

#[test]
fn what_the_reader_says_has_no_names_of_its_kinds() {
    use arrow::error::ArrowError;
    use parquet::errors::ParquetError;

    let of_disk = || ParquetError::External(Box::new(std::io::Error::other("the block at 0 has checksum 1")));
    assert_eq!(plainly(&of_disk()), "the block at 0 has checksum 1");
    assert_eq!(plainly(&ArrowError::from(of_disk())), "the block at 0 has checksum 1");
    assert_eq!(plainly(&ParquetError::General("no such codec".to_owned())), "no such codec");
    assert_eq!(plainly(&ParquetError::EOF("3 bytes".to_owned())), "an early end: 3 bytes");
}
