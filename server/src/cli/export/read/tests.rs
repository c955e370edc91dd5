//! The queries of an export, and how they continue behind earlier rows.

use std::collections::VecDeque;
use std::sync::Mutex;

use arrow::array::{Float64Array, Int64Array, StringViewArray, TimestampMicrosecondArray};
use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use expect_test::expect;
use futures::{StreamExt, TryStreamExt, stream};
use telem_engine::Value;
use tokio::net::TcpListener;

use super::*;
use crate::cli::export::tags_that_came_later;
use crate::client::Address;
use crate::rows::{Encoder, Format};
use crate::testing::Served;

fn part(metric: &ExportMetric) -> ExportPart<'_> {
    ExportPart { metric, node: None, job: None }
}

fn metric(keys: &[&str]) -> ExportMetric {
    ExportMetric { name: "m".to_owned(), keys: keys.iter().map(|key| (*key).to_owned()).collect(), series: 1 }
}

/// Rows of a metric with the tags `a` and `b`.
fn rows(rows: &[(Option<&str>, Option<&str>, i64)]) -> RecordBatch {
    let count = rows.len();
    let tag = |tags: Vec<Option<&str>>| Arc::new(StringViewArray::from(tags)) as ArrayRef;
    let ts = TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.2)).with_timezone("UTC");
    let columns: Vec<ArrayRef> = vec![
        Arc::new(ts),
        Arc::new(Float64Array::from(vec![0.0; count])),
        Arc::new(Int64Array::from(vec![None; count])),
        tag(vec![Some("n1"); count]),
        tag(rows.iter().map(|row| row.0).collect()),
        tag(rows.iter().map(|row| row.1).collect()),
    ];
    RecordBatch::try_new(answer_schema(&metric(&["a", "b"])), columns).unwrap()
}

fn range(start: i64, end: i64) -> TimeRange {
    TimeRange::new(Timestamp::from_micros(start), Timestamp::from_micros(end))
}

