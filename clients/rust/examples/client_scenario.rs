//! A program that does what its first argument says, and prints what became of its samples.
//! `tests/py/test_rust_client.py` runs it against a real service and asks that service in SQL.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use telem_client::{
    ClientError, ClientOptions, Connection, Counter, Gauge, Histogram, Metric, Micros, ProcessTags, Tags, Timer, Value,
    sql, sql_number,
};

const START: i64 = 1_767_322_800_000_000;
const PATIENCE: Duration = Duration::from_secs(60);

static ADDS: LazyLock<Counter> = LazyLock::new(|| Counter::new("adds"));

fn print_counts() {
    let counts = telem_client::counts();
    println!(
        "{{\"taken\": {}, \"stored\": {}, \"refused\": {}, \"above_level\": {}, \"dropped\": {}}}",
        counts.taken,
        counts.stored,
        counts.refused,
        counts.above_level,
        counts.dropped()
    );
}

fn log_values() -> Result<(), ClientError> {
    let gauge =
        Metric::new("gauge").tags(&Tags::from([("model", "a b")])).tag("z", "ü").unit("W").help("How much.").gauge()?;
    gauge.set_at(0.1, Micros(START));
    gauge.set_at(-1e300, Micros(START + 1));
    gauge.set_at(i64::MAX, Micros(START + 2));
    gauge.set_at(i64::MIN, Micros(START + 3));
    gauge.set_at(u64::MAX, Micros(START + 4));
    gauge.set_at(f64::INFINITY, Micros(START + 5));
    gauge.set_at(f64::NAN, SystemTime::from(Micros(START + 6)));
    gauge.set_at(0.1_f32, Micros(START + 7));
    gauge.set_at(8_usize, Micros(START + 8));
    gauge.set_at(9, Micros(-9));
    gauge.set_step_at(9, 9, Micros(0));
    let loss = Gauge::new("loss");
    for step in 0..10 {
        loss.set_step_at(0.5 * step as f64, step, Micros(START + step));
    }
    loss.set_step(99, 10);
    let now = Gauge::new("now");
    now.set(1.5);
    now.set(2_u8);

    let counter = Metric::new("counter").unit("bytes").counter()?;
    counter.add(5_000_000_000);
    counter.increment();
    let histogram = Histogram::tagged("seconds", &[0.1, 1.0, 10.0], &Tags::new().with("of", "x"));
    for value in [0.1, 0.5, 10.0, 11.0] {
        histogram.observe(value);
    }

    let timer = Timer::tagged("span", &Tags::from([("of", 1)]));
    {
        let _span = timer.span();
    }
    let first = timer.span();
    let second = timer.span();
    second.cancel();
    first.end();
    // A span ends with its scope, however that is left.
    let panicked = std::panic::catch_unwind(|| timer.measure(|| std::panic::resume_unwind(Box::new("in a span"))));
    assert!(panicked.is_err());

    let fine = Metric::new("fine").level(4).gauge()?;
    telem_client::note("begins", "a note")?;
    telem_client::setting("solver", "cg")?;
    telem_client::flush(PATIENCE)?;
    fine.set(1);
    assert_eq!((telem_client::connection(), telem_client::level()), (Connection::Connected, Some(1)));
    telem_client::flush(PATIENCE)?;
    print_counts();
    Ok(())
}

/// The end of `main` sends what they log.
fn log_in_threads() {
    let gauge = Gauge::new("own");
    std::thread::scope(|scope| {
        for thread in 0..4_i64 {
            scope.spawn(move || {
                for i in 0..1000 {
                    ADDS.add(3);
                    gauge.set_at(i, Micros(START + 1000 * thread + i));
                }
            });
        }
    });
}

fn ask() -> Result<(), ClientError> {
    let gauge = Gauge::tagged("asked", &Tags::from([("tag", "x")]));
    for i in 1..=100 {
        gauge.set_at(i, Micros(START + i));
    }
    assert_eq!(sql_number("SELECT sum(value) FROM asked", PATIENCE)?, 5050.0);
    let question = "SELECT ts, value_int AS n, value / 8 AS eighth, tag, value_int > 50 AS above, NULL AS nothing \
                    FROM asked ORDER BY ts";
    let answer = sql(question, PATIENCE)?;
    assert_eq!(answer.columns(), ["ts", "n", "eighth", "tag", "above", "nothing"]);
    assert_eq!(answer.len(), 100);
    for (i, row) in (1..).zip(answer) {
        let expected = [
            Value::Time(Micros(START + i)),
            Value::Int(i),
            Value::Float(i as f64 / 8.0),
            Value::Text("x".to_owned()),
            Value::Bool(i > 50),
            Value::Null,
        ];
        assert_eq!(row.values(), expected);
        assert_eq!((row.get("n"), row.get("none")), (Some(&Value::Int(i)), None));
    }
    let most: Vec<_> = sql("SELECT CAST(18446744073709551615 AS BIGINT UNSIGNED) AS most", PATIENCE)?.collect();
    assert_eq!(most[0].get("most"), Some(&Value::UInt(u64::MAX)));
    assert_eq!(sql("SELECT value FROM asked WHERE FALSE", PATIENCE)?.count(), 0);
    for wrong in ["SELECT nonsense FROM asked", "SELECT value FROM asked WHERE FALSE"] {
        let error = sql_number(wrong, PATIENCE).expect_err(wrong);
        assert!(["nonsense", "no row"].iter().any(|word| error.reason().contains(word)), "{error}");
    }
    println!("asked");
    Ok(())
}

fn start_with_options(socket: &str) -> Result<(), ClientError> {
    let options = || ClientOptions::new().interval(Duration::from_millis(10)).process_tags(ProcessTags::Neither);
    options().socket(socket).ring_samples(100).exit_timeout(Duration::from_secs(1)).start()?;
    options().start().expect_err("a second start");
    let gauge = Gauge::new("options");
    gauge.set(7);
    telem_client::flush(PATIENCE)?;
    print_counts();
    telem_client::stop(PATIENCE);
    gauge.set(8);
    Ok(())
}

/// Prints nanoseconds of one `Gauge::set`, one `Counter::add` and one span, below the room of the ring.
#[allow(clippy::disallowed_methods, reason = "the clock is what a cost is measured by")]
fn measure_cost() -> Result<(), ClientError> {
    const COUNT: u32 = 30_000;
    let (gauge, counter, timer) = (Gauge::new("cost"), Counter::new("cost_total"), Timer::new("cost_seconds"));
    let each_ns = |work: &dyn Fn(u32)| {
        let begin = Instant::now();
        (0..COUNT).for_each(work);
        begin.elapsed().as_nanos() as f64 / f64::from(COUNT)
    };
    for _ in 0..9 {
        let set = each_ns(&|i| gauge.set(f64::from(i)));
        let add = each_ns(&|_| counter.increment());
        let span = each_ns(&|_| drop(timer.span()));
        println!("{set:8.1}{add:8.1}{span:8.1}");
        telem_client::flush(PATIENCE)?;
    }
    Ok(())
}

fn main() -> Result<(), ClientError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["values"] => log_values(),
        ["threads"] => {
            log_in_threads();
            Ok(())
        }
        ["sql"] => ask(),
        ["cost"] => measure_cost(),
        ["options", socket] => start_with_options(socket),
        _ => panic!("there is no scenario {words:?}"),
    }
}
