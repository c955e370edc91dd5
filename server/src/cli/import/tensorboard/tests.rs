//! Tensors and settings; `tests/py/test_import.py` has those that the real packages write.

use super::*;
use crate::cli::tensorboard::{TensorDimension, TensorShape};

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
    let tensor = |dtype: i32, dimensions: &[i64], content: &[u8]| {
        let dim = dimensions.iter().map(|size| TensorDimension { size: *size }).collect();
        let tensor_content = Bytes::copy_from_slice(content);
        scalar(&Tensor { dtype, tensor_shape: Some(TensorShape { dim }), tensor_content, ..Tensor::default() })
    };
    assert_eq!(tensor(1, &[], &1.5_f32.to_le_bytes()), Some(Value::Float(1.5)));
    assert_eq!(tensor(9, &[1, 1], &(-3_i64).to_le_bytes()), Some(Value::Int(-3)));
    assert_eq!((tensor(1, &[2], &[0; 8]), tensor(1, &[0], &[]), tensor(7, &[], b"text")), (None, None, None));
}

#[test]
fn a_tensor_that_is_too_large_for_a_number_or_damaged_is_no_scalar() {
    let of = |tensor: Vec<u8>| {
        let value = Some(SummaryContent::Tensor(tensor.into()));
        scalar_of(&SummaryValue { tag: "loss".to_owned(), metadata: None, value })
    };
    let listed = |numbers: usize| Tensor { dtype: 1, float_val: vec![1.5; numbers], ..Tensor::default() };
    assert_eq!(of(listed(1).encode_to_vec()), Some(Value::Float(1.5)));
    assert_eq!(of(listed(SCALAR_BYTES_MAX / 4).encode_to_vec()), None);
    assert_eq!(of(vec![0xff]), None);
}

#[test]
fn a_number_may_be_the_first_of_the_list_of_its_type() {
    let tensor = |dtype| Tensor {
        dtype,
        float_val: vec![1.5],
        double_val: vec![0.1],
        int_val: vec![-3],
        int64_val: vec![-1 << 40],
        half_val: vec![0x3c00],
        uint32_val: vec![u32::MAX],
        uint64_val: vec![7],
        ..Tensor::default()
    };
    for (dtype, expected) in [
        (1, Value::Float(1.5)),
        (2, Value::Float(0.1)),
        (3, Value::Int(-3)),
        (9, Value::Int(-1 << 40)),
        (19, Value::Float(1.0)),
        (22, Value::Int(u32::MAX.into())),
        (23, Value::Int(7)),
    ] {
        assert_eq!(scalar(&tensor(dtype)), Some(expected), "{dtype}");
    }
    let truth = Tensor { dtype: 10, bool_val: vec![true], ..Tensor::default() };
    assert_eq!(
        (scalar(&truth), scalar(&Tensor { dtype: 1, ..Tensor::default() })),
        (Some(Value::Int(1)), Some(Value::Float(0.0)))
    );
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
