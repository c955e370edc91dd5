//! Laws that come back from their points, and points that have none.

use proptest::prelude::*;

use super::formula::Formula;
use super::*;

fn points(of: impl Fn(f64) -> f64, sizes: &[f64]) -> Vec<SizePoint> {
    sizes.iter().map(|size| SizePoint { size: *size, value: of(*size) }).collect()
}

const SIZES: [f64; 6] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];

fn fit(of: impl Fn(f64) -> f64) -> String {
    ScalingModel::fit(&points(of, &SIZES)).unwrap().to_string()
}

#[test]
fn what_was_put_in_comes_out() {
    assert_eq!(fit(|_| 7.0), "7");
    assert_eq!(fit(|size| 1.5 + 2.0 * size), "1.5 + 2 * size");
    assert_eq!(fit(|size| 3.0 + 0.5 * size.log2()), "3 + 0.5 * log2(size)");
    let model = ScalingModel::fit(&points(|size| 10.0 + 2.0 * size.sqrt() * size.log2().powi(2), &SIZES)).unwrap();
    let term = model.term.unwrap();
    assert_eq!((term.exponent, term.logs), ((1, 2), 2), "{model}");
    assert!((model.constant - 10.0).abs() < 1e-9 && (term.factor - 2.0).abs() < 1e-9 && model.rss < 1e-18, "{model:?}");
}

#[test]
fn a_formula_is_written_as_extra_p_writes_it() {
    let term = |exponent, logs| Some(ScalingTerm { factor: -0.5, exponent, logs });
    let text = |term| ScalingModel { constant: 1e-7, term, rss: 0.0 }.to_string();
    assert_eq!(text(None), "1e-7");
    assert_eq!(text(term((0, 1), 1)), "1e-7 + -0.5 * log2(size)");
    assert_eq!(text(term((1, 1), 2)), "1e-7 + -0.5 * size * log2(size)^(2)");
    assert_eq!(text(term((11, 4), 0)), "1e-7 + -0.5 * size^(11/4)");
    assert_eq!(text(term((2, 1), 1)), "1e-7 + -0.5 * size^(2) * log2(size)");
}

#[test]
fn fewer_than_three_sizes_tell_no_law() {
    assert_eq!(ScalingModel::fit(&[]), None);
    let one = ScalingModel::fit(&points(|size| size, &[4.0])).unwrap();
    assert_eq!((one.to_string(), one.rss), ("4".to_owned(), 0.0));
    let two = ScalingModel::fit(&points(|size| size, &[2.0, 4.0, 4.0])).unwrap();
    assert_eq!((two.to_string(), two.rss), ("3".to_owned(), 2.0));
    assert_eq!(ScalingModel::fit(&points(|size| size, &[2.0, 4.0, 8.0])).unwrap().to_string(), "0 + 1 * size");
}

#[test]
fn noise_stays_a_constant() {
    let noisy = [10.1, 9.8, 10.3, 9.9, 10.2, 9.7];
    let points: Vec<_> = SIZES.iter().zip(noisy).map(|(size, value)| SizePoint { size: *size, value }).collect();
    let model = ScalingModel::fit(&points).unwrap();
    assert_eq!(model.term, None, "{model}");
    assert!((model.constant - 10.0).abs() < 1e-9);
    assert!((model.rss - noisy.iter().map(|value| (value - 10.0).powi(2)).sum::<f64>()).abs() < 1e-9);
}

#[test]
fn rounding_is_no_law() {
    assert_eq!(fit(|size| 0.1 + 0.2 + 1e-17 * size).matches('*').count(), 0);
    assert_eq!(fit(|_| 0.0), "0");
}

#[test]
fn a_law_with_noise_is_found_near_what_it_is() {
    let noise = [1.02, 0.97, 1.01, 0.99, 1.03, 0.98];
    let points: Vec<_> = SIZES
        .iter()
        .zip(noise)
        .map(|(size, noise)| SizePoint { size: *size, value: (100.0 + 3.0 * size * size) * noise })
        .collect();
    let model = ScalingModel::fit(&points).unwrap();
    let expected = 100.0 + 3.0 * 64.0 * 64.0;
    assert!((model.at(64.0) / expected - 1.0).abs() < 0.2, "{model}: {} instead of {expected}", model.at(64.0));
}

