use proptest::prelude::*;
use telem_engine::{SeriesKey, TagSet, Value};
use telem_query::TsGroup;

use super::*;
use crate::testing::Served;

fn read(text: &str, fidelity: Fidelity) -> String {
    let mut queries = Vec::new();
    match parse::parse(text, &mut queries, fidelity) {
        Ok(tree) => format!("{} {queries:?}", shape(&tree)),
        Err(why) => why,
    }
}

fn shape(tree: &GraphiteTree) -> String {
    let arguments = tree.arguments.iter().map(|argument| match argument {
        Argument::Function(tree) => shape(tree),
        Argument::Query(at) => format!("#{at}"),
        Argument::Parameter(text) => text.clone(),
    });
    format!("{:?}({})", tree.function, arguments.collect::<Vec<_>>().join(" "))
}

#[test]
fn functions_hold_queries_functions_and_parameters() {
    for (text, expected) in [
        ("scale(sum:m,2)", r##"Scale(#0 2) ["sum:m"]"##),
        (" absolute ( sum:1m-avg:rate:m{host=*} ) ", r##"Absolute(#0) ["sum:1m-avg:rate:m{host=*}"]"##),
        ("sumSeries(scale(sum:a,2), sum:b)", r##"Sum(Scale(#0 2) #1) ["sum:a", "sum:b"]"##),
        ("divide(sum:a{host=*,dc=x},sum:b)", r##"Divide(#0 #1) ["sum:a{host=*,dc=x}", "sum:b"]"##),
        ("movingAverage(sum:m,'10min')", r##"MovingAverage(#0 '10min') ["sum:m"]"##),
        ("scale(sum:m,2)+1", r##"Scale(#0 2) ["sum:m"]"##),
        ("median(sum:m)", "Function median has not been implemented"),
        ("scale", "Failed to parse scale"),
        ("scale(sum:m,2", "Failed to parse scale(sum:m,2"),
        ("scale()", "Failed to parse scale()"),
        ("scale(sum:m,)", "Failed to parse scale(sum:m,)"),
        ("scale(sum:m,,2)", "Failed to parse scale(sum:m,,2)"),
    ] {
        assert_eq!(read(text, Fidelity::Sensible), expected, "{text}");
        assert_eq!(read(text, Fidelity::OpenTsdb), expected, "{text}, exactly");
    }
    let deep = format!("{}sum:m{}", "absolute(".repeat(40), ")".repeat(40));
    assert_eq!(read(&deep, Fidelity::Sensible), "functions are nested more than 32 deep");
}

#[test]
fn opentsdbs_expressions_hold_only_plain_queries() {
    for (text, query) in [
        ("absolute(sum:m{host=regexp(a,b)})", "sum:m{host=regexp(a,b)}"),
        ("absolute(sum:m{host=web*})", "sum:m{host=web*}"),
        ("absolute(sum:1m-avg:rate{counter,9}:m)", "sum:1m-avg:rate{counter,9}:m"),
        ("absolute(sum:m{}{host=a})", "sum:m{}{host=a}"),
        ("absolute(sum:1m-avg:rate:explicit_tags:m)", "sum:1m-avg:rate:explicit_tags:m"),
    ] {
        assert_eq!(read(text, Fidelity::Sensible), format!(r##"Absolute(#0) ["{query}"]"##));
        assert_eq!(read(text, Fidelity::OpenTsdb), format!("Failed to parse {text}"));
    }
    assert_eq!(
        read("absolute( sum : 1m-avg : m { host = a|b , dc = * } )", Fidelity::OpenTsdb),
        r##"Absolute(#0) ["sum:1m-avg:m{host=a|b,dc=*}"]"##
    );
    assert_eq!(read("firstDiff(sum:m)", Fidelity::OpenTsdb), "Function firstDiff has not been implemented");
}

fn curve(host: &str, points: &[(i64, Value)]) -> Curve {
    let key = SeriesKey::new("m", TagSet::new([("host", host)]).unwrap()).unwrap();
    let tags = key.tags().clone();
    let points = points.iter().map(|(time, value)| (Timestamp::from_seconds(*time), *value)).collect();
    Curve {
        sub: 0,
        group: TsGroup { tags, aggregate_tags: vec![], series: vec![key], points },
        made: CurveOrigin::FromOne,
    }
}

fn ints(host: &str, values: &[i64]) -> Curve {
    curve(host, &(0..).zip(values).map(|(at, value)| (10 * at, Value::Int(*value))).collect::<Vec<_>>())
}

/// What an expression makes of `sum:a`, `sum:b` and so on, as `host time:value ...` each.
fn evaluate(text: &str, answers: &[Vec<Curve>]) -> Vec<String> {
    let tree = parse::parse(text, &mut Vec::new(), Fidelity::Sensible).unwrap();
    let scope =
        Scope { start: Timestamp::from_seconds(0), end: Timestamp::from_seconds(1_000), fidelity: Fidelity::Sensible };
    match functions::evaluate(&tree, answers, scope) {
        Err(why) => vec![why],
        Ok(curves) => curves
            .iter()
            .map(|curve| {
                let points = curve.group.points.iter().map(|(time, value)| match value {
                    Value::Int(int) => format!(" {}:{int}", time.seconds()),
                    Value::Float(float) => format!(" {}:{float:?}", time.seconds()),
                });
                let name = curve.group.tags.get("host").unwrap_or("-");
                format!("{name}{}", points.collect::<String>())
            })
            .collect(),
    }
}

#[test]
fn each_function_does_what_its_name_says() {
    let a = vec![ints("x", &[1, 2, 4]), ints("y", &[-1, -2, -9])];
    for (text, expected) in [
        ("scale(sum:a,2)", &["x 0:2 10:4 20:8", "y 0:-2 10:-4 20:-18"][..]),
        ("scale(sum:a,0.5)", &["x 0:0.5 10:1.0 20:2.0", "y 0:-0.5 10:-1.0 20:-4.5"]),
        ("absolute(sum:a)", &["x 0:1 10:2 20:4", "y 0:1 10:2 20:9"]),
        ("firstDiff(sum:a)", &["x 0:0.0 10:1.0 20:2.0", "y 0:0.0 10:-1.0 20:-7.0"]),
        ("highestMax(sum:a,1)", &["x 0:1 10:2 20:4"]),
        ("highestCurrent(scale(sum:a,-1),1)", &["y 0:1 10:2 20:9"]),
        ("timeShift(sum:a,'1min')", &["x 60:1 70:2 80:4", "y 60:-1 70:-2 80:-9"]),
        // Until the window is full there is 0; a window of time is full when a point lies before it.
        ("movingAverage(sum:a,2)", &["x 0:0.0 10:1.5 20:3.0", "y 0:0.0 10:-1.5 20:-5.5"]),
        ("movingAverage(sum:a,'20sec')", &["x 0:0.0 10:0.0 20:3.0", "y 0:0.0 10:0.0 20:-5.5"]),
        ("alias(sum:a,load.@host)", &["- 0:1 10:2 20:4", "- 0:-1 10:-2 20:-9"]),
        ("scale(sum:a)", &["Missing scaling factor"]),
        ("scale(sum:a,1e3)", &["Unparseable scale factor value: 1e3"]),
        ("highestMax(sum:a,0)", &["Top n value must be greater than zero: 0"]),
        (
            "movingAverage(sum:a,'1fortnight')",
            &["Unparseable window size: '1fortnight', expected a number of points or a time such as '10min'"],
        ),
        ("sumSeries(sum:a)", &["Must have 2 to 26 series, got 1 instead"]),
    ] {
        assert_eq!(evaluate(text, std::slice::from_ref(&a)), expected, "{text}");
    }
}

#[test]
fn series_with_equal_tags_are_combined_and_a_missing_one_is_0() {
    let answers = [vec![ints("x", &[1, 2]), ints("y", &[3, 4])], vec![ints("y", &[10, 0])]];
    for (text, expected) in [
        ("sumSeries(sum:a,sum:b)", ["x 0:1.0 10:2.0", "y 0:13.0 10:4.0"]),
        ("diffSeries(sum:a,sum:b)", ["x 0:1.0 10:2.0", "y 0:-7.0 10:4.0"]),
        ("multiplySeries(sum:a,sum:b)", ["x 0:0.0 10:0.0", "y 0:30.0 10:0.0"]),
        ("divideSeries(sum:a,sum:b)", ["x 0:0.0 10:0.0", "y 0:0.3 10:0.0"]),
    ] {
        assert_eq!(evaluate(text, &answers), expected, "{text}");
    }
}

fn served() -> Served {
    let served = Served::with(|_| ());
    let points = |scale: i64| (0..6).map(|at| (3_600 + 10 * at, Value::Int(scale * at))).collect::<Vec<_>>();
    served.store("m", &[("host", "a")], &points(1));
    served.store("m", &[("host", "b")], &points(10));
    served.store("scaled", &[("host", "b")], &points(20));
    served
}

#[tokio::test]
async fn expressions_are_answered_like_queries() {
    let served = served();
    for (query, expected) in [
        (
            "start=3620&end=3630&exp=scale(sum:m{host=a},10)",
            r#"200 [{"metric":"m","tags":{"host":"a"},"aggregateTags":[],"dps":{"3620":20,"3630":30}}]"#,
        ),
        (
            "start=3620&end=3630&arrays&exp=divideSeries(sum:m{host=b},sum:scaled{host=b})",
            r#"200 [{"metric":"m","tags":{"host":"b"},"aggregateTags":[],"dps":[[3620,0.5],[3630,0.5]]}]"#,
        ),
        // The one before the start decides, and is not shown.
        (
            "start=3620&end=3630&exp=firstDiff(sum:m{host=b})",
            r#"200 [{"metric":"m","tags":{"host":"b"},"aggregateTags":[],"dps":{"3620":10.0,"3630":10.0}}]"#,
        ),
        ("start=3620&end=3630&m=sum:m", "200 []"),
        ("start=3620&exp=scale(sum:unknown,2)", r#"400 {"error":{"code":400,"message":"No such name for 'metrics'"#),
        ("start=3620", r#"400 {"error":{"code":400,"message":"Missing sub queries""#),
        ("start=3620&exp=mean(sum:m)", r#"400 {"error":{"code":400,"message":"Function mean has not"#),
        ("start=3620&exp=mean(sum:m)&exact", r#"500 {"error":{"code":500,"message":"Function mean has not"#),
        ("start=3620&exp=firstDiff(sum:m)&exact", r#"500 {"error":{"code":500,"message":"Function firstDiff has"#),
        // The same query twice is one sub-query.
        (
            "start=3620&end=3630&exp=sumSeries(sum:m{host=b},sum:m{host=b})",
            r#"200 [{"metric":"m","tags":{"host":"b"},"aggregateTags":[],"dps":{"3620":40.0,"3630":60.0}}]"#,
        ),
        ("start=3620&exp=sumSeries(sum:m,sum:m)&exact", r#"400 {"error":{"code":400,"message":"Index: 1, Size: 1""#),
        // What is made of several series says that it has no annotations, and has the tags of the first side alone.
        (
            "start=3620&end=3630&exp=sumSeries(sum:scaled{host=*},sum:m{host=*})&exact",
            r#"200 [{"metric":"m","tags":{},"aggregateTags":[],"annotations":[],"dps":{"3620":2.0,"3630":3.0}},{"#,
        ),
        (
            "start=3620&end=3630&exp=sumSeries(sum:scaled{host=*},sum:m{host=*})",
            r#"200 [{"metric":"m","tags":{"host":"a"},"aggregateTags":[],"dps":{"3620":2.0,"3630":3.0}},{"#,
        ),
        // It takes the quotation mark for a part of the unit.
        (
            "start=3620&exp=timeShift(sum:m,'1min')&exact",
            r#"400 {"error":{"code":400,"message":"unknown time unit=min'""#,
        ),
        ("start=3620&end=3630&exp=alias(sum:m{host=a},x)&exact", r#"200 [{"metric":"x","tags":{},"aggregateTags""#),
        ("start=3620&exp=scale(2,sum:m)&exact", r#"400 {"error":{"code":400,"message":"Unknown parameter type"#),
    ] {
        let path = format!("/api/query/gexp?{}", query.replace('{', "%7B").replace('}', "%7D"));
        let answer = served.get(&path).await;
        let said = format!("{} {}", answer.status, answer.text());
        assert!(said.starts_with(expected), "{query}: {said}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_expression_makes_the_reader_panic(text in "(scale|absolute|x)?[(),:a-z'0-9é \\PC]{0,40}") {
        let mut queries = Vec::new();
        for fidelity in [Fidelity::Sensible, Fidelity::OpenTsdb] {
            if let Ok(tree) = parse::parse(&text, &mut queries, fidelity) {
                prop_assert!(tree.arguments.len() <= text.len());
            }
        }
    }
}
