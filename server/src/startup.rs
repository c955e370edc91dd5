//! What this process inherited, before Rust's runtime changed it.
//!
//! The runtime ignores SIGPIPE before `main` begins, and gives every child process the default. Whether SIGPIPE was
//! ignored when telem was started, and so must be ignored by the command, can only be read before that. The loader
//! calls functions in a certain section before it calls anything else. The attribute that places a function there is
//! unsafe.

use std::fs;
use std::sync::OnceLock;

/// proc_pid_status(5) of this process as it was at first.
static STATUS: OnceLock<String> = OnceLock::new();

/// C libraries call this before `main`, on the only thread that there is.
extern "C" fn remember() {
    // Without /proc nothing is known, and the command gets what Rust gives to every child.
    if let Ok(status) = fs::read_to_string("/proc/self/status") {
        let _ = STATUS.set(status);
    }
}

#[used]
#[allow(unsafe_code, reason = "no other way tells what was inherited; see the module")]
// SAFETY: the section holds pointers to functions of the C calling convention and nothing else, which is what stands
// here. The function relies on nothing that Rust's runtime sets up: it reads a file and keeps it.
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn() = remember;

/// That of this process when it was started; empty where it could not be read.
pub fn status() -> &'static str {
    STATUS.get().map_or("", String::as_str)
}
