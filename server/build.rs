//! How the binary is linked.
//!
//! * At a fixed address, as everything in it is known when it is linked. An executable that may lie anywhere has
//!   a list of some hundred thousand addresses that the loader corrects at each start: a tenth of the file, and 6 MB of
//!   memory that no two processes share. Stack, heap and libraries stay at random addresses.
//! * With equal functions once. Generic code is compiled for each type, and much of it comes out equal. Only LLD can do
//!   this, which `rustc` from rustup brings along for this target and uses. That of a distribution may do without.
//! * With functions that often run side by side, where the compiler was told which they are; or with all that run in the
//!   order that they were found to be needed in, as `./release` does: so little of the file is in memory.

use std::env;
use std::path::Path;
use std::process::Command;

/// A file with the names of functions, line by line.
const ORDER: &str = "TELEM_FUNCTION_ORDER";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = env::var("TARGET").unwrap_or_default();
    if target.ends_with("-linux-gnu") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
    if target == "x86_64-unknown-linux-gnu" && !has_own_linker() && has_lld() {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
        println!("cargo::rerun-if-env-changed={ORDER}");
        if let Ok(order) = env::var(ORDER) {
            println!("cargo::rustc-link-arg-bins=-Wl,--symbol-ordering-file={order}");
            println!("cargo::rustc-link-arg-bins=-Wl,--no-warn-symbol-ordering");
        } else {
            // An order holds within a section of the file, and is one for all functions where these are in one.
            println!("cargo::rustc-link-arg-bins=-Wl,-z,keep-text-section-prefix");
        }
    }
}

/// Whether whoever builds this has chosen a linker, which may not know the option.
fn has_own_linker() -> bool {
    const LINKER: &str = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER";
    println!("cargo::rerun-if-env-changed={LINKER}");
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    // Not in a path, such as that of a profile.
    let mut names = flags.split('\x1f').map(|flag| flag.trim_start_matches("-C").trim_start());
    let is_chosen = names.any(|name| name.starts_with("link") && !name.starts_with("link-dead-code"));
    env::var_os(LINKER).is_some() || is_chosen || env::var_os("RUSTC_LINKER").is_some()
}

/// Whether LLD came with the compiler, where the compiler looks for it.
fn has_lld() -> bool {
    let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let Ok(said) = Command::new(compiler).args(["--print", "sysroot"]).output() else { return false };
    let sysroot = String::from_utf8_lossy(&said.stdout);
    Path::new(sysroot.trim()).join("lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld/ld.lld").exists()
}