#[test]
fn the_question_is_sql_that_a_leaf_answers_alone() {
    let metric = ExportMetric { name: "sys.\"cpu\"".to_owned(), ..metric(&["host"]) };
    expect![[r#"SELECT "ts", "value", "value_int", "node", "host" FROM metric."sys.""cpu""""#]]
        .assert_eq(&question(part(&metric), TimeRange::ALL));
    expect![[
        r#"SELECT "ts", "value", "value_int", "node", "host" FROM metric."sys.""cpu""" WHERE ts >= arrow_cast(-5, 'Timestamp(Microsecond, Some("UTC"))') AND ts < arrow_cast(7, 'Timestamp(Microsecond, Some("UTC"))')"#
    ]]
    .assert_eq(&question(part(&metric), range(-5, 7)));
    let end = TimeRange::new(TimeRange::ALL.start, Timestamp::from_micros(7));
    assert!(
        question(part(&metric), end).ends_with(r#"WHERE ts < arrow_cast(7, 'Timestamp(Microsecond, Some("UTC"))')"#)
    );
    let of_node = ExportPart { node: Some("it's"), ..part(&metric) };
    assert!(question(of_node, TimeRange::ALL).ends_with("WHERE node = 'it''s'"));
    let of_job = ExportPart { job: Some("7"), ..of_node };
    assert!(question(of_job, TimeRange::ALL).ends_with("WHERE node = 'it''s' AND job = '7'"));
}

/// The canonical order: a series with fewer tags comes before those that have more, whatever a missing tag would
/// sort as in a column.
const ORDERED: [(Option<&str>, Option<&str>, i64); 7] = [
    (None, None, 9),
    (Some("1"), None, 3),
    (Some("1"), None, 5),
    (Some("1"), Some("x"), 1),
    (Some("2"), Some("x"), 1),
    (None, Some("x"), 1),
    (None, Some("y"), 0),
];

#[test]
fn what_came_before_is_left_out_wherever_it_was_cut() {
    let all = rows(&ORDERED);
    for (at, row) in ORDERED.iter().enumerate() {
        let rest = rows_after(&all, &ExportPosition::of(&all, at));
        assert_eq!(rest, all.slice(at + 1, ORDERED.len() - at - 1), "behind {row:?}");
    }
    let between = ExportPosition { tags: vec![Some("1".to_owned()), None], ts: 4 };
    assert_eq!(rows_after(&all, &between).num_rows(), 5, "a row that came is gone, or one came late");
}

#[test]
fn series_are_counted_where_they_begin() {
    let all = rows(&ORDERED);
    assert_eq!(series_begun(&all, None).unwrap(), 6);
    let first = all.slice(0, 2);
    assert_eq!(series_begun(&first, None).unwrap(), 2);
    assert_eq!(series_begun(&all.slice(2, 5), Some(&ExportPosition::of(&first, 1))).unwrap(), 4);
}

#[test]
fn a_stretch_is_halved_where_there_are_samples() {
    let bounds = (Timestamp::from_micros(100), Timestamp::from_micros(199));
    let end = TimeRange::ALL.end;
    let middle = Timestamp::from_micros(150);
    let both = halves(TimeRange::ALL, bounds);
    assert_eq!(both, Some((TimeRange::new(TimeRange::ALL.start, middle), TimeRange::new(middle, end))));
    assert_eq!(halves(range(100, 110), bounds), Some((range(100, 105), range(105, 110))));
    assert_eq!(halves(range(198, 200), bounds), Some((range(198, 199), range(199, 200))));
    assert_eq!(halves(range(199, 200), bounds), None, "a microsecond cannot be halved");
    assert_eq!(halves(range(300, 400), bounds), None, "nothing is there");
    let everything = (Timestamp::MIN, Timestamp::from_micros(i64::MAX - 1));
    assert_eq!(halves(TimeRange::ALL, everything), None, "more microseconds than can be counted");
}

#[test]
fn an_answer_of_another_shape_is_an_error() {
    let batch = rows(&ORDERED);
    assert!(typed(&batch, &metric(&["a"])).is_err());
    assert!(typed(&batch, &metric(&["a", "b"])).is_ok());
    let text = RecordBatch::try_from_iter([("ts", Arc::clone(batch.column(4)))]).unwrap();
    assert!(typed(&text, &metric(&[])).is_err());
}

/// Answers SQL as the real server does, and cuts answers in the order of storage off behind `batches_max` batches.
async fn cut_off(
    State((queries, batches_max)): State<(Queries, usize)>,
    RawQuery(query): RawQuery,
    sql: String,
) -> Response {
    let stored = query.is_some_and(|query| query.contains("order=stored"));
    let order = if stored { RowOrder::Stored } else { RowOrder::Any };
    let answer = match queries.sql_in(order, &sql).await {
        Ok(answer) => answer.batches,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    let schema = answer.schema();
    let batches: Vec<RecordBatch> = answer.try_collect().await.unwrap();
    let cut = stored && batches.len() > batches_max;
    let mut encoder = Encoder::new(Format::Arrow, &schema).unwrap();
    let mut bytes = Vec::new();
    for batch in batches.iter().take(if cut { batches_max } else { batches.len() }) {
        bytes.push(Ok(encoder.batch(batch).unwrap()));
    }
    bytes.push(if cut { Err(std::io::Error::other("the deadline")) } else { Ok(encoder.finish().unwrap()) });
    // What was sent is on its way before the connection is cut.
    let paced = stream::iter(bytes).then(|chunk| async {
        tokio::task::yield_now().await;
        chunk
    });
    crate::http::streamed(paced).into_response()
}

/// A server of `served` that cuts off, and the export's way to ask it.
async fn source(served: &Served, batches_max: usize) -> ExportSource {
    source_lacking(served, batches_max, &[]).await
}

/// As [`source`]; the answers lack these nodes, one after another, and the further ones nobody.
async fn source_lacking(served: &Served, batches_max: usize, lacking: &[&'static str]) -> ExportSource {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/api/sql", post(cut_off)).with_state((served.state.queries.clone(), batches_max));
    let lacking = Arc::new(Mutex::new(lacking.iter().copied().collect::<VecDeque<_>>()));
    let name_missing = move |mut response: Response| {
        let missing = lacking.lock().unwrap().pop_front().filter(|missing| !missing.is_empty());
        response.headers_mut().extend(missing.map(|text| (missing_header(), HeaderValue::from_static(text))));
        async { response }
    };
    let router = router.layer(axum::middleware::map_response(name_missing));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let client = Client::with_token(Address::parse(&address).unwrap(), None);
    ExportSource {
        jobs: Vec::new(),
        asked: QueryTarget::Server(client),
        databases: Vec::new(),
        lacking: Lacking::default(),
        strict: StrictArg::default(),
    }
}

fn missing_header() -> HeaderName {
    HeaderName::from_static(crate::missing::NAME)
}

/// The metric `load`: series of several lengths, some without the tag `core`.
fn stored() -> (Served, Vec<(String, String, i64)>) {
    let served = Served::new();
    let mut expected = Vec::new();
    for (host, core, samples) in
        [("a", "", 20_000), ("a", "0", 3), ("a", "1", 30_000), ("b", "0", 1), ("b", "", 9_000), ("c", "7", 8_192)]
    {
        let mut tags = vec![("host", host)];
        if !core.is_empty() {
            tags.push(("core", core));
        }
        let samples: Vec<(i64, Value)> = (0..samples).map(|at| (at * 10, Value::Int(at))).collect();
        served.store("load", &tags, &samples);
        expected.extend(samples.iter().map(|(ts, _)| (host.to_owned(), core.to_owned(), ts * 1_000_000)));
    }
    served.store("other", &[("host", "a")], &[(1, Value::Int(1))]);
    expected.sort();
    (served, expected)
}

#[tokio::test]
async fn a_metric_that_a_server_cuts_off_again_and_again_comes_whole_and_every_sample_once() {
    let (served, expected) = stored();
    for batches_max in [1, 2, 5, 100] {
        let mut source = source(&served, batches_max).await;
        let metrics = source.metrics().await.unwrap();
        assert_eq!(metrics.iter().map(|metric| &*metric.name).collect::<Vec<_>>(), ["load", "other"]);
        assert_eq!((metrics[0].series, metrics[0].keys.len()), (6, 2));
        let mut found = Vec::new();
        let mut take = |rows: ExportRows<'_>| {
            let batch = rows.batch;
            let (core, host) = (batch.column(4).as_string_view(), batch.column(5).as_string_view());
            let ts = batch.column(0).as_primitive::<TimestampMicrosecondType>();
            for row in 0..batch.num_rows() {
                let core = if core.is_valid(row) { core.value(row) } else { "" };
                found.push((host.value(row).to_owned(), core.to_owned(), ts.value(row)));
            }
            Ok(())
        };
        source.samples(&metrics[0], TimeRange::ALL, &mut take).await.unwrap();
        for (host, core) in [("a", "1"), ("c", "7")] {
            let times: Vec<i64> = found.iter().filter(|row| row.0 == host && row.1 == core).map(|row| row.2).collect();
            assert!(times.is_sorted(), "each series comes by time");
        }
        found.sort();
        assert!(
            found == expected,
            "{} samples, expected {}; {batches_max} batches at a time",
            found.len(),
            expected.len()
        );
    }
}

/// The questions of an export of one metric that is cut off: for metrics, for nodes, for rows, for the time in which
/// there are any, for the rows of the first half of it; then again for times and rows, as often as it is cut off.
#[tokio::test]
async fn whoever_any_answer_lacked_is_named_once_whenever_that_was() {
    let (served, _) = stored();
    let last = "n4=x, and 7 more";
    let answers = ["n1=down", "n1=down, n2=left", "", "", "n3=gone: a, n1=late", last, last];
    let mut source = source_lacking(&served, 5, &answers).await;
    let metrics = source.metrics().await.unwrap();
    source.samples(&metrics[0], TimeRange::ALL, &mut |_| Ok(())).await.unwrap();
    assert_eq!(source.lacking().to_string(), "n1=down, n2=left, n3=gone: a, n4=x, and up to 7 more");
}

#[tokio::test]
async fn with_strict_the_first_answer_that_lacks_a_node_ends_the_export() {
    let (served, _) = stored();
    for lacking_at in 1..5 {
        let mut answers = [""; 5];
        answers[lacking_at] = "n2=its connection broke";
        let mut source = source_lacking(&served, 5, &answers).await;
        source.strict = StrictArg { strict: true };
        let metrics = source.metrics().await.unwrap();
        let end = source.samples(&metrics[0], TimeRange::ALL, &mut |_| Ok(())).await;
        // The time in which there are samples only says where to cut.
        let expected =
            (lacking_at != 3).then_some("these nodes would be missing from the export: n2=its connection broke");
        match (end, expected) {
            (Ok(()), None) => {}
            (Err(CliFailure::Failed(message)), Some(expected)) if message.starts_with(expected) => {}
            (end, _) => panic!("{lacking_at}: {end:?}"),
        }
    }
}

#[tokio::test]
async fn a_server_that_never_answers_a_row_is_given_up() {
    let (served, _) = stored();
    let mut source = source(&served, 0).await;
    let metrics = source.metrics().await.unwrap();
    let mut take = |_: ExportRows<'_>| panic!("there is no row");
    let failure = source.samples(&metrics[0], TimeRange::ALL, &mut take).await.unwrap_err();
    assert!(matches!(&failure, CliFailure::Failed(message) if message.contains("broke")), "{failure:?}");
}

#[tokio::test]
async fn tags_that_come_while_it_runs_are_told() {
    let (served, _) = stored();
    let mut source = source(&served, 100).await;
    let metrics = source.metrics().await.unwrap();
    let chosen: Vec<&ExportMetric> = metrics.iter().collect();
    served.store("load", &[("host", "z")], &[(1, Value::Int(1))]);
    assert_eq!(tags_that_came_later(&source, &chosen).await.unwrap(), [""; 0], "a new series is no new column");
    served.store("load", &[("host", "a"), ("rank", "3")], &[(1, Value::Int(1))]);
    let warnings = tags_that_came_later(&source, &chosen).await.unwrap();
    assert_eq!(warnings, ["load got the tag 'rank' while it was exported, which has no column; export again"]);
}

#[tokio::test]
async fn what_cannot_be_taken_ends_the_export() {
    let (served, _) = stored();
    let mut source = source(&served, 1).await;
    let metrics = source.metrics().await.unwrap();
    let mut take = |_: ExportRows<'_>| Err(CliFailure::failed("the disk is full"));
    let failure = source.samples(&metrics[0], TimeRange::ALL, &mut take).await.unwrap_err();
    assert!(matches!(&failure, CliFailure::Failed(message) if message == "the disk is full"), "{failure:?}");
}
