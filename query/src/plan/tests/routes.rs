//! Both ways to an answer give the same answer.

use proptest::prelude::*;
use telem_engine::{Timestamp, Value};

use super::support::{World, query, same};
use crate::plan::Route;

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (-50_i64..1_000).prop_map(Value::Int),
        3 => (-100.0..100.0).prop_map(Value::Float),
        1 => prop_oneof![Just(1.5e308), Just(f64::NAN), Just(-0.0), Just(f64::INFINITY)].prop_map(Value::Float),
    ]
}

fn series() -> impl Strategy<Value = Vec<(Timestamp, Value)>> {
    let time = (3_600_000_i64..18_000_000).prop_map(|millis| Timestamp::from_millis(millis - millis % 500));
    prop::collection::vec((time, value()), 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn pushdown_and_points_agree(
        data in prop::collection::vec((0..3_usize, series(), any::<bool>()), 1..7),
        aggregator in prop::sample::select(vec![
            "sum", "zimsum", "pfsum", "avg", "min", "max", "mimmin", "mimmax", "count", "squareSum", "none",
        ]),
        downsample in prop::sample::select(vec![
            "30s-avg", "1m-sum-zero", "7m-max", "10m-avg-nan", "100m-sum", "100m-sum-nan", "13m-count-zero",
            "0all-sum", "0all-avg-nan", "1500ms-last", "90s-p50", "5h-diff",
        ]),
        rate in prop::sample::select(vec!["", "rate:", "rate{counter}:", "rate{counter,1000,5}:", "rate{dropcounter}:"]),
        group in prop::sample::select(vec!["m", "m{dc=*}", "m{dc=*,host=*}"]),
        exact in any::<bool>(),
        (start, length) in (3_600_i64..16_000, 1_i64..9_000),
    ) {
        let world = World::new();
        for (number, (dc, samples, flushed)) in data.iter().enumerate() {
            let (host, dc) = (format!("h{number}"), format!("d{dc}"));
            let tags = [("host", host.as_str()), ("dc", dc.as_str())];
            let (before, after) = samples.split_at(samples.len() / 2);
            world.put("m", &tags, before.iter().copied());
            if *flushed {
                world.flush();
            }
            world.put("m", &tags, after.iter().copied());
        }
        let exact = if exact { "!" } else { "" };
        let asked = query(&format!("{exact}{start} {} {aggregator}:{downsample}:{rate}{group}", start + length));
        let pushed = world.ask_by(Route::Pushdown, &asked);
        let fetched = world.ask_by(Route::Points, &asked);
        if let Err(difference) = same(&pushed, &fetched) {
            prop_assert!(false, "{asked:?}\n{difference}");
        }
    }
}
