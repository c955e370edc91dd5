//! Directories that users name, and the databases that they mean.

use telem_engine::Options;

use super::*;

/// Makes `paths` below a directory of their own: those that end in `/` without a database in them.
fn tree(paths: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for path in paths {
        let at = dir.path().join(path);
        if path.ends_with('/') {
            fs::create_dir_all(at).unwrap();
        } else {
            Db::open(&at, Options::default()).unwrap().close().unwrap();
        }
    }
    dir
}

/// The databases that `named` mean, without the directory before them.
fn found(dir: &Path, named: &[&str]) -> Result<Vec<String>, SavedError> {
    let named: Vec<PathBuf> = named.iter().map(|name| dir.join(name)).collect();
    let found = databases(&named)?;
    Ok(found.iter().map(|path| path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned()).collect())
}

#[test]
fn a_directory_is_a_database_or_holds_databases_and_their_numbers_count() {
    let dir = tree(&["save/n1-10", "save/n1-2", "save/n1", "save/n02", "save/logs/", "one"]);
    assert_eq!(found(dir.path(), &["one"]).unwrap(), ["one"]);
    assert_eq!(found(dir.path(), &["save"]).unwrap(), ["save/n1", "save/n1-2", "save/n1-10", "save/n02"]);
    assert_eq!(found(dir.path(), &["save/n1-2", "one"]).unwrap(), ["save/n1-2", "one"]);
}

#[test]
fn who_names_a_directory_is_told_what_was_found_in_it() {
    let of = |count: usize| several(&(0..count).map(|at| PathBuf::from(format!("s/n{at}"))).collect::<Vec<_>>());
    assert_eq!(of(1), None);
    assert_eq!(of(2).as_deref(), Some("2 databases read as one: s/n0, s/n1"));
    assert!(of(20).is_some_and(|told| told.ends_with("s/n7, and 12 more")));
}

#[test]
fn a_database_that_is_named_twice_counts_once_and_stands_where_it_was_named_last() {
    let dir = tree(&["save/a", "save/b"]);
    std::os::unix::fs::symlink(dir.path().join("save/a"), dir.path().join("link")).unwrap();
    assert_eq!(found(dir.path(), &["save", "save/a"]).unwrap(), ["save/b", "save/a"]);
    assert_eq!(found(dir.path(), &["save", "link"]).unwrap(), ["save/b", "link"]);
}

#[test]
fn a_folder_of_runs_stands_for_the_databases_of_all_of_them() {
    let dir = tree(&["runs/a/n1", "runs/a/n2", "runs/b/n1", "runs/a/n1/deeper"]);
    assert_eq!(found(dir.path(), &["runs"]).unwrap(), ["runs/a/n1", "runs/a/n2", "runs/b/n1"]);
}

#[test]
fn databases_beside_runs_and_runs_within_a_database_that_is_named_are_read_too() {
    let dir = tree(&["mixed/n1", "mixed/run/n1", "mixed/logs/today/", "own", "own/run/n1", "own/n2", "own/damaged/n3"]);
    assert_eq!(found(dir.path(), &["mixed"]).unwrap(), ["mixed/n1", "mixed/run/n1"]);
    assert_eq!(found(dir.path(), &["own"]).unwrap(), ["own", "own/n2", "own/run/n1"]);
    assert_eq!(found(dir.path(), &["own/n2"]).unwrap(), ["own/n2"]);
}

#[test]
fn what_is_no_database_is_named_with_what_was_looked_for() {
    let dir = tree(&["empty/x/", "empty/y/", "deep/er/still/n1"]);
    fs::write(dir.path().join("file"), "").unwrap();
    for (name, expected) in [
        ("nowhere", "there is no directory"),
        ("file", "is a file"),
        ("http://localhost:4242", "is a server"),
        ("empty", "neither it, nor one of the 2 directories in it, nor one in those has a file MANIFEST"),
        // Two levels, so that nobody's whole home is searched.
        ("deep", "neither it, nor one of the 1 directories"),
    ] {
        let error = found(dir.path(), &[name]).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(name), "{name}: {error}");
    }
}

#[test]
fn the_address_of_a_server_is_not_taken_for_a_directory_alone() {
    let said = |name: &str| SavedError::Missing { path: name.into() }.to_string();
    let of_server = "there is no directory n1:4242; a server is named with its scheme, as in http://n1:4242";
    assert_eq!(said("n1:4242"), of_server);
    for name in ["nowhere", "a:b", "a:", ":1", "a/b:4242", "n1:99999"] {
        assert!(said(name).ends_with("; name that of a database, or one that holds databases"), "{name}");
    }
}

#[test]
fn names_are_ordered_by_the_value_of_their_numbers() {
    let mut names = ["n10", "n2-1", "n2", "n", "n01", "n1", "n1a", "m9", "n99999999999999999999999", ""];
    names.sort_by(|a, b| by_name(a, b));
    assert_eq!(names, ["", "m9", "n", "n01", "n1", "n1a", "n2", "n2-1", "n10", "n99999999999999999999999"]);
}
