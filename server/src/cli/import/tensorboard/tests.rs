//! Tensors and settings; `tests/py/test_import.py` has those that the real packages write.

use super::*;
use crate::cli::protobuf::ProtoWriter;

#[test]
fn half_precision_is_exact() {
    for (bits, expected) in [
        (0x0000, 0.0),
        (0x0001, 5.960_464_477_539_063e-8),
        (0x3c00, 1.0),
        (0xc000, -2.0),
        (0x3555, 0.333_251_953_125),
        (0x7bff, 65_504.0),
        (0x7c00, f64::INFINITY),
        (0xfc00, f64::NEG_INFINITY),
    ] {
        assert_eq!(half(bits), expected, "{bits:#x}");
    }
    assert!(half(0x7e00).is_nan());
    assert_eq!(TensorType::Bfloat.value(0x3fc0), Some(Value::Float(1.5)));
    assert_eq!(TensorType::Int(2).value(0xfffe), Some(Value::Int(-2)));
    assert_eq!(TensorType::UInt(8).value(u64::MAX), None);
}

#[test]
fn a_tensor_of_several_numbers_or_of_texts_is_no_scalar() {
    let tensor = |kind: i64, dimensions: &[i64], content: &[u8]| {
        let mut shape = ProtoWriter::default();
        for size in dimensions {
            let mut dimension = ProtoWriter::default();
            dimension.int(1, *size);
            shape.message(2, dimension);
        }
        let mut tensor = ProtoWriter::default();
        tensor.int(1, kind);
        tensor.message(2, shape);
        tensor.bytes(4, content);
        scalar(&tensor.into_bytes()).unwrap()
    };
    assert_eq!(tensor(1, &[], &1.5_f32.to_le_bytes()), Some(Value::Float(1.5)));
    assert_eq!(tensor(9, &[1, 1], &(-3_i64).to_le_bytes()), Some(Value::Int(-3)));
    assert_eq!((tensor(1, &[2], &[0; 8]), tensor(1, &[0], &[]), tensor(7, &[], b"text")), (None, None, None));
}

#[test]
fn settings_that_differ_between_runs_have_the_run_before_their_name() {
    let mut runs = EventRuns::default();
    for (name, run, value) in [("lr", "a", 1), ("lr", "b", 2), ("depth", "a", 3), ("depth", "b", 3)] {
        runs.settings.entry(name.to_owned()).or_default().push((run.to_owned(), Json::from(value)));
    }
    let settings: Vec<(String, Json)> = runs.settings().collect();
    let expected = [("depth", 3), ("a.lr", 1), ("b.lr", 2)];
    assert_eq!(settings, expected.map(|(name, value)| (name.to_owned(), Json::from(value))));
}
