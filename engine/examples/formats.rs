//! Writes the saved databases of `fixtures/db` and their expected answers.
//!
//! ```text
//! cargo run -p telem-engine --example formats -- DIR
//! cargo run -p telem-engine --example formats -- --answers DATABASE
//! ```
//! The second form tells the answers of a database that telem itself made. The directories in DIR must not exist.
//! A format that was released is frozen: those of `v1` and `v2` are never made again. `latest` has what is written now.

#[path = "../../fixtures/db/v1/written.rs"]
mod v1;
#[path = "../../fixtures/db/v2/written.rs"]
mod v2;

use std::path::PathBuf;

use telem_engine::Db;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args_os().nth(1).map(PathBuf::from).ok_or("name a directory")?;
    if dir.as_os_str() == "--answers" {
        let database = std::env::args_os().nth(2).map(PathBuf::from).ok_or("name a database")?;
        print!("{}", v1::answers(&Db::open_read_only(&database, v1::options())?)?);
        return Ok(());
    }
    for (format, name) in v1::NAMES.map(|name| ("v1", name)).into_iter().chain(v2::NAMES.map(|name| ("v2", name))) {
        let database = dir.join(format).join(name);
        if database.exists() {
            return Err(format!("{} exists", database.display()).into());
        }
        match format {
            "v1" => v1::write(name, &database)?,
            _ => v2::write(&database)?,
        }
        let db = Db::open_read_only(&database, v1::options())?;
        std::fs::write(dir.join(format).join(format!("{name}.answers")), v1::answers(&db)?)?;
    }
    Ok(())
}
