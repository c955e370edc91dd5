//! The fuzz target of `/api/put` bodies.

use telem_engine::Db;

use super::numbers::Unseen;
use super::{NOW, database, named};
use crate::accept::points::{self, PointSeries};
use crate::accept::{self, AcceptCounters, Limits};
use crate::decode::Incoming;
use crate::decode::opentsdb::scan::{Next, PointScan, RawPoint};
use crate::decode::opentsdb::{self, BodyError, NonFinite, Precision, PutRules};
use crate::default_tags::DefaultTags;
use crate::known::Keys;

const POINTS_MAX: usize = 4_096;
const AS_OPENTSDB: PutRules =
    PutRules { tags_max: opentsdb::TAGS_MAX, precision: Precision::BySize, non_finite: NonFinite::Refuse };
const SENSIBLE: PutRules = PutRules { tags_max: 64, precision: Precision::Micros, non_finite: NonFinite::Keep };

/// A sample, or the reason why there is none.
type Judged = Result<String, String>;

/// Any bytes are a body: what the fast way takes the thorough way takes for the same samples, with names remembered or
/// not, and what is no JSON is told with a place in the body.
pub fn put_json(body: &[u8]) {
    for rules in [AS_OPENTSDB, SENSIBLE] {
        let thorough = judge(body, &rules);
        check_scan(body, &rules, &thorough);
        check_accept(body, &rules, &thorough);
        if let Err(error) = thorough {
            check_place(body, &error);
        }
    }
}

/// Every point by the thorough way.
fn judge(body: &[u8], rules: &PutRules) -> Result<Vec<Judged>, BodyError> {
    opentsdb::with_points(body, POINTS_MAX, |points| {
        assert!(points.kept.len() <= POINTS_MAX);
        let one = |sample: Incoming<'_>| show(&sample);
        points.kept.iter().map(|point| point.sample(rules).map(one).map_err(|error| error.to_string())).collect()
    })
}

fn show(sample: &Incoming<'_>) -> String {
    let Incoming { metric, tags, time, value } = sample;
    format!("{metric:?} {tags:?} {time} {value} {}", value.is_int())
}

/// A body that the scanner reads to its end, each point with good names, is good as a whole.
fn check_scan(body: &[u8], rules: &PutRules, thorough: &Result<Vec<Judged>, BodyError>) {
    let mut scanned = Vec::new();
    let mut points = PointScan::new(body, rules);
    loop {
        match points.next(&mut Unseen) {
            Next::Point(point) => scanned.push(point),
            Next::End => break,
            Next::Unusual => return,
        }
    }
    let sample = |point: &RawPoint<'_>| point.with_sample(rules, |sample| Some(Ok(show(&sample))));
    let Some(samples) = scanned.iter().take(POINTS_MAX).map(sample).collect::<Option<Vec<Judged>>>() else { return };
    match thorough {
        Ok(judged) => assert_eq!(*judged, samples),
        Err(error) => panic!("the fast way reads what the thorough one refuses: {error:?}"),
    }
}

/// The whole way in, with nothing, everything and too little remembered.
fn check_accept(body: &[u8], rules: &PutRules, thorough: &Result<Vec<Judged>, BodyError>) {
    let limits = Limits { batch_samples_max: POINTS_MAX, ..Limits::default() };
    let db = database();
    let accept = |db: &Db, keys: &mut Keys<PointSeries>| {
        points::accept(db, NOW, &limits, &AcceptCounters::default(), keys, rules, body).map(|batch| named(db, &batch))
    };
    let mut keys = Keys::new(1 << 20);
    let cold = accept(&db, &mut keys);
    if cold.is_none() {
        assert!(db.index().is_empty(), "a body with a fault leaves series behind");
    }
    assert_eq!(accept(&db, &mut keys), cold, "with everything remembered");
    assert_eq!(accept(&db, &mut Keys::new(400)), cold, "with little remembered");
    let Some(cold) = cold else { return };
    assert!(thorough.as_ref().is_ok_and(|judged| judged.iter().all(Result::is_ok)), "{thorough:?}");
    let slow = opentsdb::with_points(body, POINTS_MAX, |points| {
        let samples: Result<Vec<Incoming<'_>>, _> = points.kept.iter().map(|point| point.sample(rules)).collect();
        let samples = samples.expect("all are good").into_iter().enumerate();
        let accepted = accept::accept(&db, NOW, &limits, &AcceptCounters::default(), &DefaultTags::default(), samples);
        assert!(accepted.rejected == 0 && points.beyond == 0, "{:?}", accepted.rejects);
        named(&db, &accepted.batch)
    });
    assert_eq!(slow.ok(), Some(cold));
}

/// A person looks for the fault where the error says it is.
fn check_place(body: &[u8], error: &BodyError) {
    let BodyError::NotJson(error) = error else { return };
    let text = String::from_utf8_lossy(body);
    let lines: Vec<&str> = text.split('\n').collect();
    let line = error.line.checked_sub(1).and_then(|line| lines.get(line));
    let line = line.unwrap_or_else(|| panic!("no line of the body is meant by: {error}"));
    assert!(error.column <= line.len() + 1, "no column of the body is meant by: {error}");
}
