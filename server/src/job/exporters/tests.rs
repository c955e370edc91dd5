//! Compilers and installations here are files; tests/py/test_proxy_exporters.py builds with real ones.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use telem_engine::SystemClock;

use super::*;
use crate::testing::first_column;

struct Waiting;

impl Patience for Waiting {
    fn ask(&self, _: Duration) {}

    fn is_over(&self) -> bool {
        false
    }
}

fn parsed(text: &str) -> Exporter {
    text.parse().unwrap_or_else(|never| match never {})
}

#[test]
fn an_exporter_is_named_and_mpi_may_name_its_compiler() {
    assert_eq!(parsed("mpi"), Exporter::Mpi { compiler: "mpicc".to_owned() });
    assert_eq!(parsed("mpi=/opt/mpi/bin/mpicc"), Exporter::Mpi { compiler: "/opt/mpi/bin/mpicc".to_owned() });
    assert_eq!((parsed("strace"), parsed("finstrument")), (Exporter::Strace, Exporter::Finstrument));
    assert_eq!(parsed("own").to_string(), "own");
}

#[test]
fn those_of_an_installation_go_first_and_others_are_unknown() {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["bin", "lib"] {
        fs::create_dir(dir.path().join(folder)).unwrap();
    }
    let lib = |file: &str| dir.path().join("lib").join(file);
    for file in ["libmetricproxy-exporter-own.so", "libmetricproxy-exporter-mpi.so", "libproxyclient.so"] {
        fs::write(lib(file), "").unwrap();
    }
    fs::write(dir.path().join("bin/proxy_exporter_strace"), "").unwrap();
    let clock = SystemClock::new();
    let shelf = ExporterShelf { installation: Some(dir.path().to_path_buf()), cache: None, clock: &clock };
    assert_eq!(shelf.names(), ["finstrument", "mpi", "own", "strace"]);
    let found = |text: &str| shelf.attachment(&parsed(text), &Waiting);
    assert_eq!(found("own").unwrap(), Attachment::Preload(lib("libmetricproxy-exporter-own.so")));
    assert_eq!(found("mpi").unwrap(), Attachment::Preload(lib("libmetricproxy-exporter-mpi.so")));
    assert_eq!(found("finstrument").unwrap(), Attachment::Preload(lib("libproxyclient.so")));
    assert_eq!(found("strace").unwrap(), Attachment::Before(dir.path().join("bin/proxy_exporter_strace")));
    let why = found("../lib/own").unwrap_err().to_string();
    assert_eq!(why, "there is no exporter '../lib/own'; expected one of finstrument, mpi, own, strace");
    // Of another MPI the installed one is of no use.
    let why = found("mpi=other-mpicc").unwrap_err().to_string();
    assert!(why.starts_with("exporter 'mpi' cannot be built: neither XDG_CACHE_HOME"), "{why}");
}

#[test]
fn the_page_of_clients_lists_every_exporter_of_telem() {
    let clock = SystemClock::new();
    let own = ExporterShelf { installation: None, cache: None, clock: &clock }.names();
    let told: BTreeSet<String> = first_column("proxy-client.md", "| exporter |").into_iter().collect();
    assert_eq!(told, BTreeSet::from_iter(own));
}

#[test]
fn a_compiler_that_is_not_there_is_named_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let clock = SystemClock::new();
    let shelf = ExporterShelf { installation: None, cache: Some(dir.path().join("cache/exporters")), clock: &clock };
    let why = shelf.attachment(&parsed("mpi=no-such-mpicc"), &Waiting).unwrap_err().to_string();
    assert!(why.contains("'no-such-mpicc' cannot be run") && why.ends_with("with -e mpi=FILE"), "{why}");
}

#[test]
fn programs_stand_before_the_command_and_libraries_behind_what_is_preloaded() {
    let attachments = [
        Attachment::Preload("/x/libmetricproxy-exporter-mpi.so".into()),
        Attachment::Before("/x/proxy_exporter_strace".into()),
        Attachment::Preload("/x/libproxyclient.so".into()),
    ];
    let (words, preloaded) = attach(&attachments, vec!["a".into(), "-b".into()], Some(OsStr::new("/own.so")));
    assert_eq!(words, ["/x/proxy_exporter_strace", "--", "a", "-b"]);
    let expected = "/own.so:/x/libmetricproxy-exporter-mpi.so:/x/libproxyclient.so";
    assert_eq!(preloaded, Some(("LD_PRELOAD".to_owned(), expected.into())));
    assert_eq!(attach(&[], vec!["a".into()], None), (vec!["a".into()], None));
}

#[test]
fn the_binary_carries_every_source_of_the_client_library() {
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients");
    let named = |dir: &str| {
        let names = fs::read_dir(clients.join(dir)).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| format!("{dir}/{}", name.into_string().unwrap())).collect::<BTreeSet<_>>()
    };
    let wanted: BTreeSet<_> = ["proxy/src", "proxy/include"].into_iter().flat_map(named).collect();
    for recipe in [&sources::MPI, &sources::STRACE, &sources::CLIENT] {
        let carried: BTreeSet<_> = recipe.sources.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert!(wanted.is_subset(&carried), "{}: {:?}", recipe.file, wanted.difference(&carried));
    }
}
