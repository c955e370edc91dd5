//! What exporters send, what limits refuse, and what a broken line costs.

use proptest::prelude::*;

use super::*;
use crate::fuzzing;

fn parse(body: &str) -> Exposition {
    Exposition::parse(body.as_bytes(), ExpositionFormat::Text, &ExpositionLimits::default())
}

fn open(body: &str) -> Exposition {
    Exposition::parse(body.as_bytes(), ExpositionFormat::OpenMetrics, &ExpositionLimits::default())
}

/// A sample as `name {labels} value @micros kind`.
fn show(sample: &ExposedSample) -> String {
    let labels: Vec<String> = sample.labels.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
    let time = sample.time.map(|time| format!(" @{}", time.micros())).unwrap_or_default();
    format!("{} {{{}}} {}{time} {:?}", sample.name, labels.join(","), sample.value, sample.kind)
}

fn samples(read: &Exposition) -> Vec<String> {
    assert_eq!(read.rejects, [], "all of it can be read");
    read.samples.iter().map(show).collect()
}

/// Why the one line of a body cannot be read.
fn refused(read: &Exposition) -> String {
    assert_eq!((read.samples.len(), read.refused, read.rejects.len()), (0, 1, 1), "{read:?}");
    read.rejects[0].to_string()
}

#[test]
fn the_example_of_the_text_format_is_read_whole() {
    let read = parse(
        r#"# HELP http_requests_total The total number of HTTP requests.
# TYPE http_requests_total counter
http_requests_total{method="post",code="200"} 1027 1395066363000
http_requests_total{method="post",code="400"}    3 1395066363000

# Escaping in label values:
msdos_file_access_time_seconds{path="C:\\DIR\\FILE.TXT",error="Cannot find file:\n\"FILE.TXT\""} 1.458255915e9

# Minimalistic line:
metric_without_timestamp_and_labels 12.47

# A weird metric from before the epoch:
something_weird{problem="division by zero"} +Inf -3982045

# A histogram, which has a pretty complex representation in the text format:
# HELP http_request_duration_seconds A histogram of the request duration.
# TYPE http_request_duration_seconds histogram
http_request_duration_seconds_bucket{le="0.05"} 24054
http_request_duration_seconds_bucket{le="+Inf"} 144320
http_request_duration_seconds_sum 53423
http_request_duration_seconds_count 144320

# TYPE rpc_duration_seconds summary
rpc_duration_seconds{quantile="0.01"} 3102
rpc_duration_seconds_sum 1.7560473e+07
rpc_duration_seconds_count 2693
"#,
    );
    let expected = [
        r#"http_requests_total {method="post",code="200"} 1027 @1395066363000000 Counter"#,
        r#"http_requests_total {method="post",code="400"} 3 @1395066363000000 Counter"#,
        r#"msdos_file_access_time_seconds {path="C:\\DIR\\FILE.TXT",error="Cannot find file:\n\"FILE.TXT\""} 1458255915 Unknown"#,
        "metric_without_timestamp_and_labels {} 12.47 Unknown",
        r#"something_weird {problem="division by zero"} inf @-3982045000 Unknown"#,
        r#"http_request_duration_seconds_bucket {le="0.05"} 24054 Counter"#,
        r#"http_request_duration_seconds_bucket {le="+Inf"} 144320 Counter"#,
        "http_request_duration_seconds_sum {} 53423 Counter",
        "http_request_duration_seconds_count {} 144320 Counter",
        r#"rpc_duration_seconds {quantile="0.01"} 3102 Gauge"#,
        "rpc_duration_seconds_sum {} 17560473 Counter",
        "rpc_duration_seconds_count {} 2693 Counter",
    ];
    assert_eq!(samples(&read), expected);
    let families: Vec<_> = read.families.iter().map(|family| (&*family.name, family.kind, &*family.help)).collect();
    let expected = [
        ("http_requests_total", ExposedType::Counter, "The total number of HTTP requests."),
        ("http_request_duration_seconds", ExposedType::Histogram, "A histogram of the request duration."),
        ("rpc_duration_seconds", ExposedType::Summary, ""),
    ];
    assert_eq!(families, expected);
    let owners: Vec<_> = read.samples.iter().map(|sample| sample.family).collect();
    assert_eq!(owners[..6], [Some(0), Some(0), None, None, None, Some(1)]);
    assert_eq!(read.end, ExpositionEnd::Unmarked);
}

