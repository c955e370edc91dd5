// Stores a few samples, and asks for them twice: as a time series, and in SQL.
use std::sync::Arc;

use arrow::util::pretty::pretty_format_batches;
use futures::TryStreamExt;
use telem_engine::{Db, Durability, Options, SampleBatch, SeriesKey, SystemClock, TagSet, Timestamp, Value};
use telem_query::{Aggregator, Queries, QueryOptions, TsQuery};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path(), Options::default())?;
    let mut batch = SampleBatch::default();
    for (host, load) in [("a", 1.5), ("b", 2.25)] {
        let series = db.series(&SeriesKey::new("load", TagSet::new([("host", host)])?)?)?;
        batch.push(series, Timestamp::from_seconds(60), Value::Float(load));
    }
    db.append(&batch, Durability::Synced)?;
    let queries = Queries::new(db, QueryOptions::new(Arc::new(SystemClock::new())))?;

    let (start, end) = (Timestamp::from_seconds(0), Timestamp::from_seconds(120));
    let answer = queries.timeseries(TsQuery::new("load", Aggregator::Sum, start, end)).await?;
    for group in answer.groups {
        println!("{} series: {:?}", group.series.len(), group.points);
    }

    let answer = queries.sql("SELECT host, max(value) FROM load GROUP BY host ORDER BY host").await?;
    let batches: Vec<_> = answer.batches.try_collect().await?;
    println!("{}", pretty_format_batches(&batches)?);
    Ok(())
}
