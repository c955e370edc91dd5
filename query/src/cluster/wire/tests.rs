use std::ops::Bound;

use chrono_tz::Tz;
use datafusion::prelude::SessionContext;
use telem_engine::{SeriesKey, Step, TagSet, TimeRange, Timestamp, ValueRange};

use super::*;
use crate::leaf::names::{NameSubject, NameTest, Order};
use crate::leaf::rows::{Column, RowKind, RowsRequest};
use crate::leaf::series::{SeriesRequest, SeriesSplit, Yield};
use crate::question::Aggregator;
use crate::question::aggregator::{Estimation, Percentile};
use crate::question::expression::{Case, Expression};
use crate::question::tsq::{CalendarUnit, Downsample, Fidelity, Fill, Interval, Matcher, Rate, TagFilter, TsQuery};

/// The leaf after its way across, as both sides show it.
fn across(request: Request, schema: Schema) -> (String, String) {
    let leaf = NodeLeafExec::new("n7".to_owned(), request, Arc::new(schema)).with_partitions(3);
    let mut bytes = Vec::new();
    let converter = datafusion_proto::physical_plan::DefaultPhysicalProtoConverter {};
    LeafCodec.try_encode(Arc::new(leaf.clone()), &mut bytes, &converter).unwrap();
    let task = SessionContext::new().task_ctx();
    let back = LeafCodec.try_decode(&bytes, &[], &task, &converter).unwrap();
    assert_eq!(back.schema(), leaf.schema());
    assert_eq!(back.properties().partitioning.partition_count(), 3);
    let back = back.downcast_ref::<NodeLeafExec>().unwrap();
    assert_eq!(back.node(), "n7");
    (format!("{:?}", leaf.request()), format!("{:?}", back.request()))
}

#[test]
fn a_request_for_rows_means_the_same_on_the_other_side() {
    let like = NameTest::Like { pattern: "a%\u{e9}".to_owned(), case: Case::Ignored, negated: true };
    let regex = NameTest::Regex { pattern: "^x+$".to_owned(), case: Case::Matters, negated: false };
    let request = RowsRequest {
        rows: RowKind::Sample,
        columns: vec![Column::Ts, Column::Tag("gpu".to_owned()), Column::Tags, Column::ValueInt, Column::Value],
        tests: vec![
            (NameSubject::Metric, NameTest::In { names: vec!["m".to_owned()], negated: false }),
            (NameSubject::Tag("k".to_owned()), like),
            (NameSubject::Node, regex),
            (NameSubject::Tag("k".to_owned()), NameTest::Compare { order: Order::LessOrEqual, name: "z".to_owned() }),
            (NameSubject::Tag("l".to_owned()), NameTest::Absent),
        ],
        range: TimeRange::new(Timestamp::MIN, Timestamp::from_micros(i64::MAX - 1)),
        // NaN is no number of JSON.
        values: ValueRange::new(Bound::Excluded(-0.0), Bound::Included(f64::NAN)),
        limit: Some(7),
        sorted_by: None,
    };
    let names = ["ts", "tag_gpu", "tags", "value_int", "value"];
    let fields: Vec<Field> = request.columns.iter().zip(names).map(|(column, name)| column.field(name)).collect();
    let (sent, received) = across(Request::Rows(request), Schema::new(fields));
    assert_eq!(sent, received);
}

#[test]
fn a_request_for_series_means_the_same_on_the_other_side() {
    let key = |host: &str| SeriesKey::new("m", TagSet::new([("host", host), ("core", "1")]).unwrap()).unwrap();
    let intervals = [
        Interval::Fixed(Step::from_micros(1).unwrap()),
        Interval::All,
        Interval::Calendar { count: 3, unit: CalendarUnit::Month, zone: Tz::America__New_York },
    ];
    for interval in intervals {
        let percentile = Aggregator::Percentile(Percentile { per_mille: 999, estimation: Estimation::R7 });
        let query = TsQuery {
            metric: "m".to_owned(),
            filters: vec![
                TagFilter {
                    key: "host".to_owned(),
                    matcher: Matcher::Regexp(Expression::new("(a|b)\\d", Case::Ignored).unwrap()),
                    group_by: true,
                },
                TagFilter {
                    key: "x".to_owned(),
                    matcher: Matcher::NotILiteralOr(vec!["\"q".to_owned()]),
                    group_by: false,
                },
            ],
            explicit_tags: true,
            series: Some(vec![key("a"), key("b")]),
            aggregator: percentile,
            downsample: Some(Downsample { interval, function: Aggregator::PfSum, fill: Fill::Null }),
            rate: Some(Rate { counter: true, counter_max: Some(i64::MAX), reset_value: -1, drop_resets: true }),
            start: Timestamp::MIN,
            end: Timestamp::MAX,
            fidelity: Fidelity::OpenTsdb,
        };
        for (yields, split) in [
            (Yield::Groups, SeriesSplit::Evenly),
            (Yield::Buckets, SeriesSplit::ByGroup),
            (Yield::Points { points_max: u64::MAX, raw: vec![key("c")] }, SeriesSplit::Evenly),
        ] {
            let request = SeriesRequest { query: Arc::new(query.clone()), yields, split };
            let schema = Schema::clone(&request.schema());
            let (sent, received) = across(Request::Series(request), schema);
            assert_eq!(sent, received);
        }
    }
}

#[test]
fn what_is_no_leaf_or_of_another_version_is_refused() {
    let converter = datafusion_proto::physical_plan::DefaultPhysicalProtoConverter {};
    let task = SessionContext::new().task_ctx();
    for bytes in [&b""[..], b"{}", b"{\"node\":\"a\",\"partitions\":1,\"columns\":[\"a\"],\"request\":{\"Rows\":{}}}"] {
        let error = LeafCodec.try_decode(bytes, &[], &task, &converter).unwrap_err();
        assert!(error.to_string().contains("a leaf that cannot be read"), "{error}");
    }
    let text = r#"{"node":"a","partitions":1,"columns":[],"request":{"Rows":{"rows":"Node","columns":["Node"],"tests":[],"range":[0,1],"values":[0,1],"limit":null}}}"#;
    let error = LeafCodec.try_decode(text.as_bytes(), &[], &task, &converter).unwrap_err();
    assert!(error.to_string().contains("a leaf of 1 columns names 0"), "{error}");
    // A condition that is not known here would not be applied.
    let later = text.replace("\"limit\"", "\"newer\":1,\"limit\"");
    let error = LeafCodec.try_decode(later.as_bytes(), &[], &task, &converter).unwrap_err();
    assert!(error.to_string().contains("unknown field `newer`"), "{error}");
}
