//! The fuzz target of what exporters show of themselves.

use std::collections::BTreeSet;
use std::fmt::Write;

use telem_engine::Timestamp;

use crate::decode::exposition::{
    ExposedFamily, ExposedSample, ExposedType, Exposition, ExpositionEnd, ExpositionFormat, ExpositionLimits,
};

/// Every line is told.
const LIMITS: ExpositionLimits = ExpositionLimits {
    line_bytes_max: 400,
    samples_max: 1_000,
    families_max: 1_000,
    labels_max: 4,
    refused_told_max: usize::MAX,
};

/// A refused line exists, says why, and costs itself only; what was read can be written, and is read the same again.
pub fn exposition_text(body: &[u8]) {
    for format in [ExpositionFormat::Text, ExpositionFormat::OpenMetrics] {
        let read = Exposition::parse(body, format, &LIMITS);
        let lines: Vec<&[u8]> = body.split(|byte| *byte == b'\n').collect();
        assert!(read.samples.len() + read.rejects.len() <= lines.len() && read.rejects.len() as u64 == read.refused);
        assert!(read.rejects.is_sorted_by(|before, after| before.line < after.line));
        for reject in &read.rejects {
            assert!((1..=lines.len()).contains(&reject.line));
            // As much as the longest name of a family and of a label, and the words around them.
            assert!(reject.to_string().len() < 1_000, "{reject}");
        }
        for sample in &read.samples {
            assert!(!sample.name.is_empty() && sample.labels.len() <= LIMITS.labels_max);
            assert!(sample.family.is_none_or(|family| sample.name.starts_with(&read.families[family].name)));
        }

        let refused: BTreeSet<usize> = read.rejects.iter().map(|reject| reject.line).collect();
        let good = lines.iter().enumerate().filter(|(at, _)| !refused.contains(&(at + 1))).map(|(_, line)| *line);
        let good = good.collect::<Vec<_>>().join(&b'\n');
        same(&Exposition::parse(&good, format, &LIMITS), &read);

        let roomy = ExpositionLimits { line_bytes_max: usize::MAX, ..LIMITS };
        let again = Exposition::parse(written(&read, format).as_bytes(), format, &roomy);
        // Where a type came behind samples, it comes before them now.
        let plain = |sample: &ExposedSample| (sample.name.clone(), sample.labels.clone(), bits(sample), sample.time);
        assert!(again.samples.iter().map(plain).eq(read.samples.iter().map(plain)), "{again:?}");
        assert_eq!((&again.rejects[..], &again.families, again.end), (&[][..], &read.families, read.end));
    }
}

/// All NaNs are one: a text has one word for them.
fn bits(sample: &ExposedSample) -> u64 {
    if sample.value.is_nan() { f64::NAN.to_bits() } else { sample.value.to_bits() }
}

fn same(one: &Exposition, other: &Exposition) {
    assert_eq!((&one.families, one.end, &one.rejects[..]), (&other.families, other.end, &[][..]));
    let whole = |sample: &ExposedSample| {
        (sample.name.clone(), sample.labels.clone(), bits(sample), sample.time, sample.family, sample.kind)
    };
    assert!(one.samples.iter().map(whole).eq(other.samples.iter().map(whole)), "{one:?} {other:?}");
}

fn written(read: &Exposition, format: ExpositionFormat) -> String {
    let mut text = String::new();
    for ExposedFamily { name, help, kind, unit } in &read.families {
        let name = quoted(name);
        let kind = match kind {
            ExposedType::Unknown => "untyped".to_owned(),
            known => format!("{known:?}").to_lowercase(),
        };
        writeln!(text, "# TYPE {name} {kind}").expect("a text takes everything");
        for (what, said) in [("HELP", escaped(help)), ("UNIT", unit.clone())] {
            if !said.is_empty() {
                writeln!(text, "# {what} {name} {said}").expect("a text takes everything");
            }
        }
    }
    for ExposedSample { name, labels, value, time, .. } in &read.samples {
        let labels: Vec<String> =
            labels.iter().map(|(key, value)| format!(",{}=\"{}\"", quoted(key), escaped(value))).collect();
        let time = time.map(|time| written_time(time, format)).unwrap_or_default();
        writeln!(text, "{{{}{}}} {value:?}{time}", quoted(name), labels.concat()).expect("a text takes everything");
    }
    if read.end == ExpositionEnd::Marked {
        text.push_str("# EOF\n");
    }
    text
}

fn written_time(time: Timestamp, format: ExpositionFormat) -> String {
    let micros = time.micros();
    match format {
        ExpositionFormat::Text => format!(" {}", micros / 1_000),
        ExpositionFormat::OpenMetrics => {
            let (sign, micros) = (if micros < 0 { "-" } else { "" }, micros.unsigned_abs());
            format!(" {sign}{}.{:06}", micros / 1_000_000, micros % 1_000_000)
        }
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", escaped(name))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
