//! The binary `telem`. All of its code is in the library beside it.

use std::process::ExitCode;

/// The C library's allocator keeps what a large query took in the arenas of its threads; this one gives it back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    telem_server::cli::main()
}
