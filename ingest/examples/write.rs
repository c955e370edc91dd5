// Takes a body of line protocol, reports the bad line in it, and writes the good ones through the one writer.
use std::time::Duration;

use telem_engine::{Db, Durability, Options, TimeRange};
use telem_ingest::{DefaultTags, LinePrecision, LineRules, Writer, WriterOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path(), Options::default())?;
    let writer = Writer::start(db.clone(), WriterOptions::default())?;

    let body = b"cpu,host=a usage=1.5,cores=8i 60\ncpu,host=b usage=\ncpu,host=b usage=2.25 60\n";
    let rules = LineRules { precision: LinePrecision::Seconds, keep: true };
    let accepted = writer.accept_lines(&DefaultTags::default(), rules, body);
    for reject in &accepted.rejects {
        println!("line {}: {}", reject.line, reject.reason);
    }
    writer.submit(accepted.batch, Durability::Synced).await?;

    let snapshot = db.snapshot();
    for metric in snapshot.metrics() {
        let series = snapshot.select(&metric, &[]);
        println!("{metric}: {} series", snapshot.points(series, TimeRange::ALL).count());
    }
    writer.shutdown(Duration::from_secs(10)).await?;
    Ok(())
}
