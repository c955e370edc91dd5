use super::inventory::{DEVICE_TEXT_BYTES_MAX, DeviceKind, DeviceStatus, InventoryEntry};
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
    meta.apply(MetaChange::Metric { name: "cpu".into(), meta: cpu.clone() });
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
    assert!(job(JOB_BYTES_MAX).check(&Meta::default()).is_ok());
    assert!(job(JOB_BYTES_MAX + 1).check(&Meta::default()).is_err());
    let help = |bytes| MetaChange::Metric {
        name: "m".into(),
        meta: MetricMeta { help: "x".repeat(bytes), ..MetricMeta::default() },
    };
    assert!(help(TEXT_BYTES_MAX).check(&Meta::default()).is_ok());
    assert!(help(TEXT_BYTES_MAX + 1).check(&Meta::default()).is_err());
}

fn gpu(device: &str) -> InventoryEntry {
    InventoryEntry {
        vendor: "NVIDIA".to_owned(),
        serial_or_uuid: "GPU-1".to_owned(),
        numa: Some(1),
        memory_bytes: Some(150_754_820_096),
        limit_watts: Some(700.5),
        in_job: Some(false),
        ..InventoryEntry::new(DeviceKind::Gpu, device)
    }
}

#[test]
fn a_device_is_read_back_as_it_was_stored_and_replaced_by_what_is_told_later() {
    let mut meta = Meta::default();
    for device in ["10", "2"] {
        meta.apply(gpu(device).change("n1"));
    }
    meta.apply(InventoryEntry::refused(DeviceKind::Energy, "/sys/x", "no", "ask").change("n1"));
    let read: Meta = serde_json::from_slice(&serde_json::to_vec(&meta).unwrap()).unwrap();
    let refused = InventoryEntry::refused(DeviceKind::Energy, "/sys/x", "no", "ask");
    let expected = [gpu("2"), gpu("10"), refused].map(|entry| ("n1".to_owned(), entry));
    assert_eq!(read.inventory(), expected);
    let lost = InventoryEntry { status: DeviceStatus::Lost, ..gpu("2") };
    meta.apply(lost.change("n1"));
    assert_eq!(meta.inventory()[0].1, lost);
    assert_eq!(meta.inventory().len(), 3);
}

#[test]
fn devices_of_several_databases_are_those_of_all_their_nodes() {
    let mut one = Meta::default();
    one.apply(gpu("0").change("n1"));
    let mut other = Meta::default();
    other.apply(gpu("0").change("n2"));
    other.apply(MetaChange::Annotate(note(0, Some("01"), "of a series")));
    one.absorb(other);
    let nodes: Vec<String> = one.inventory().into_iter().map(|(node, _)| node).collect();
    assert_eq!(nodes, ["n1", "n2"]);
    assert_eq!(one.annotations().len(), 2);
}

#[test]
fn texts_of_devices_are_cut_and_hold_no_control_characters() {
    let long = InventoryEntry {
        model: format!("a\nb{}", "é".repeat(DEVICE_TEXT_BYTES_MAX)),
        ..InventoryEntry::new(DeviceKind::Gpu, "0")
    };
    let bounded = long.bounded();
    assert!(bounded.model.starts_with("a bé"));
    assert_eq!(bounded.model.len(), DEVICE_TEXT_BYTES_MAX - 1);
}