#[test]
fn open_metrics_has_units_seconds_exemplars_and_an_end() {
    let read = open(
        "# TYPE acme_http_router_request_seconds summary\n\
         # UNIT acme_http_router_request_seconds seconds\n\
         # HELP acme_http_router_request_seconds Latency of \\\"all\\\" HTTP requests.\n\
         acme_http_router_request_seconds_sum{path=\"/api/v1\",method=\"GET\"} 9036.32\n\
         acme_http_router_request_seconds_created{path=\"/api/v1\",method=\"GET\"} 1605281325.0\n\
         # TYPE go_goroutines gauge\n\
         go_goroutines 69 1520879607.789\n\
         # TYPE foo counter\n\
         foo_total 17.0 1520879607 # {trace_id=\"KOO5S4vxi0o\"} 0.67\n\
         # TYPE bar histogram\n\
         bar_bucket{le=\"0.1\"} 8 # {} 0.054\n\
         # TYPE q gaugehistogram\n\
         q_bucket{le=\"1\"} 4\nq_gcount 4\nq_gsum 2\n\
         # TYPE build info\n\
         build_info{version=\"1\"} 1\n\
         # TYPE state stateset\n\
         state{state=\"on\"} 1 1e9\n\
         # EOF\n",
    );
    let expected = [
        r#"acme_http_router_request_seconds_sum {path="/api/v1",method="GET"} 9036.32 Counter"#,
        r#"acme_http_router_request_seconds_created {path="/api/v1",method="GET"} 1605281325 Gauge"#,
        "go_goroutines {} 69 @1520879607789000 Gauge",
        "foo_total {} 17 @1520879607000000 Counter",
        r#"bar_bucket {le="0.1"} 8 Counter"#,
        r#"q_bucket {le="1"} 4 Gauge"#,
        "q_gcount {} 4 Gauge",
        "q_gsum {} 2 Gauge",
        r#"build_info {version="1"} 1 Gauge"#,
        r#"state {state="on"} 1 @1000000000000000 Gauge"#,
    ];
    assert_eq!(samples(&read), expected);
    let first = &read.families[0];
    assert_eq!((&*first.unit, &*first.help), ("seconds", "Latency of \"all\" HTTP requests."));
    assert_eq!(read.end, ExpositionEnd::Marked);
    assert!(read.samples.iter().all(|sample| sample.family.is_some()));
}

#[test]
fn a_body_of_open_metrics_that_was_cut_is_told_by_its_missing_end() {
    assert_eq!(open("a 1\n").end, ExpositionEnd::Unmarked);
    let after = open("a 1\n# EOF\n\nb 2\n");
    assert_eq!((after.end, after.samples.len(), after.refused), (ExpositionEnd::Marked, 1, 1));
    assert_eq!(after.rejects[0].to_string(), "line 4: expected nothing after # EOF, found 'b 2'");
    assert_eq!(parse("a 1\n# EOF\nb 2\n").samples.len(), 2, "in Prometheus' text it is a comment");
}

#[test]
fn one_format_is_told_from_the_other_by_the_content_type() {
    let of = ExpositionFormat::of_content_type;
    assert_eq!(of("application/openmetrics-text; version=1.0.0; charset=utf-8"), ExpositionFormat::OpenMetrics);
    assert_eq!(of("Application/OpenMetrics-Text"), ExpositionFormat::OpenMetrics);
    assert_eq!(of("text/plain; version=0.0.4"), ExpositionFormat::Text);
    assert_eq!(of(""), ExpositionFormat::Text);
}

