use std::collections::BTreeMap;
use std::time::Duration;

use expect_test::{Expect, expect};
use futures::StreamExt;
use telem_engine::Value;

use super::OUTPUT_BYTES_MAX;
use crate::error::{Error, ErrorKind, Result};
use crate::options::QueryOptions;
use crate::testing::{Asked, options};

/// Rows of the table `texts`: more than one batch.
const ROWS: i64 = 10_000;
/// Memory of the queries here.
const MEMORY_BYTES: usize = 64 << 20;

/// A table whose tag `t` has 1,000 letters.
fn texts(memory_bytes_max: usize) -> Asked {
    let asked = Asked::with(QueryOptions { memory_bytes_max, ..options() });
    let text = "a".repeat(1_000);
    asked.put("texts", &[("host", "h"), ("t", &text)], (0..ROWS).map(|second| (second, Value::Int(second))));
    asked
}

/// The most bytes that a batch of the answer has.
async fn largest_batch(asked: &Asked, sql: &str) -> Result<usize> {
    let mut batches = asked.queries.sql(sql).await?.batches;
    let mut largest = 0;
    while let Some(batch) = batches.next().await {
        let batch = batch.map_err(Error::from)?;
        largest = largest.max(batch.columns().iter().map(|column| column.get_buffer_memory_size()).sum());
    }
    Ok(largest)
}

async fn check(sql: &str, expected: Expect) {
    expected.assert_eq(&Asked::load("load{host=a} 0:1 60:2").answer(sql).await);
}

/// `call` of `call` of ..., so often, of `innermost`.
fn nested(call: &str, times: usize, innermost: &str) -> String {
    (0..times).fold(innermost.to_owned(), |inner, _| call.replace('#', &inner))
}

#[tokio::test]
async fn what_multiplies_is_refused_before_it_is_made() {
    let asked = texts(MEMORY_BYTES);
    let ten = "a".repeat(10);
    for sql in [
        format!("SELECT length({})", nested(&format!("replace(#, 'a', '{ten}')"), 12, "'aaaaaaaaaa'")),
        format!("SELECT length({})", nested(&format!("regexp_replace(#, 'a', '{ten}', 'g')"), 12, "'aaaaaaaaaa'")),
        format!("SELECT max(length({})) FROM texts", nested("concat(#, #)", 8, "t")),
        format!("SELECT max(length({})) FROM texts", nested("(# || #)", 8, "t")),
        "SELECT max(length(replace(overlay(t placing t from 1 for 0), 'a', t))) FROM texts".to_owned(),
        format!("SELECT max(length(replace(translate(t, 'a', 'é'), 'é', '{}'))) FROM texts", "a".repeat(50_000)),
        format!("SELECT max(length(to_char(ts, '{}'))) FROM texts", "%A".repeat(50_000)),
        "SELECT length(string_agg(replace(t, 'a', t), '')) FROM texts".to_owned(),
        "SELECT array_length(array_agg(replace(t, 'a', t))) FROM texts".to_owned(),
        format!("SELECT max(array_length({})) FROM texts", nested("array_concat(#, #)", 8, "string_to_array(t, NULL)")),
        "SELECT max(length(x)) FROM (SELECT string_agg(t, '') OVER (ORDER BY ts) AS x FROM texts)".to_owned(),
        "SELECT max(length(x)) FROM (SELECT first_value(replace(t, 'a', t)) OVER (ORDER BY ts) AS x FROM texts)"
            .to_owned(),
        "SELECT sum(length(a.x)) FROM (SELECT replace(t, 'a', t) AS x FROM texts LIMIT 3) a, texts b".to_owned(),
    ] {
        let error = largest_batch(&asked, &sql).await.unwrap_err();
        let text = sql.chars().take(100).collect::<String>();
        // Some operators wrap what a function says; kind and text stay.
        let refused = matches!(error, Error::Memory(_)) || error.to_string().contains(" would make ");
        assert!(refused && error.kind() == ErrorKind::Invalid, "{text}: {error}");
    }
    let constants = format!("SELECT '{}', t FROM texts", "a".repeat(100_000));
    expect!["the query puts 100000 bytes of constants into each row; at most 8192 are allowed"]
        .assert_eq(&largest_batch(&asked, &constants).await.unwrap_err().to_string());
    let fixed = "SELECT arrow_cast(t, 'FixedSizeBinary(100000000)') FROM texts";
    expect!["values of FixedSizeBinary(100000000) have too many elements; at most 4096 are allowed"]
        .assert_eq(&largest_batch(&asked, fixed).await.unwrap_err().to_string());
}

