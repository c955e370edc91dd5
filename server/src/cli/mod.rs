//! The command line: one file per command.

use std::process::ExitCode;

use clap::Parser;

/// The best telemetry database for HPC and AI jobs: one binary, no root, no services to install.
#[derive(Debug, Parser)]
#[command(name = "telem", version)]
struct Cli {}

pub fn main() -> ExitCode {
    Cli::parse();
    ExitCode::SUCCESS
}