#[test]
fn blanks_commas_and_order_are_taken_as_they_come() {
    let body = "a{ z = \"1\" ,\tb=\"2\" , } \t 3  \n\tb 4\t5\r\nc{}6\n#TYPE d gauge\n# nothing\n#\n   \nd 7";
    let expected = [r#"a {z="1",b="2"} 3 Unknown"#, "b {} 4 @5000 Unknown", "c {} 6 Unknown", "d {} 7 Gauge"];
    assert_eq!(samples(&parse(body)), expected);
}

#[test]
fn names_that_are_quoted_may_be_any_text() {
    let body = "# TYPE \"my.metric\" counter\n{\"my.metric\",\"a b\"=\"x\",c=\"y\"} 1\n{\"other.metric\"} 2\n";
    let expected = [r#"my.metric {a b="x",c="y"} 1 Counter"#, "other.metric {} 2 Unknown"];
    assert_eq!(samples(&parse(body)), expected);
    let expected = "line 1: column 8: expected a quoted name of the metric within the braces, found ' 1'";
    assert_eq!(refused(&parse("{a=\"b\"} 1")), expected);
}

#[test]
fn an_escape_that_is_none_stands_for_itself() {
    assert_eq!(samples(&parse(r#"a{p="C:\dir\\x\"\n"} 1"#)), [r#"a {p="C:\\dir\\x\"\n"} 1 Unknown"#]);
}

#[test]
fn numbers_are_those_of_the_standard_library() {
    let value = |text: &str| parse(&format!("a {text}")).samples.first().map(|sample| sample.value.to_bits());
    for text in [
        "0",
        "-0",
        "1",
        "+1",
        "0.1",
        "-12.50",
        "1e3",
        "1E-3",
        "5e-324",
        "1e999",
        "+Inf",
        "-inf",
        "123456789012345678901",
    ] {
        assert_eq!(value(text), Some(text.parse::<f64>().unwrap().to_bits()), "{text}");
    }
    assert!(f64::from_bits(value("NaN").unwrap()).is_nan());
    assert_eq!([value("one"), value("0x10"), value("1,5"), value("--1"), value("1_000")], [None; 5]);
}

#[test]
fn times_are_exact_and_bounded() {
    let time = |read: Exposition| read.samples.first().and_then(|sample| sample.time).map(Timestamp::micros);
    let millis = |text: &str| time(parse(&format!("a 1 {text}")));
    assert_eq!(millis("9223372036854775"), Some(9_223_372_036_854_775_000));
    assert_eq!([millis("9223372036854776"), millis("1.5"), millis("1e3")], [None; 3]);
    let seconds = |text: &str| time(open(&format!("a 1 {text}")));
    assert_eq!(seconds("1520879607.789012"), Some(1_520_879_607_789_012));
    assert_eq!(seconds("-0.0000019"), Some(-1), "what is finer than a microsecond is cut off");
    assert_eq!(seconds("1.5e9"), Some(1_500_000_000_000_000));
    assert_eq!([seconds("NaN"), seconds("1e300"), seconds("9223372036855"), seconds("1:2")], [None; 4]);
}

#[test]
fn a_broken_line_says_where_what_was_expected_and_what_was_found() {
    for (line, expected) in [
        ("1a 5", "column 1: expected the name of a metric, found '1a 5'"),
        ("a", "column 2: expected a blank or { after the name, found the end of the line"),
        ("a-1", "column 2: expected a blank or { after the name, found '-1'"),
        ("a ", "column 3: expected a number, NaN, +Inf or -Inf, found the end of the line"),
        ("a x", "column 3: expected a number, NaN, +Inf or -Inf, found 'x'"),
        ("a 1 2 3", "column 7: expected the end of the line, found '3'"),
        ("a 1 soon", "column 5: expected a time in milliseconds, or the end of the line, found 'soon'"),
        ("a 1 # {}", "column 5: expected the end of the line, found '# {}'"),
        ("a{b} 1", "column 4: expected = after the name of a label, found '} 1'"),
        ("a{b=c} 1", "column 5: expected a value within \"\", found 'c} 1'"),
        ("a{b=\"c} 1", "column 10: expected a value within \"\", found the end of the line"),
        ("a{b=\"ü\\", "column 8: expected a value within \"\", found the end of the line"),
        ("a{b=\"c\" d=\"e\"} 1", "column 9: expected , or } after a label, found 'd=\"e\"} 1'"),
        ("a{b=\"c\",,} 1", "column 9: expected the name of a label, or }, found ',} 1'"),
        ("a{b=\"c\"", "column 8: expected , or } after a label, found the end of the line"),
        ("a{b=\"1\",b=\"2\"} 1", "the label 'b' is there twice"),
        ("# TYPE a thing", "column 10: expected a type such as counter, gauge or histogram, found 'thing'"),
        ("# TYPE a gauge x", "column 16: expected the end of the line, found 'x'"),
        ("# HELP 5 x", "column 8: expected the name of a metric, found '5 x'"),
        ("# HELP a-b x", "column 9: expected a blank after the name, found '-b x'"),
    ] {
        assert_eq!(refused(&parse(&format!("\n{line}\n"))), format!("line 2: {expected}"), "{line}");
    }
    let bytes = b"a 1\nb{c=\"\xff\"} 2\nd 3\n";
    let read = Exposition::parse(bytes, ExpositionFormat::Text, &ExpositionLimits::default());
    assert_eq!((read.samples.len(), read.refused), (2, 1), "its neighbours are read");
    assert_eq!(read.rejects[0].to_string(), "line 2: the line is no UTF-8 from byte 6 on");
}

#[test]
fn what_was_said_of_a_family_first_stays() {
    let read = parse("# HELP a one\n# HELP a one\n# HELP a two\n# TYPE a gauge\n# TYPE a counter\na 1\n");
    let rejects: Vec<String> = read.rejects.iter().map(ToString::to_string).collect();
    let expected = [
        "line 3: 'a' has another help already, and keeps it: 'one'",
        "line 5: 'a' has another type already, and keeps it: gauge",
    ];
    assert_eq!(rejects, expected);
    assert_eq!(read.samples.iter().map(show).collect::<Vec<_>>(), ["a {} 1 Gauge"]);
}

#[test]
fn a_name_of_its_own_counts_before_a_name_with_an_ending() {
    let read = parse("# TYPE a histogram\n# TYPE a_sum gauge\na_sum 1\na_count 2\na_other 3\n_sum 4\n");
    let expected = ["a_sum {} 1 Gauge", "a_count {} 2 Counter", "a_other {} 3 Unknown", "_sum {} 4 Unknown"];
    assert_eq!(samples(&read), expected);
    assert_eq!(read.samples[0].family, Some(1));
}

#[test]
fn every_limit_is_kept_and_named() {
    let limits =
        ExpositionLimits { line_bytes_max: 20, samples_max: 2, families_max: 1, labels_max: 2, refused_told_max: 3 };
    let read = |body: &str| Exposition::parse(body.as_bytes(), ExpositionFormat::Text, &limits);
    let line = |len: usize| format!("{} 1\n", "a".repeat(len - 2));
    assert_eq!(read(&line(20)).samples.len(), 1);
    let too_long = "line 1: the line has 21 bytes, expected at most 20 (`line_bytes_max`)";
    assert_eq!(refused(&read(&line(21))), too_long);
    assert_eq!(read("a{b=\"\",c=\"\"} 1").samples.len(), 1);
    let labels = "line 1: the sample has more than 2 labels (`labels_max`)";
    assert_eq!(refused(&read("a{b=\"\",c=\"\",d=\"\"}1")), labels);
    assert_eq!(read("a 1\na 2").refused, 0);
    let samples = read("a 1\na 2\na 3\na 4\n\na 5\na 6");
    assert_eq!((samples.samples.len(), samples.refused, samples.rejects.len()), (2, 4, 3));
    assert_eq!(samples.rejects[0].to_string(), "line 3: the body has more than 2 samples (`samples_max`)");
    let families = read("# TYPE a gauge\n# HELP a x\n# TYPE b gauge\na 1");
    assert_eq!((families.families.len(), families.samples.len(), families.refused), (1, 1, 1));
    assert_eq!(families.rejects[0].to_string(), "line 3: the body has more than 1 families (`families_max`)");
    let shown = parse(&format!("a 1 {}", "\u{7}".repeat(1_000))).rejects[0].to_string();
    assert!(shown.len() < 200 && !shown.contains('\u{7}'), "{shown}");
}

fn text() -> impl Strategy<Value = String> {
    let parts = vec![
        "a",
        "b",
        "_sum",
        "_bucket",
        "_total",
        "{",
        "}",
        "\"",
        "\\",
        "=",
        ",",
        " ",
        "\t",
        "\n",
        "\r",
        "#",
        "# HELP ",
        "# TYPE ",
        "# UNIT ",
        "# EOF",
        " counter",
        " histogram",
        " summary",
        " gauge",
        "le",
        "1",
        "-",
        ".",
        "e",
        "NaN",
        "+Inf",
        "ü",
        "a{b=\"c\"} 1\n",
        "a 1\n",
    ];
    proptest::collection::vec(proptest::sample::select(parts), 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn any_bytes_hold_what_the_fuzzer_demands(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        fuzzing::exposition_text(&body);
    }

    #[test]
    fn any_text_of_meaningful_parts_holds_what_the_fuzzer_demands(body in text()) {
        fuzzing::exposition_text(body.as_bytes());
    }

    #[test]
    fn samples_come_back_from_between_broken_lines(
        sent in proptest::collection::vec(("[a-z_:][a-z0-9_:]{0,8}", "[ -~äöü\n]{0,12}", any::<f64>(), any::<bool>()), 0..20),
    ) {
        let mut body = String::new();
        for (name, label, value, is_followed) in &sent {
            let label = label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            body.push_str(&format!("{name}{{x=\"{label}\"}} {value:?}\n"));
            if *is_followed {
                body.push_str("}{ broken\n");
            }
        }
        let read = parse(&body);
        prop_assert_eq!(read.refused, sent.iter().filter(|(.., is_followed)| *is_followed).count() as u64);
        prop_assert_eq!(read.samples.len(), sent.len());
        for (read, (name, label, value, _)) in read.samples.iter().zip(&sent) {
            prop_assert_eq!((&read.name, &read.labels[0].1), (name, label));
            prop_assert!(read.value.to_bits() == value.to_bits() || read.value.is_nan() && value.is_nan());
        }
    }
}
