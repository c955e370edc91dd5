//! Writes the saved databases of `fixtures/db/v1` and their expected answers.
//!
//! ```text
//! cargo run -p telem-engine --example format_v1 -- DIR
//! cargo run -p telem-engine --example format_v1 -- --answers DATABASE
//! ```
//! The second form tells the answers of a database that telem itself made. The directories in DIR must not exist.
//! Format 1 is frozen. This program documents how the fixtures were made; do not make them again when a test fails.

#[path = "../../fixtures/db/v1/written.rs"]
mod written;

use std::path::PathBuf;

use telem_engine::Db;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args_os().nth(1).map(PathBuf::from).ok_or("name a directory")?;
    if dir.as_os_str() == "--answers" {
        let database = std::env::args_os().nth(2).map(PathBuf::from).ok_or("name a database")?;
        print!("{}", written::answers(&Db::open_read_only(&database, written::options())?)?);
        return Ok(());
    }
    for name in written::NAMES {
        let database = dir.join(name);
        if database.exists() {
            return Err(format!("{} exists", database.display()).into());
        }
        written::write(name, &database)?;
        let db = Db::open_read_only(&database, written::options())?;
        std::fs::write(dir.join(format!("{name}.answers")), written::answers(&db)?)?;
    }
    Ok(())
}
