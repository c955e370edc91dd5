// Stores the load of two hosts, closes the database, and reads it back: as points, and as averages by minute.
use telem_engine::downsample::{DownsampleRequest, Function};
use telem_engine::{Db, Durability, Options, SampleBatch, SeriesKey, Step, TagSet, TimeRange, Timestamp, Value};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path(), Options::default())?;
    let mut batch = SampleBatch::default();
    for (host, load) in [("a", 1.5), ("b", 2.25)] {
        let series = db.series(&SeriesKey::new("load", TagSet::new([("host", host)])?)?)?;
        for second in 0..120 {
            batch.push(series, Timestamp::from_seconds(second), Value::Float(load + second as f64));
        }
    }
    db.append(&batch, Durability::Synced)?; // from here on the samples survive a crash of the machine
    db.close()?; // flushes: the samples are in Parquet files now

    let snapshot = Db::open_read_only(dir.path(), Options::default())?.snapshot();
    let series = snapshot.select("load", &[]);
    for points in snapshot.points(series.clone(), TimeRange::ALL) {
        let points = points?;
        println!("{:?}: {} samples from {:?}", points.series, points.times.len(), points.times.first());
    }
    let step = Step::from_micros(60_000_000).ok_or("a step is greater than 0")?;
    let request = DownsampleRequest { series, range: TimeRange::ALL, step, function: Function::Avg };
    for buckets in snapshot.downsample(request) {
        println!("{:?}", buckets?.values);
    }
    Ok(())
}
