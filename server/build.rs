//! How the binary is linked.
//!
//! * At a fixed address, as everything in it is known when it is linked. An executable that may lie anywhere has
//!   a list of some hundred thousand addresses that the loader corrects at each start: a tenth of the file, and 6 MB of
//!   memory that no two processes share. Stack, heap and libraries stay at random addresses.
//! * With equal functions once. Generic code is compiled for each type, and much of it comes out equal. Only LLD can do
//!   this, which is what `rustc` brings along for this target.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = env::var("TARGET").unwrap_or_default();
    if target.ends_with("-linux-gnu") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
    if target == "x86_64-unknown-linux-gnu" && !has_own_linker() {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}

/// Whether whoever builds this has chosen a linker, which may not know the option.
fn has_own_linker() -> bool {
    const LINKER: &str = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER";
    println!("cargo::rerun-if-env-changed={LINKER}");
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    env::var_os(LINKER).is_some() || flags.contains("link") || env::var_os("RUSTC_LINKER").is_some()
}
