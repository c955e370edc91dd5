use super::*;

fn note(start: i64, tsuid: Option<&str>, description: &str) -> Annotation {
    Annotation {
        tsuid: tsuid.map(str::to_owned),
        start: Timestamp::from_micros(start),
        description: description.to_owned(),
        ..Annotation::default()
    }
}

#[test]
fn annotations_are_sorted_by_start_and_replaced_by_series_and_start() {
    let mut meta = Meta::default();
    for annotation in [note(5, None, "b"), note(-1, None, "a"), note(5, Some("01"), "c"), note(5, None, "B")] {
        meta.apply(MetaChange::Annotate(annotation));
    }
    let texts: Vec<&str> = meta.annotations().iter().map(|annotation| &*annotation.description).collect();
    assert_eq!(texts, ["a", "B", "c"]);
    meta.apply(MetaChange::RemoveAnnotation { tsuid: None, start: Timestamp::from_micros(5) });
    meta.apply(MetaChange::RemoveAnnotation { tsuid: None, start: Timestamp::from_micros(77) });
    assert_eq!(meta.annotations().len(), 2);
}

#[test]
fn metadata_is_read_back_from_its_json() {
    let mut meta = Meta::default();
    let cpu = MetricMeta { kind: MetricKind::Counter, unit: "s".to_owned(), help: "\"é\"".to_owned() };
    meta.apply(MetaChange::Metric { name: "cpu".to_owned(), meta: cpu.clone() });
    meta.apply(MetaChange::Annotate(Annotation { end: Some(Timestamp::MAX), ..note(i64::MIN, None, "x") }));
    meta.apply(MetaChange::Job(serde_json::json!({"id": "4711"})));
    let json = serde_json::to_vec(&meta).unwrap();
    let read: Meta = serde_json::from_slice(&json).unwrap();
    assert_eq!(read, meta);
    assert_eq!(read.metric("cpu"), Some(&cpu));
}

#[test]
fn a_text_at_its_limit_is_taken_and_one_byte_more_is_refused() {
    let job = |bytes: usize| MetaChange::Job(serde_json::Value::String("x".repeat(bytes - 2)));
    assert!(job(JOB_BYTES_MAX).check().is_ok());
    assert!(job(JOB_BYTES_MAX + 1).check().is_err());
    let help = |bytes| MetaChange::Metric {
        name: "m".to_owned(),
        meta: MetricMeta { help: "x".repeat(bytes), ..MetricMeta::default() },
    };
    assert!(help(TEXT_BYTES_MAX).check().is_ok());
    assert!(help(TEXT_BYTES_MAX + 1).check().is_err());
}