#[tokio::test]
async fn a_function_that_takes_long_stops_at_the_end_of_the_time() {
    let deadline = Duration::from_secs(1);
    let asked = Asked::with(QueryOptions { deadline, queries_max: 1, threads: 1, ..options() });
    let text = "a".repeat(1_000);
    asked.put("load", &[("host", "a"), ("t", &text)], (0..ROWS).map(|second| (second, Value::Int(second))));
    let format = "%A".repeat(20_000);
    for sql in [
        format!("SELECT max(length(to_char(ts, '{format}'))) FROM load"),
        "SELECT max(levenshtein(concat(t, t), concat(t, 'b'))) FROM load".to_owned(),
    ] {
        let error = asked.try_answer(&sql).await.unwrap_err();
        assert!(matches!(error, Error::Deadline { .. }), "{error:?}");
        // It has its turn when the other has let go of the only place.
        let _ = asked.try_answer("SELECT 1").await;
        while asked.queries.stats().left_behind > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn texts_are_put_together_as_by_the_operator() {
    check(
        "SELECT 'a' || 'b' AS ab, 'a' || NULL AS n, 1 || 'x' AS one, host || '-' || value AS row, [1] || [2] AS list \
         FROM load WHERE host || 'b' = 'ab'",
        expect![[r#"
            +----+---+-----+-------+--------+
            | ab | n | one | row   | list   |
            +----+---+-----+-------+--------+
            | ab |   | 1x  | a-1.0 | [1, 2] |
            | ab |   | 1x  | a-2.0 | [1, 2] |
            +----+---+-----+-------+--------+"#]],
    )
    .await;
    check(
        "SELECT host || 'b' AS x FROM load GROUP BY host || 'b'",
        expect![[r#"
            +----+
            | x  |
            +----+
            | ab |
            +----+"#]],
    )
    .await;
}

#[tokio::test]
async fn pieces_are_put_together_to_what_the_whole_would_be() {
    let asked = texts(options().memory_bytes_max);
    let (c, sum) = ("b".repeat(2_000), "sum(length(x)), count(DISTINCT x), min(x) = max(x), count(*)");
    for (expr, length) in [
        (format!("replace(substr(t, 1, 2), 'a', '{c}')"), 4_000),
        (format!("concat(substr(t, 1, 2), '{c}')"), 2_002),
        (format!("substr(t, 1, 2) || '{c}'"), 2_002),
        (format!("array_to_string([substr(t, 1, 2), NULL, 'x'], '{c}', 'null')"), 4_007),
        (format!("split_part(concat(t, ',', '{c}'), ',', 2)"), 2_000),
    ] {
        let sql = format!("SELECT {sum} FROM (SELECT {expr} AS x FROM texts)");
        let answer = asked.try_answer(&sql).await.unwrap();
        let expected = format!("| {} | 1 | true | {ROWS} |", length * ROWS);
        let found = answer.lines().nth(3).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(found, expected, "{expr}");
    }
}

#[tokio::test]
async fn what_functions_make_is_counted_until_it_is_gone() {
    let asked = texts(MEMORY_BYTES);
    let memory = asked.queries.memory_reserved();
    let mut answer = asked.queries.sql("SELECT replace(t, 'a', 'bbb') AS x FROM texts").await.unwrap().batches;
    let batch = answer.next().await.unwrap().unwrap();
    assert!(asked.queries.memory_reserved() > memory + (1 << 20), "{}", asked.queries.memory_reserved());
    drop((batch, answer));
    while asked.queries.memory_reserved() > memory {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Calls that make each function's answer as large as it can be. `t` is a text of 1,000 letters in each row, `$C` one of
/// 50,000, `$L` a list of 1,000 texts; `-` is for those whose answer is a number, a time or nothing at all.
const GROWN: &str = "
    scalar abs: -
    scalar acos: -
    scalar acosh: -
    aggregate any_value: any_value(concat(t, $C))
    aggregate approx_distinct: -
    aggregate approx_median: -
    aggregate approx_percentile_cont: -
    aggregate approx_percentile_cont_with_weight: -
    aggregate array_agg: array_agg(concat(t, $C))
    aggregate avg: -
    aggregate bit_and: -
    aggregate bit_or: -
    aggregate bit_xor: -
    aggregate bool_and: -
    aggregate bool_or: -
    aggregate corr: -
    aggregate count: -
    aggregate covar: -
    aggregate covar_pop: -
    aggregate covar_samp: -
    aggregate delta: -
    aggregate first: first(concat(t, $C), ts)
    aggregate first_value: first_value(concat(t, $C) ORDER BY ts)
    aggregate grouping: -
    aggregate histogram: histogram(value, 0, 1, 1000)
    aggregate histogram_quantile: -
    aggregate increase: -
    aggregate last: last(concat(t, $C), ts)
    aggregate last_value: last_value(concat(t, $C) ORDER BY ts)
    aggregate max: max(concat(t, $C))
    aggregate mean: -
    aggregate median: -
    aggregate min: min(concat(t, $C))
    aggregate nth_value: nth_value(concat(t, $C), 3 ORDER BY ts)
    aggregate percentile_cont: -
    aggregate rate: -
    aggregate regr_avgx: -
    aggregate regr_avgy: -
    aggregate regr_count: -
    aggregate regr_intercept: -
    aggregate regr_r2: -
    aggregate regr_slope: -
    aggregate regr_sxx: -
    aggregate regr_sxy: -
    aggregate regr_syy: -
    aggregate stddev: -
    aggregate stddev_pop: -
    aggregate string_agg: string_agg(concat(t, $C), '-')
    aggregate sum: -
    aggregate var: -
    aggregate var_pop: -
    aggregate var_samp: -
    scalar array_add: array_add([value, value], [value, value])
    scalar array_any_value: array_any_value([concat(t, $C)])
    scalar array_append: array_append($L, concat(t, $C))
    scalar array_avg: -
    scalar array_compact: array_compact($L)
    scalar array_concat: array_concat($L, $L, $L)
    scalar array_dims: array_dims($L)
    scalar array_distance: -
    scalar array_distinct: array_distinct($L)
    scalar array_element: array_element([concat(t, $C)], 1)
    scalar array_except: array_except($L, ['b'])
    scalar array_has: -
    scalar array_has_all: -
    scalar array_has_any: -
    scalar array_intersect: array_intersect($L, $L)
    scalar array_length: -
    scalar array_max: -
    scalar array_min: -
    scalar array_ndims: -
    scalar array_normalize: array_normalize([value, value])
    scalar array_pop_back: array_pop_back($L)
    scalar array_pop_front: array_pop_front($L)
    scalar array_position: -
    scalar array_positions: array_positions($L, 'a')
    scalar array_prepend: array_prepend(concat(t, $C), $L)
    scalar array_product: -
    scalar array_remove: array_remove($L, 'b')
    scalar array_remove_all: array_remove_all($L, 'b')
    scalar array_remove_n: array_remove_n($L, 'b', 1)
    scalar array_replace: array_replace($L, 'a', $C)
    scalar array_replace_all: array_replace_all($L, 'a', $C)
    scalar array_replace_n: array_replace_n($L, 'a', $C, 1000)
    scalar array_reverse: array_reverse($L)
    scalar array_scale: array_scale([value, value], 2.0)
    scalar array_slice: array_slice($L, 1, 900)
    scalar array_sort: array_sort($L)
    scalar array_subtract: array_subtract([value, value], [value, value])
    scalar array_sum: -
    scalar array_to_string: array_to_string($L, $C)
    scalar array_union: array_union($L, $L)
    scalar arrays_zip: arrays_zip($L, $L)
    scalar arrow_cast: arrow_cast(concat(t, $C), 'LargeUtf8')
    scalar arrow_field: -
    scalar arrow_metadata: arrow_metadata(concat(t, $C), 'b')
    scalar arrow_try_cast: arrow_try_cast(concat(t, $C), 'LargeUtf8')
    scalar arrow_typeof: -
    scalar ascii: -
    scalar asin: -
    scalar asinh: -
    scalar atan: -
    scalar atan2: -
    scalar atanh: -
    scalar bit_length: -
    scalar btrim: btrim(concat(t, $C), 'b')
    scalar cardinality: -
    scalar cast_to_type: cast_to_type(concat(t, $C), 'x')
    scalar cbrt: -
    scalar ceil: -
    scalar character_length: -
    scalar chr: -
    scalar coalesce: coalesce(nullif(t, t), concat(t, $C))
    scalar concat: concat(t, $C, $C)
    scalar concat_operator: t || $C
    scalar concat_ws: concat_ws($C, t, t, t)
    scalar contains: -
    scalar cos: -
    scalar cosh: -
    scalar cosine_distance: -
    scalar cot: -
    scalar current_date: -
    scalar current_time: -
    scalar date_bin: -
    scalar date_part: -
    scalar date_trunc: -
    scalar decode: decode(encode(concat(t, $C), 'hex'), 'hex')
    scalar degrees: -
    scalar empty: -
    scalar encode: encode(concat(t, $C), 'hex')
    scalar ends_with: -
    scalar exp: -
    scalar factorial: -
    scalar file_row_index: -
    scalar find_in_set: -
    scalar flatten: flatten([$L, $L])
    scalar floor: -
    scalar from_unixtime: -
    scalar gcd: -
    scalar get_field: get_field(named_struct('a', concat(t, $C)), 'a')
    scalar greatest: greatest(concat(t, $C), t)
    scalar hold: -
    scalar initcap: initcap(concat(t, $C))
    scalar inner_product: -
    scalar input_file_name: -
    scalar instr: -
    scalar isnan: -
    scalar iszero: -
    scalar lcm: -
    scalar least: least(concat(t, $C), concat('0', $C))
    scalar left: left(concat(t, $C), 40000)
    scalar levenshtein: levenshtein(replace(t, 'a', $C), $C)
    scalar ln: -
    scalar log: -
    scalar log10: -
    scalar log2: -
    scalar lower: lower(concat(t, $C))
    scalar ltrim: ltrim(concat(t, $C), 'b')
    scalar make_array: make_array(concat(t, $C), concat($C, t))
    scalar make_date: -
    scalar make_time: -
    scalar map: map([t], [concat(t, $C)])
    scalar map_entries: map_entries(map([t], [concat(t, $C)]))
    scalar map_extract: map_extract(map([t], [concat(t, $C)]), t)
    scalar map_keys: map_keys(map([concat(t, $C)], [t]))
    scalar map_values: map_values(map([t], [concat(t, $C)]))
    scalar named_struct: named_struct('a', concat(t, $C), 'b', concat($C, t))
    scalar nanvl: -
    scalar now: -
    scalar nullif: nullif(concat(t, $C), t)
    scalar nvl: nvl(nullif(t, t), concat(t, $C))
    scalar nvl2: nvl2(t, concat(t, $C), t)
    scalar octet_length: -
    scalar overlay: overlay(t placing $C from 1 for 0)
    scalar pi: -
    scalar power: -
    scalar radians: -
    scalar random: -
    scalar regexp_count: -
    scalar regexp_instr: -
    scalar regexp_like: -
    scalar regexp_match: regexp_match(concat(t, $C), '((((a*))))')
    scalar regexp_replace: regexp_replace(t, 'a', $C, 'g')
    scalar replace: replace(t, 'a', $C)
    scalar reverse: reverse(concat(t, $C))
    scalar right: right(concat(t, $C), 40000)
    scalar round: -
    scalar rtrim: rtrim(concat(t, $C), 'b')
    scalar signum: -
    scalar sin: -
    scalar sinh: -
    scalar split_part: split_part(concat(t, $C), 'b', 1)
    scalar sqrt: -
    scalar starts_with: -
    scalar string_to_array: string_to_array(concat(t, $C), NULL)
    scalar strpos: -
    scalar struct: struct(concat(t, $C), concat($C, t))
    scalar substr: substr(concat(t, $C), 2)
    scalar substr_index: substr_index(concat(t, $C), 'b', 1)
    table asof: -
    table downsample: -
    table gaps: -
    table generate_series: FROM generate_series(1, 100000)
    table range: FROM range(1, 100000)
    scalar tan: -
    scalar tanh: -
    scalar time_bucket: -
    scalar to_char: to_char(ts, $C)
    scalar to_date: -
    scalar to_hex: to_hex(value_int)
    scalar to_local_time: -
    scalar to_time: -
    scalar to_timestamp: -
    scalar to_timestamp_micros: -
    scalar to_timestamp_millis: -
    scalar to_timestamp_nanos: -
    scalar to_timestamp_seconds: -
    scalar to_unixtime: -
    scalar translate: translate(t, 'a', $C)
    scalar trunc: -
    scalar try_cast_to_type: try_cast_to_type(concat(t, $C), 'x')
    scalar union_extract: -
    scalar union_tag: -
    scalar upper: upper(concat(t, $C))
    scalar uuid: -
    scalar version: -
    window cume_dist: -
    window dense_rank: -
    window first_value: first_value(concat(t, $C)) OVER (ORDER BY ts)
    window lag: lag(value, 1) OVER (ORDER BY ts)
    window last_value: last_value(concat(t, $C)) OVER (ORDER BY ts)
    window lead: lead(concat(t, $C), 1, 'x') OVER (ORDER BY ts)
    window nth_value: nth_value(concat(t, $C), 2) OVER (ORDER BY ts)
    window ntile: -
    window percent_rank: -
    window rank: -
    window row_number: -
    scalar with_metadata: with_metadata(concat(t, $C), 'a', 'b')
";

#[tokio::test]
async fn every_function_stays_within_its_bounds() {
    let asked = texts(MEMORY_BYTES);
    let (mut unknown, mut failed) = (Vec::new(), Vec::new());
    let known: BTreeMap<&str, &str> = GROWN.lines().filter_map(|line| line.trim().split_once(": ")).collect();
    for name in asked.queries.function_names() {
        let Some(call) = known.get(name.as_str()) else {
            unknown.push(name);
            continue;
        };
        if *call == "-" {
            continue;
        }
        let call = call.replace("$C", &format!("'{}'", "a".repeat(50_000))).replace("$L", "string_to_array(t, NULL)");
        let sql = match call.starts_with("FROM ") {
            true => format!("SELECT * {call}"),
            false => format!("SELECT {call} AS x FROM texts"),
        };
        match largest_batch(&asked, &sql).await {
            Ok(bytes) if bytes as u64 <= 2 * OUTPUT_BYTES_MAX => {}
            Ok(bytes) => failed.push(format!("{name}: {bytes} bytes in a batch")),
            Err(Error::TooMuchMade { .. } | Error::Memory(_)) => {}
            Err(error) => {
                let text = error.to_string().chars().take(200).collect::<String>();
                failed.push(format!("{name}: {:?}: {text}", error.kind()));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(unknown.is_empty(), "say in GROWN how large the answers of these become: {unknown:?}");
}
