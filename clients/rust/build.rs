//! Compiles the C library, whose sources are below `c`.

use std::path::Path;

fn main() {
    let c = Path::new("c");
    println!("cargo::rerun-if-changed=c/src");
    println!("cargo::rerun-if-changed=c/include");
    let folder = std::fs::read_dir(c.join("src")).unwrap_or_else(|error| {
        panic!("telem-client: {}: {error}; expected the sources of the C library there", c.join("src").display())
    });
    let mut sources: Vec<_> = folder
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "c"))
        .collect();
    sources.sort();
    cc::Build::new()
        .files(sources)
        .include(c.join("include"))
        .std("c11")
        .flag("-fvisibility=hidden")
        .flag("-pthread")
        // Nobody steps through it, and without optimisation what a program measures is the library.
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .compile("telem");
    for library in ["pthread", "m"] {
        println!("cargo::rustc-link-lib={library}");
    }
}
