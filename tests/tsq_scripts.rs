//! Runs `tests/tsq/*.tsq` through the real path and through the oracle. The format: `tests/tsq/README.md`.

use std::collections::BTreeMap;
use std::path::Path;

use chrono_tz::Tz;
use telem_query::Queries;

use crate::oracle::{self, Filter, Group, Number, Question, RateOptions, Refusal, Series};
use crate::script::{self, EPOCH_MS, Load};
use crate::spread::{COUNTS, Spread};
use crate::{real, runtime};

/// One `eval` and the lines that it must answer.
struct Eval {
    line: usize,
    text: String,
    /// As asked, once for each fidelity that the line is about.
    questions: Vec<Question>,
    expected: Vec<String>,
}

/// Every script: its name, what it loads, what it asks.
fn scripts() -> Vec<(String, Vec<Load>, Vec<Eval>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tsq");
    let mut scripts: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.retain(|path| path.extension().is_some_and(|extension| extension == "tsq"));
    scripts.sort();
    assert!(scripts.len() >= 10, "only {} scripts found", scripts.len());
    let script = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let (loads, evals) = read(&name, &std::fs::read_to_string(path).unwrap());
        (name, loads, evals)
    };
    scripts.iter().map(script).collect()
}

#[test]
fn every_script_gets_its_answers_from_telem_and_from_the_oracle() {
    let wrong: Vec<String> = scripts().iter().flat_map(|(name, loads, evals)| run(name, loads, evals)).collect();
    assert!(wrong.is_empty(), "{} answers differ\n\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_script_gets_its_answers_from_series_that_are_spread_over_nodes() {
    let mut wrong = Vec::new();
    for (name, loads, evals) in scripts() {
        for count in COUNTS {
            let spread = Spread::load(count, &loads);
            let name = format!("{name} on {count} nodes");
            wrong.extend(wrong_answers(&name, &spread.queries, &script::stored(&loads), &evals));
        }
    }
    assert!(wrong.is_empty(), "{} answers differ\n\n{}", wrong.len(), wrong.join("\n"));
}

fn run(name: &str, loads: &[Load], evals: &[Eval]) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let db = real::open(dir.path());
    for (at, load) in loads.iter().enumerate() {
        real::write(&db, load);
        // Some of every script is read from segments, the rest from memory.
        if at % 2 == 0 {
            db.flush().unwrap();
        }
    }
    wrong_answers(name, &real::queries(&db), &script::stored(loads), evals)
}

fn wrong_answers(name: &str, queries: &Queries, stored: &[Series], evals: &[Eval]) -> Vec<String> {
    let mut wrong = Vec::new();
    for eval in evals {
        for question in &eval.questions {
            let fidelity = if question.exact { "exact" } else { "sensible" };
            let answers = [
                ("the oracle", oracle::answer(stored, question)),
                ("telem", runtime().block_on(real::answer(queries, question))),
            ];
            for (who, answer) in answers {
                let got = show(&answer);
                if !same(&got, &eval.expected) {
                    wrong.push(format!(
                        "{name}:{}: eval {} ({fidelity})\n  {who} answers\n    {}\n  expected\n    {}\n",
                        eval.line,
                        eval.text,
                        got.join("\n    "),
                        eval.expected.join("\n    ")
                    ));
                }
            }
        }
    }
    wrong
}

fn read(name: &str, text: &str) -> (Vec<Load>, Vec<Eval>) {
    let (mut loads, mut evals) = (Vec::new(), Vec::<Eval>::new());
    for (at, line) in text.lines().enumerate() {
        let line = line.split(" #").next().unwrap_or_default().trim_end();
        let fail = |why: String| -> ! { panic!("{name}:{}: {why}", at + 1) };
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(rest) = line.strip_prefix("load ") {
            loads.push(script::load(rest).unwrap_or_else(|why| fail(why)));
        } else if let Some(rest) = line.strip_prefix("eval ") {
            let questions = questions(rest).unwrap_or_else(|why| fail(why));
            evals.push(Eval { line: at + 1, text: rest.to_owned(), questions, expected: Vec::new() });
        } else if let (true, Some(eval)) = (line.starts_with(' '), evals.last_mut()) {
            eval.expected.push(line.trim().to_owned());
        } else {
            fail(format!("'{line}' is neither load nor eval nor an expected line"));
        }
    }
    (loads, evals)
}