#[test]
fn several_values_of_a_size_count_as_their_mean() {
    let mut all = points(|size| 5.0 + size, &SIZES);
    all.extend([SizePoint { size: 1.0, value: 7.0 }, SizePoint { size: 1.0, value: 5.0 }]);
    let model = ScalingModel::fit(&all).unwrap();
    assert_eq!(model, ScalingModel::fit(&points(|size| 5.0 + size, &SIZES)).unwrap());
}

#[test]
fn what_is_no_point_is_left_out() {
    let mut all = points(|size| 5.0 + size, &SIZES);
    let clean = ScalingModel::fit(&all).unwrap();
    for (size, value) in
        [(0.0, 1.0), (-1.0, 1.0), (f64::NAN, 1.0), (f64::INFINITY, 1.0), (2.0, f64::NAN), (2.0, f64::INFINITY)]
    {
        all.push(SizePoint { size, value });
    }
    assert_eq!(ScalingModel::fit(&all).unwrap(), clean);
}

#[test]
fn many_sizes_are_fitted_too() {
    let sizes: Vec<f64> = (1..=5_000).map(f64::from).collect();
    let model = ScalingModel::fit(&points(|size| 1.0 + 0.25 * size.powf(1.5), &sizes)).unwrap();
    assert_eq!(model.term.map(|term| (term.exponent, term.logs)), Some(((3, 2), 0)), "{model}");
}

#[test]
fn every_shape_is_tried_once() {
    let shapes: Vec<_> = shapes().collect();
    assert_eq!(shapes.len(), 19 * 3 - 1);
    let unique: std::collections::BTreeSet<_> = shapes.iter().collect();
    assert_eq!(unique.len(), shapes.len());
}

proptest! {
    #[test]
    fn every_law_of_the_family_comes_back(
        shape in proptest::sample::select(shapes().collect::<Vec<_>>()),
        constant in 1.0..100.0f64,
        factor in 1.0..100.0f64,
    ) {
        let (exponent, logs) = shape;
        let law = ScalingModel { constant, term: Some(ScalingTerm { factor, exponent, logs }), rss: 0.0 };
        let model = ScalingModel::fit(&points(|size| law.at(size), &SIZES)).unwrap();
        let found = model.term.map(|term| (term.exponent, term.logs));
        prop_assert_eq!(found, Some(shape), "{} from {}", model, law);
        prop_assert!((model.at(64.0) / law.at(64.0) - 1.0).abs() < 1e-6, "{} from {}", model, law);
    }

    #[test]
    fn no_points_make_it_panic_and_the_formula_says_the_same(
        points in proptest::collection::vec((0.5..1e6f64, any::<f64>()), 0..12),
        at in 0.5..1e6f64,
    ) {
        let points: Vec<_> = points.iter().map(|(size, value)| SizePoint { size: *size, value: *value }).collect();
        if let Some(model) = ScalingModel::fit(&points) {
            let formula: Formula = model.to_string().parse().unwrap();
            prop_assert!(formula.at(at).to_bits() == model.at(at).to_bits() || model.at(at).is_nan(), "{}", model);
        }
    }

    #[test]
    fn the_order_of_points_does_not_matter(
        points in proptest::collection::vec((1u8..6, -1e3..1e3f64), 1..12).prop_shuffle(),
    ) {
        let mut points: Vec<_> =
            points.iter().map(|(size, value)| SizePoint { size: f64::from(*size), value: *value }).collect();
        let one = ScalingModel::fit(&points);
        points.reverse();
        prop_assert_eq!(ScalingModel::fit(&points), one);
    }

    #[test]
    fn a_law_is_never_worse_than_the_constant(points in proptest::collection::vec((1.0..1e4f64, -1e6..1e6f64), 1..12)) {
        let points: Vec<_> = points.iter().map(|(size, value)| SizePoint { size: *size, value: *value }).collect();
        let model = ScalingModel::fit(&points).unwrap();
        let means = means(&points);
        let mean = means.iter().map(|point| point.value).sum::<f64>() / means.len() as f64;
        let flat: f64 = means.iter().map(|point| (point.value - mean).powi(2)).sum();
        prop_assert!(model.rss <= flat * (1.0 + 1e-9) + 1e-9, "{} has {} and a constant {}", model, model.rss, flat);
    }
}
