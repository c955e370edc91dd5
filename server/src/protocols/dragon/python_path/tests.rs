use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use super::*;

/// The files below `dir` that Python runs, by their paths from there.
fn found_below(dir: &Path) -> BTreeMap<String, String> {
    let (mut found, mut dirs) = (BTreeMap::new(), vec![dir.to_path_buf()]);
    while let Some(at) = dirs.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                if name != "__pycache__" {
                    dirs.push(path);
                }
            } else if path.extension().is_some_and(|end| end == "py" || end == "typed") {
                let place = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
                found.insert(place, fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn the_binary_carries_every_file_of_the_client() {
    let there = found_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients/python/telem"));
    let carried: BTreeMap<_, _> = FILES
        .iter()
        .map(|(path, text)| (path.strip_prefix("telem/").unwrap().to_owned(), (*text).to_owned()))
        .collect();
    let names = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        names(&carried),
        names(&there),
        "FILES of protocols/dragon/python_path.rs is not what clients/python/telem has"
    );
    assert_eq!(carried, there);
}

#[test]
fn it_is_written_whole_and_private_and_again_over_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("python");
    for _ in 0..2 {
        let entry = write(&to).unwrap();
        assert_eq!(entry, to.join("telem/dragon/hook"));
        assert!(entry.join("sitecustomize.py").is_file());
        assert_eq!(found_below(&to).len(), FILES.len());
        assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(entry.join("sitecustomize.py"), "raise SystemExit").unwrap();
    }
    fs::set_permissions(&to, Permissions::from_mode(0o777)).unwrap();
    let refused = write(&to).unwrap_err().to_string();
    assert!(refused.contains("has mode 0777"), "{refused}");
}

#[test]
fn it_stands_before_what_the_user_has_in_pythonpath() {
    let value = |inherited: Option<&str>| with_first(Path::new("/run/hook"), inherited.map(OsStr::new));
    assert_eq!(value(Some("/a:/b")), "/run/hook:/a:/b");
    assert_eq!(value(None), "/run/hook");
    assert_eq!(value(Some("")), "/run/hook");
}
