//! A question to the user at the terminal, before something is removed for good.

use std::io::{self, BufRead, IsTerminal, Write};

use super::CliFailure;

/// Whether the user answers `question` with yes. `option` is what asks.
///
/// # Errors
/// Usage, where there is no terminal.
pub fn is_agreed(option: &str, question: &str) -> Result<bool, CliFailure> {
    if !io::stdin().is_terminal() {
        let why = format!("{option} asks before it removes, and there is no terminal: add --yes");
        return Err(CliFailure::Usage(why));
    }
    write!(io::stderr(), "{question} [y/N] ")?;
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