/// `AGG[:DOWNSAMPLE][:rate...]:METRIC{group by}{other filters} FROM..TO` and then any of `exact` or `sensible`,
/// `explicit_tags`, `tz=ZONE`, `series={tags}`.
fn questions(text: &str) -> Result<Vec<Question>, String> {
    let mut words = text.split_whitespace();
    let what = words.next().ok_or("a query is missing")?;
    let range = words.next().and_then(|range| range.split_once("..")).ok_or("a range FROM..TO is missing")?;
    let (mut options, mut zone, mut only): (Vec<&str>, _, Vec<_>) = (Vec::new(), Tz::UTC, Vec::new());
    for option in words {
        match option.split_once('=') {
            None if ["exact", "sensible", "explicit_tags"].contains(&option) => options.push(option),
            Some(("tz", name)) => zone = name.parse().map_err(|_| format!("'{name}' is not a time zone"))?,
            Some(("series", tags)) => only.push(script::series(&format!("m{tags}"))?.1),
            _ => return Err(format!("'{option}' is not exact, sensible, explicit_tags, tz=ZONE or series={{tags}}")),
        }
    }
    // Colons also stand in rate{...} never, so the metric begins after the last colon before its braces.
    let mut parts: Vec<&str> = what.split(':').collect();
    let target = parts.pop().unwrap_or_default();
    let aggregator = parts.first().and_then(|name| oracle::aggregator(name)).ok_or("the aggregator is unknown")?;
    let (mut downsample, mut rate) = (None, None);
    for part in &parts[1..] {
        if let Some(options) = part.strip_prefix("rate") {
            rate = Some(rate_options(options)?);
        } else {
            downsample = Some(oracle::downsample(part, zone).ok_or_else(|| format!("'{part}' is no downsample"))?);
        }
    }
    let (metric, groups) = target.split_once('{').unwrap_or((target, "}"));
    let (grouping, others) = groups.split_once("}{").unwrap_or((groups, "}"));
    let mut filters = tag_filters(grouping, true)?;
    filters.extend(tag_filters(others, false)?);
    let question = |exact: bool| {
        Ok(Question {
            metric: metric.to_owned(),
            filters: filters.clone(),
            explicit_tags: options.contains(&"explicit_tags"),
            only: (!only.is_empty()).then(|| only.clone()),
            aggregator,
            downsample,
            rate,
            start_ms: EPOCH_MS + script::offset(range.0)?,
            end_ms: EPOCH_MS + script::offset(range.1)?,
            exact,
        })
    };
    let both = [("exact", true), ("sensible", false)];
    let about: Vec<bool> = both.iter().filter(|(name, _)| options.contains(name)).map(|(_, exact)| *exact).collect();
    let about = if about.is_empty() { vec![true, false] } else { about };
    about.into_iter().map(question).collect()
}

/// `` or `{counter,MAX,RESET}` or `{dropcounter}`.
fn rate_options(text: &str) -> Result<RateOptions, String> {
    let mut rate = RateOptions::default();
    let Some(inner) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else { return Ok(rate) };
    let mut words = inner.split(',');
    rate.counter = true;
    rate.drop_resets = words.next() == Some("dropcounter");
    let mut next = |default| match words.next() {
        Some(text) if !text.is_empty() => text.parse().map_err(|_| format!("'{text}' is no integer")),
        _ => Ok(default),
    };
    rate.counter_max = next(i64::MAX)?;
    rate.reset_value = next(0)?;
    Ok(rate)
}

fn tag_filters(text: &str, group_by: bool) -> Result<Vec<Filter>, String> {
    let pairs = text.trim_end_matches('}').split(',').filter(|pair| !pair.is_empty());
    let filter = |pair: &str| {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("'{pair}' is not key=filter"))?;
        oracle::filter(key, value, group_by).ok_or_else(|| format!("'{value}' is no filter"))
    };
    pairs.map(filter).collect()
}

/// The lines of an answer: `{tags} [aggregate tags] TIME:VALUE ...`, sorted by tags.
fn show(answer: &Result<Vec<Group>, Refusal>) -> Vec<String> {
    let groups = match answer {
        Err(Refusal::UnknownName { kind, name }) => return vec![format!("refused: unknown {kind} {name}")],
        Err(Refusal::Infinity) => return vec!["refused: infinity".into()],
        Ok(groups) if groups.is_empty() => return vec!["nothing".into()],
        Ok(groups) => groups,
    };
    let mut lines: Vec<String> = groups.iter().map(show_group).collect();
    lines.sort();
    lines
}

fn show_group(group: &Group) -> String {
    let tags: Vec<String> = group.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let mut line = format!("{{{}}}", tags.join(","));
    if !group.aggregate_tags.is_empty() {
        line.push_str(&format!(" [{}]", group.aggregate_tags.join(",")));
    }
    for (time, value) in &group.points {
        let value = match value {
            Number::Int(int) => int.to_string(),
            Number::Float(float) => format!("{float:?}"),
        };
        line.push_str(&format!(" {}:{value}", script::show_offset(time - EPOCH_MS)));
    }
    line
}

/// Word by word; numbers must have the same type and agree to a relative 1e-9.
fn same(got: &[String], expected: &[String]) -> bool {
    let mut expected = expected.to_vec();
    expected.sort();
    let words = |lines: &[String]| -> Vec<Vec<String>> {
        lines.iter().map(|line| line.split_whitespace().map(Into::into).collect()).collect()
    };
    let (got, expected) = (words(got), words(&expected));
    got.len() == expected.len()
        && got.iter().zip(&expected).all(|(got, expected)| {
            got.len() == expected.len() && got.iter().zip(expected).all(|(got, expected)| same_word(got, expected))
        })
}

fn same_word(got: &str, expected: &str) -> bool {
    let point = |word: &str| -> Option<(String, Number)> {
        let (time, value) = word.split_once(':')?;
        Some((time.to_owned(), script::number(value).ok()?))
    };
    match (point(got), point(expected)) {
        (Some((time, value)), Some((expected_time, expected))) => time == expected_time && value.agrees(expected),
        _ => got == expected,
    }
}

#[test]
fn a_wrong_expectation_is_noticed() {
    let script = "load a 0s 1m 1 2\neval sum:a 0s..1m\n  {} 0s:1 1m:3\n";
    let (loads, evals) = read("sample", script);
    let stored: Vec<oracle::Series> = script::stored(&loads);
    let got = show(&oracle::answer(&stored, &evals[0].questions[0]));
    assert_eq!(got, ["{} 0s:1 1m:2"]);
    assert!(!same(&got, &evals[0].expected));
    assert!(!same(&["{} 0s:1".into()], &["{} 0s:1.0".into()]), "an int is not a float");
    let tags: BTreeMap<String, String> = BTreeMap::from([("k".into(), "v".into())]);
    assert_eq!(show_group(&Group { tags, aggregate_tags: vec!["h".into()], points: vec![] }), "{k=v} [h]");
}
