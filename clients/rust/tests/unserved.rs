//! Without a service: everything can be called, everything is counted, and what is wrong says why.

use std::time::Duration;

use telem_client::{
    ClientError, ClientOptions, Connection, Counter, Gauge, Histogram, Metric, Micros, Number, Span, Tags, Timer, Value,
};

/// Of a process that nobody told of a service, whatever runs these tests.
fn without_a_service() {
    let named = ["TELEM_CONNECTION", "TELEM_SOCKET"].into_iter().find(|name| std::env::var_os(name).is_some());
    assert_eq!(named, None, "these tests are not for the inside of a job");
}

#[test]
fn what_is_logged_without_a_service_is_counted_as_dropped() {
    without_a_service();
    let before = telem_client::counts();
    let gauge = Metric::new("counted").tag("of", "this test").gauge().unwrap();
    for i in 0..1000 {
        gauge.set(i);
        gauge.set_step(0.5, i);
    }
    let after = telem_client::counts();
    assert!(after.taken - before.taken >= 3000 && after.dropped() - before.dropped() >= 3000, "{after:?}");
    assert_eq!((after.stored, after.sent, after.connections), (0, 0, 0));
    assert_eq!((telem_client::connection(), telem_client::level()), (Connection::Unnamed, None));
}

#[test]
fn questions_and_flushes_without_a_service_say_so_at_once() {
    without_a_service();
    let patience = Duration::from_secs(60);
    let errors: [Option<ClientError>; 3] = [
        telem_client::flush(patience).err(),
        telem_client::sql("SELECT 1", patience).err(),
        telem_client::sql_number("SELECT 1", patience).err(),
    ];
    for error in errors {
        let error = error.expect("there is no service");
        assert!(error.to_string().contains("no service"), "{error}");
        assert_eq!(error.reason(), error.to_string());
    }
}

#[test]
fn a_metric_that_cannot_be_opened_says_why() {
    let error = |metric: Metric| metric.gauge().unwrap_err().to_string();
    assert!(error(Metric::new("")).contains("empty"));
    assert!(error(Metric::new("x".repeat(600))).contains("at most 512"));
    assert!(error(Metric::new("x").level(7)).contains("levels are 1 to 4"));
    assert!(error(Metric::new("x").tag("k", "")).contains("empty"));
    let zero = error(Metric::new("a\0b"));
    assert!(zero.contains("a zero byte at 1") && zero.contains(r"a\0b"), "{zero}");
    assert!(error(Metric::new("x").tag("k", "\0")).starts_with("a tag has a zero byte"));
    let counter = Metric::new("of_one_kind").counter().unwrap();
    assert!(error(Metric::new("of_one_kind")).contains("is open as a counter"));
    counter.increment();
    let bounds = Metric::new("x").histogram(&[1.0, 1.0]).unwrap_err();
    assert!(bounds.to_string().contains("each is above the one before"), "{bounds}");
    assert!(ClientOptions::new().socket("a\0b").start().is_err());
    assert!(ClientOptions::new().interval(Duration::from_secs(4)).start().is_err(), "it runs already");
    assert!(telem_client::note("a\0", "").is_err() && telem_client::setting("a", "\0").is_err());
    assert!(telem_client::sql("SELECT '\0'", Duration::ZERO).is_err());
}

#[test]
fn a_metric_of_nothing_does_nothing() {
    let (gauge, counter, histogram, timer) =
        (Gauge::new(""), Counter::new(""), Histogram::new("", &[1.0]), Timer::default());
    assert!(!gauge.is_open() && !counter.is_open() && !histogram.is_open() && !timer.is_open());
    gauge.set(1);
    gauge.set_at(1, Micros(1));
    gauge.set_step_at(1.0, 1, Micros(1));
    counter.add(1);
    histogram.observe(1.0);
    assert_eq!(counter.total(), 0);
    assert_eq!(timer.span().end(), Duration::ZERO);
    assert_eq!(timer.measure(|| 7), 7);
}

#[test]
fn a_span_gives_what_it_took() {
    let timer = Timer::new("took_seconds");
    assert!(timer.is_open());
    let span = timer.span();
    assert!(std::thread::spawn(move || span.end()).join().unwrap() < Duration::from_secs(60));
    timer.span().cancel();
    let panicked = std::panic::catch_unwind(|| timer.measure(|| panic!("in a span")));
    assert!(panicked.is_err());
}

#[test]
fn metrics_may_be_shared_by_threads_and_kept_anywhere() {
    fn is_free<T: Send + Sync + Copy + 'static>() {}
    fn may_move<T: Send + Sync + 'static>() {}
    is_free::<Gauge>();
    is_free::<Counter>();
    is_free::<Histogram>();
    is_free::<Timer>();
    may_move::<Span>();
    may_move::<telem_client::Answer>();
    may_move::<ClientError>();
}

#[test]
fn numbers_and_times_keep_what_they_are() {
    assert_eq!(Number::from(-1_i8), Number::Int(-1));
    assert_eq!(Number::from(u32::MAX), Number::Int(4_294_967_295));
    assert_eq!(Number::from(1_u64 << 63), Number::Float(9_223_372_036_854_775_808.0));
    for micros in [0, 1, -1, 1_767_322_800_000_001, -5_000_000_000_000] {
        let time = std::time::SystemTime::from(Micros(micros));
        assert_eq!(Micros::from(time), Micros(micros));
    }
    assert_eq!(Value::UInt(u64::MAX).as_i64(), None);
    assert_eq!((Value::Int(-3).as_f64(), Value::Text("3".to_owned()).as_f64()), (Some(-3.0), None));
    assert_eq!(Value::Time(Micros(5)).as_time(), Some(Micros(5)));
    assert!(Value::Null.is_null() && Value::Null.as_bool().is_none());
}

#[test]
fn tags_are_the_same_however_they_are_written() {
    let tags = Tags::new().with("layer", 3).with("model", "resnet");
    assert_eq!(tags, Tags::from([("layer", "3"), ("model", "resnet")]));
    assert_eq!(tags, [("layer", "3"), ("model", "resnet")].into_iter().collect());
    let one = Counter::tagged("of_tags_total", &tags);
    let same = Metric::new("of_tags_total").tag("model", "resnet").tag("layer", 3).counter().unwrap();
    one.add(5);
    assert_eq!(same.total(), 5);
}
