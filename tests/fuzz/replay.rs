//! Replays the corpora through the targets of a crate. `fuzzing.rs` of `engine` and of `ingest` include this file as
//! their tests, so that every ordinary test run repeats what a fuzzer once did.

use std::path::Path;

use super::TARGETS;

/// The corpora are shared with the fuzzer, and each file in `regressions` failed once.
#[test]
fn every_file_of_the_corpora_holds_what_its_target_demands() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz");
    for (name, target) in TARGETS {
        let mut seen = 0;
        for folder in ["corpus", "regressions"] {
            let dir = fuzz.join(folder).join(name);
            let files = std::fs::read_dir(&dir).into_iter().flatten();
            for file in files.map(|entry| entry.unwrap().path()) {
                println!("{}", file.display());
                target(&std::fs::read(&file).unwrap());
                seen += usize::from(folder == "corpus");
            }
        }
        assert!(seen > 0, "no corpus of {name}: run the example `seeds` of tests/fuzz");
    }
}
