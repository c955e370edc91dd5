//! The same samples as plain columns of numbers, for databases that are not servers and for the comparison of answers.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::{Data, Failed, Value};

/// Writes the columns in the order of arrival; a line of JSON about them.
///
/// `series.tsv`: a line a series by its number: metric, tags as JSON.
///
/// # Errors
/// When the data cannot be read or a file not be written.
pub fn write(data: &dyn Data, out: &Path) -> Result<String, Failed> {
    fs::create_dir_all(out)?;
    let open = |name: &str| Ok::<_, Failed>(BufWriter::with_capacity(1 << 20, File::create(out.join(name))?));
    let (mut ids, mut times, mut values) = (open("series.u32")?, open("ts.i64")?, open("value.f64")?);
    let mut keys: Vec<Option<String>> = Vec::new();
    let mut samples = 0_u64;
    data.each_row(&mut |row| {
        for (field, (series, value)) in row.series.iter().zip(row.values).enumerate() {
            let at = *series as usize;
            if keys.len() <= at {
                keys.resize(at + 1, None);
            }
            keys[at].get_or_insert_with(|| {
                let tags = row.subject.tags.iter().map(|(key, value)| format!(r#""{key}": "{value}""#));
                format!("{}\t{{{}}}", row.subject.metric(field), tags.collect::<Vec<_>>().join(", "))
            });
            let value = match *value {
                Value::Int(value) => value as f64,
                Value::Float(value) => value,
            };
            ids.write_all(&series.to_le_bytes())?;
            times.write_all(&row.time_ms.to_le_bytes())?;
            values.write_all(&value.to_le_bytes())?;
            samples += 1;
        }
        Ok(())
    })?;
    for mut file in [ids, times, values] {
        file.flush()?;
    }
    let mut names = open("series.tsv")?;
    for key in keys.iter().flatten() {
        writeln!(names, "{key}")?;
    }
    names.flush()?;
    Ok(format!(r#"{{"samples":{samples},"series":{}}}"#, keys.len()))
}
