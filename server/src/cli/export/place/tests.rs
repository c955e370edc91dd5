//! The destination of an export, and that it appears as a whole or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};

use super::*;

fn batch(values: Vec<i64>) -> RecordBatch {
    RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(values)) as ArrayRef)]).unwrap()
}

/// Writes each of `metrics`, with as many samples as it says.
fn fill(directory: &mut Unfinished, metrics: &[(&str, i64)]) {
    for (metric, samples) in metrics {
        let batch = batch((0..*samples).collect());
        let mut file = directory.file(metric, &batch.schema()).unwrap();
        file.batch(&batch).unwrap();
        directory.add(file).unwrap();
    }
}

fn export(path: &Path, metrics: &[(&str, i64)]) -> Written {
    let mut directory = Unfinished::create(path, ExportFormat::Csv, OtherFiles::Refused).unwrap();
    fill(&mut directory, metrics);
    directory.keep(&["./trial".to_owned()], TimeRange::ALL).unwrap()
}

/// Names and contents of what is in `path`.
fn listing(path: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let text = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    entries.map(|entry| (entry.file_name().into_string().unwrap(), text(entry.path()))).collect()
}

fn names(path: &Path) -> Vec<String> {
    listing(path).into_keys().collect()
}

fn message(failure: CliFailure) -> String {
    match failure {
        CliFailure::Failed(message) | CliFailure::Usage(message) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_slash_or_a_directory_means_a_file_a_metric_and_a_name_tells_the_format() {
    let dir = tempfile::tempdir().unwrap();
    let of = |output: &str, format| ExportPlace::of(&dir.path().join(output), format).unwrap();
    let file = |name: &str| ExportPlace::File(Some(dir.path().join(name)));
    assert_eq!(of("a.parquet", None), (file("a.parquet"), ExportFormat::Parquet));
    assert_eq!(of("a.CSV", None), (file("a.CSV"), ExportFormat::Csv));
    assert_eq!(of("a.feather", None), (file("a.feather"), ExportFormat::Arrow));
    assert_eq!(of("a", Some(ExportFormat::Csv)), (file("a"), ExportFormat::Csv));
    assert_eq!(of("a/", None), (ExportPlace::Directory(dir.path().join("a/")), ExportFormat::Parquet));
    assert_eq!(of("", Some(ExportFormat::Csv)), (ExportPlace::Directory(dir.path().join("")), ExportFormat::Csv));
    assert_eq!(ExportPlace::of(Path::new("-"), Some(ExportFormat::Csv)).unwrap().0, ExportPlace::File(None));
    for name in ["a", "a.json", "a.txt", "-"] {
        let error = message(ExportPlace::of(Path::new(name), None).unwrap_err());
        assert!(error.contains("--format") && error.contains(&format!("{name}/")), "{error}");
    }
}

#[test]
fn a_directory_appears_with_all_its_files_and_their_index() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/er/out/");
    let mut directory = Unfinished::create(&path, ExportFormat::Csv, OtherFiles::Refused).unwrap();
    fill(&mut directory, &[("a", 2), ("b/c", 1)]);
    assert!(!path.exists(), "until it is whole it has another name");
    let written = directory.keep(&["./trial".to_owned()], TimeRange::ALL).unwrap();
    assert_eq!(written, Written { samples: 3, metrics: 2, files: 2, bytes: Some(10), removed: 0 });
    assert_eq!(names(&path), ["_index.json", "a.csv", "b%2Fc.csv"]);
    assert_eq!(names(path.parent().unwrap()), ["out"], "nothing is left beside it");
    let index: Json = serde_json::from_str(&listing(&path)["_index.json"]).unwrap();
    assert_eq!(index["files"][1], json!({"metric": "b/c", "file": "b%2Fc.csv", "samples": 1, "bytes": 4}));
    assert_eq!((&index["from"], &index["start"]), (&json!(["./trial"]), &Json::Null));
}

#[test]
fn an_export_that_is_not_finished_leaves_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    drop(Unfinished::create(&path, ExportFormat::Csv, OtherFiles::Refused).unwrap());
    assert_eq!(names(dir.path()), [""; 0]);
    export(&path, &[("a", 1), ("b", 1)]);
    let before = listing(&path);
    let mut directory = Unfinished::create(&path, ExportFormat::Csv, OtherFiles::Refused).unwrap();
    fill(&mut directory, &[("a", 5), ("c", 5)]);
    let _begun = directory.file("d", &batch(vec![]).schema()).unwrap();
    drop(directory);
    assert_eq!(listing(&path), before);
}

#[test]
fn an_export_takes_the_place_of_an_earlier_one_and_leaves_other_files_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    export(&path, &[("a", 1), ("b", 1)]);
    fs::write(path.join("notes.txt"), "mine").unwrap();
    export(&path, &[("b", 2), ("c", 1)]);
    assert_eq!(names(&path), ["_index.json", "b.csv", "c.csv", "notes.txt"]);
    assert_eq!(listing(&path)["b.csv"], "n\n0\n1\n");
}

#[test]
fn a_directory_of_other_files_is_written_to_by_force_only() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(export(dir.path(), &[("a", 1)]).files, 1, "an empty one is taken");
    fs::remove_file(dir.path().join(INDEX)).unwrap();
    let error = message(Unfinished::create(dir.path(), ExportFormat::Csv, OtherFiles::Refused).unwrap_err());
    assert!(error.contains("holds files and no earlier export") && error.contains("--force"), "{error}");
    let mut directory = Unfinished::create(dir.path(), ExportFormat::Csv, OtherFiles::Left).unwrap();
    fill(&mut directory, &[("b", 1)]);
    directory.keep(&[], TimeRange::ALL).unwrap();
    assert_eq!(names(dir.path()), ["_index.json", "a.csv", "b.csv"]);
}

#[test]
fn an_index_never_names_files_elsewhere() {
    let outer = tempfile::tempdir().unwrap();
    let path = outer.path().join("out");
    fs::create_dir(&path).unwrap();
    fs::write(outer.path().join("precious"), "").unwrap();
    for index in [
        r#"{"files": [{"file": "../precious"}]}"#,
        r#"{"files": [{"file": "/etc/hostname"}]}"#,
        r#"{"files": [{"file": ".."}]}"#,
        r#"{"files": [{"file": "a/"}]}"#,
        r#"{"files": [{}]}"#,
        r#"{"files": 1}"#,
        "not JSON",
    ] {
        fs::write(path.join(INDEX), index).unwrap();
        let error = message(Unfinished::create(&path, ExportFormat::Csv, OtherFiles::Left).unwrap_err());
        assert!(error.contains("is not an index of an export"), "{index}: {error}");
    }
    assert!(outer.path().join("precious").exists());
}
