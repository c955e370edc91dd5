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
