//! The binary `telem`. Everything it does lives in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    telem_server::cli::main()
}
