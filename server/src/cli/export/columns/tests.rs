//! Columns of files: tags keep their names where they can, and rows fall into the right columns.

use arrow::array::{Float64Array, Int64Array, TimestampMicrosecondArray};
use arrow::util::pretty::pretty_format_batches;
use expect_test::expect;

use super::*;

fn names(keys: &[&str]) -> String {
    names_with(keys, JobColumn::Absent)
}

fn names_with(keys: &[&str], job: JobColumn) -> String {
    let columns = Columns::of(&[&metric("m", keys)], job).unwrap();
    let names: Vec<&str> = columns.schema.fields().iter().map(|field| field.name().as_str()).collect();
    names.join(" ")
}

fn metric(name: &str, keys: &[&str]) -> ExportMetric {
    ExportMetric { name: name.to_owned(), keys: keys.iter().map(|key| (*key).to_owned()).collect(), series: 1 }
}

#[test]
fn the_host_is_always_there_and_a_tag_named_like_a_fixed_column_gets_a_prefix() {
    assert_eq!(names(&[]), "metric host node ts value value_int");
    assert_eq!(names(&["rank", "host", "core", "rank"]), "metric host node core rank ts value value_int");
    assert_eq!(
        names(&["ts", "Value", "metric", "node", "tag_ts", "tag_x", "tag_tag_node", "Host"]),
        "metric host node Host tag_Value tag_metric tag_node tag_tag_tag_node tag_tag_ts tag_x tag_ts ts value value_int"
    );
}

#[test]
fn the_job_is_a_column_where_several_are_told_apart() {
    assert_eq!(names_with(&["rank", "job"], JobColumn::Absent), "metric host node job rank ts value value_int");
    assert_eq!(
        names_with(&["rank", "Job"], JobColumn::Present),
        "metric host node job tag_Job rank ts value value_int"
    );
}

#[test]
fn a_file_has_a_bounded_number_of_columns() {
    let keys: Vec<String> = (0..=COLUMNS_MAX).map(|at| format!("k{at}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let most = metric("most", &keys[..COLUMNS_MAX]);
    assert_eq!(Columns::of(&[&most], JobColumn::Absent).unwrap().schema.fields().len(), COLUMNS_MAX + 6);
    let error = Columns::of(&[&most, &metric("other", &keys[1..])], JobColumn::Absent).unwrap_err();
    assert!(error.contains("1001 tags together") && error.contains("1000 at most"), "{error}");
    assert!(error.contains("-o OUT/"), "{error}");
}

#[test]
fn a_metric_that_no_file_can_hold_is_named_with_how_to_leave_it_out() {
    let keys: Vec<String> = (0..=COLUMNS_MAX).map(|at| format!("k{at}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let error = Columns::of(&[&metric("load", &[]), &metric("wide", &keys)], JobColumn::Absent).unwrap_err();
    assert!(error.starts_with("metric wide has 1001 tags") && error.contains("--exclude 'wide'"), "{error}");
    assert!(!error.contains("OUT/"), "one file or many, it does not fit: {error}");
}

#[test]
fn the_question_names_every_tag_by_its_column_in_sql() {
    assert_eq!(
        select_list(&metric("m", &["a\"b", "host", "value"])),
        r#""ts", "value", "value_int", "node", "a""b", "host", "tag_value""#
    );
}

#[test]
fn a_metric_fills_its_own_tags_and_leaves_those_of_others_empty() {
    let load = metric("load", &["core", "host"]);
    let columns = Columns::of(&[&metric("m", &["core", "host", "rank"])], JobColumn::Absent).unwrap();
    let mut rows = columns.rows_of(&load);
    let answer = |cores: Vec<Option<&str>>| {
        let count = cores.len();
        let ts = TimestampMicrosecondArray::from_iter_values(0..count as i64).with_timezone("UTC");
        let columns: Vec<ArrayRef> = vec![
            Arc::new(ts),
            Arc::new(Float64Array::from(vec![0.5; count])),
            Arc::new(Int64Array::from(vec![None; count])),
            Arc::new(StringViewArray::from(vec!["n1"; count])),
            Arc::new(StringViewArray::from(cores)),
            Arc::new(StringViewArray::from(vec![Some("a"); count])),
        ];
        RecordBatch::try_new(answer_schema(&load), columns).unwrap()
    };
    let batches =
        [rows.of(&answer(vec![Some("0"), None]), None).unwrap(), rows.of(&answer(vec![Some("1")]), None).unwrap()];
    expect![[r#"
        +--------+------+------+------+------+-----------------------------+-------+-----------+
        | metric | host | node | core | rank | ts                          | value | value_int |
        +--------+------+------+------+------+-----------------------------+-------+-----------+
        | load   | a    | n1   | 0    |      | 1970-01-01T00:00:00Z        | 0.5   |           |
        | load   | a    | n1   |      |      | 1970-01-01T00:00:00.000001Z | 0.5   |           |
        | load   | a    | n1   | 1    |      | 1970-01-01T00:00:00Z        | 0.5   |           |
        +--------+------+------+------+------+-----------------------------+-------+-----------+"#]]
    .assert_eq(&pretty_format_batches(&batches).unwrap().to_string());
}
