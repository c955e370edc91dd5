//! Compilers here are scripts; tests/py/test_mpi_profile.py builds with real ones.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use telem_engine::SystemClock;

use super::*;

/// Waits as long as it is told to.
#[derive(Default)]
struct Waiting {
    asked: Cell<Duration>,
    is_over: bool,
}

impl Patience for Waiting {
    fn ask(&self, time: Duration) {
        self.asked.set(time);
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}

/// A compiler that is `script`, and a cache of its own.
fn built_by(dir: &Path, script: &str, patience: &Waiting) -> Result<PathBuf, MpiProfileError> {
    let compiler = dir.join("cc");
    fs::write(&compiler, format!("#!/bin/sh\n{script}")).unwrap();
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o700)).unwrap();
    let clock = SystemClock::new();
    let recipe = &COUNTS_FOR_TELEM;
    MpiLibraryBuilder { recipe, compiler: compiler.into(), cache: dir.join("cache/mpi"), clock: &clock }
        .library(patience)
}

/// Does as a compiler does, and counts what it built.
const COMPILES: &str = "[ $1 = -E ] && { echo header >probe.i; exit; }; echo x >>\"$(dirname \"$0\")\"/built; : >$2";

#[test]
fn a_library_is_built_once_for_each_mpi() {
    let dir = tempfile::tempdir().unwrap();
    let patience = Waiting::default();
    let first = built_by(dir.path(), COMPILES, &patience).unwrap();
    assert_eq!(patience.asked.get(), BUILD_TIMEOUT);
    assert_eq!(built_by(dir.path(), COMPILES, &patience).unwrap(), first);
    let other = built_by(dir.path(), &COMPILES.replace("header", "another"), &patience).unwrap();
    assert!(first != other && first.is_file() && other.is_file());
    assert_eq!(fs::read_to_string(dir.path().join("built")).unwrap(), "x\nx\n");
    let left = fs::read_dir(dir.path().join("cache/mpi")).unwrap().count();
    assert_eq!(left, 2, "nothing stays of the building");
}

#[test]
fn a_header_whose_functions_are_others_is_tried_as_an_old_one() {
    let dir = tempfile::tempdir().unwrap();
    let script =
        format!("case \"$*\" in *-shared*) case \"$*\" in *={}*) ;; *) exit 1 ;; esac ;; esac; {COMPILES}", 30);
    assert!(built_by(dir.path(), &script, &Waiting::default()).unwrap().is_file());
}

#[test]
fn what_a_compiler_says_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let why = built_by(dir.path(), "echo mpi.h: no such; exit 1", &Waiting::default()).unwrap_err().to_string();
    assert!(why.ends_with("does not build the library for that: mpi.h: no such"), "{why}");
    let why = built_by(dir.path(), "exit 3", &Waiting::default()).unwrap_err().to_string();
    assert!(why.ends_with("exit status: 3"), "{why}");
    let clock = SystemClock::new();
    let (compiler, cache) = (OsString::from("no-such-mpicc"), dir.path().join("cache"));
    let builder = MpiLibraryBuilder { recipe: &COUNTS_FOR_TELEM, compiler, cache, clock: &clock };
    let why = builder.library(&Waiting::default()).unwrap_err().to_string();
    assert!(why.contains("'no-such-mpicc' cannot be run") && why.contains("--mpi-profile=FILE"), "{why}");
}

#[test]
fn a_compiler_that_hangs_is_ended_when_nobody_waits_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let hurried = Waiting { is_over: true, ..Waiting::default() };
    let why = built_by(dir.path(), "sleep 1000", &hurried).unwrap_err();
    assert!(matches!(why, MpiProfileError::Unwanted), "{why}");
}

#[test]
fn a_path_that_cannot_be_preloaded_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let clock = SystemClock::new();
    for name in ["a b", "a:b"] {
        let (compiler, cache) = (OsString::from("true"), dir.path().join(name));
        let builder = MpiLibraryBuilder { recipe: &COUNTS_FOR_TELEM, compiler, cache, clock: &clock };
        let why = builder.library(&Waiting::default()).unwrap_err();
        assert!(matches!(why, MpiProfileError::Path { .. }), "{why}");
    }
}

#[test]
fn what_was_preloaded_before_stays_and_comes_first() {
    let own = Path::new("/cache/libtelem-mpi.so");
    let told = |inherited: &str| environment(own, Some(OsStr::new(inherited))).1.into_string().unwrap();
    assert_eq!(environment(own, None), ("LD_PRELOAD".to_owned(), own.into()));
    assert_eq!(told(""), "/cache/libtelem-mpi.so");
    assert_eq!(told("/lib/a.so b.so"), "/lib/a.so b.so:/cache/libtelem-mpi.so");
    assert_eq!(
        told("/cache/libtelem-mpi.so /lib/a.so"),
        "/cache/libtelem-mpi.so /lib/a.so",
        "of a job around this one"
    );
}

#[test]
fn the_binary_carries_the_whole_c_client_and_the_wrapper() {
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients");
    let named = |dir: &str| {
        let entries = fs::read_dir(clients.join(dir)).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.map(|name| format!("{dir}/{name}")).collect::<BTreeSet<_>>()
    };
    let code = |name: &String| [".c", ".h", ".map"].iter().any(|end| name.ends_with(end));
    let wanted: BTreeSet<_> = ["mpi", "c/src", "c/include"].into_iter().flat_map(named).filter(code).collect();
    let carried: BTreeSet<_> = COUNTS_FOR_TELEM.sources.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(carried, wanted);
}
