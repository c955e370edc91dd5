//! The appearance of a table, wide and narrow.

use std::io::Write;
use std::sync::{Arc, Mutex};

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringViewArray, TimestampMicrosecondArray,
};
use expect_test::{Expect, expect};

use super::*;

/// What was written.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn table(batches: &[RecordBatch], options: TableOptions) -> (String, Vec<String>) {
    let paper = Paper::default();
    let mut table = TextTable::new(&batches[0].schema(), options, Box::new(paper.clone()));
    for batch in batches {
        table.batch(batch).unwrap();
    }
    if table.more == 0 {
        table.end().unwrap();
    }
    let notes = table.notes(Counted::All);
    (String::from_utf8(paper.0.lock().unwrap().clone()).unwrap(), notes)
}

fn check(batch: &RecordBatch, width: Option<usize>, expected: &Expect) {
    let (text, notes) = table(std::slice::from_ref(batch), TableOptions { width, ..TableOptions::of_file(None) });
    if let Some(width) = width {
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
    }
    expected.assert_eq(&format!("{text}{}", notes.concat()));
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

fn times(micros: Vec<Option<i64>>) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from(micros).with_timezone("UTC"))
}

fn text(values: Vec<Option<&str>>) -> ArrayRef {
    Arc::new(StringViewArray::from(values))
}

fn floats(values: Vec<Option<f64>>) -> ArrayRef {
    Arc::new(Float64Array::from(values))
}

#[test]
fn numbers_stand_on_the_right_at_their_points_times_are_short_and_null_is_seen() {
    let start = 1_767_225_600_000_000;
    check(
        &batch(vec![
            ("ts", times(vec![Some(start), Some(start + 500_000), None, Some(start + 60_000_000)])),
            ("host", text(vec![Some("n1"), None, Some("n10"), Some("a\u{1b}[2J")])),
            ("value", floats(vec![Some(91.666_666_7), Some(100.0), Some(0.1 + 0.2), None])),
            ("rows", Arc::new(Int64Array::from(vec![Some(1), Some(1_234_567), None, Some(-5)]))),
            ("up", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, Some(true)]))),
        ]),
        None,
        &expect![[r#"
            +-------------------------+-------+----------+---------+-------+
            | ts                      | host  |    value |    rows | up    |
            +-------------------------+-------+----------+---------+-------+
            | 2026-01-01 00:00:00.000 | n1    |  91.6667 |       1 | true  |
            | 2026-01-01 00:00:00.500 | NULL  | 100      | 1234567 | false |
            | NULL                    | n10   |   0.3    |    NULL | NULL  |
            | 2026-01-01 00:01:00.000 | a�[2J |     NULL |      -5 | true  |
            +-------------------------+-------+----------+---------+-------+
        "#]],
    );
}

#[test]
fn times_have_the_decimals_that_one_of_them_needs() {
    for (micros, expected) in [(0, "1970-01-01 00:00:00 "), (1_000, ":00.001 "), (1, ":00.000001 ")] {
        let (shown, _) = table(&[batch(vec![("ts", times(vec![Some(0), Some(micros)]))])], wide(usize::MAX));
        assert!(shown.contains(expected), "{shown}");
    }
    let (shown, _) = table(&[batch(vec![("ts", times(vec![Some(i64::MAX - 1)]))])], wide(usize::MAX));
    assert!(shown.contains("9223372036854775806"), "{shown}");
}

fn wide(rows_max: usize) -> TableOptions {
    TableOptions::of_file(Some(rows_max))
}

fn many_columns() -> RecordBatch {
    let long = "a text that is much longer than a terminal has room for, as the help of a metric is";
    batch(vec![
        ("ts", times(vec![Some(0), Some(1_000_000)])),
        ("metric", text(vec![Some("node_network_receive_bytes_total"), Some("load")])),
        ("help", text(vec![Some(long), None])),
        ("avg(node_network_receive_bytes_total.value)", floats(vec![Some(1_234_567.25), Some(0.5)])),
    ])
}

#[test]
fn on_a_terminal_text_and_names_are_cut_and_numbers_and_times_are_not() {
    check(
        &many_columns(),
        Some(80),
        &expect![[r#"
            +---------------------+------------------+------------------+------------------+
            | ts                  | metric           | help             | avg(node_networ… |
            +---------------------+------------------+------------------+------------------+
            | 1970-01-01 00:00:00 | node_network_re… | a text that is … |       1234567.25 |
            | 1970-01-01 00:00:01 | load             | NULL             |             0.5  |
            +---------------------+------------------+------------------+------------------+
        "#]],
    );
}

#[test]
fn columns_that_have_no_room_are_named() {
    check(
        &many_columns(),
        Some(45),
        &expect![[r#"
            +---------------------+---+-----------------+
            | ts                  | … | avg(node_netwo… |
            +---------------------+---+-----------------+
            | 1970-01-01 00:00:00 | … |      1234567.25 |
            | 1970-01-01 00:00:01 | … |            0.5  |
            +---------------------+---+-----------------+
            the terminal has no room for these columns: metric, help; name the columns that you want, or --format csv"#]],
    );
}

/// All columns of one sample.
fn sample() -> RecordBatch {
    batch(vec![
        ("metric", text(vec![Some("node_memory_AnonPages_bytes")])),
        ("host", text(vec![Some("vm")])),
        ("node", text(vec![Some("vm")])),
        ("tags", text(vec![Some("{host: vm}")])),
        ("ts", times(vec![Some(1_767_225_600_100_000)])),
        ("value", floats(vec![Some(629_260_288.0)])),
        ("value_int", Arc::new(Int64Array::from(vec![Some(629_260_288)]))),
    ])
}

#[test]
fn a_value_is_the_last_to_go_and_its_time_the_one_before() {
    check(
        &sample(),
        Some(60),
        &expect![[r#"
            +----------------+---+-------------------------+-----------+
            | metric         | … | ts                      |     value |
            +----------------+---+-------------------------+-----------+
            | node_memory_A… | … | 2026-01-01 00:00:00.100 | 629260288 |
            +----------------+---+-------------------------+-----------+
            the terminal has no room for these columns: host, node, tags, value_int; name the columns that you want, or --format csv"#]],
    );
    for (width, left) in [(50, "| … | ts                      |     value |"), (40, "| … |     value |")] {
        let (text, _) = table(&[sample()], TableOptions { width: Some(width), ..TableOptions::of_file(None) });
        assert!(text.contains(left) && text.lines().all(|line| line.chars().count() <= width), "{text}");
    }
}

#[test]
fn a_time_stays_where_text_can_go() {
    let (text, notes) = table(&[sample()], TableOptions { width: Some(80), ..TableOptions::of_file(Some(9)) });
    assert!(
        text.contains("| 2026-01-01 00:00:00.100 |") && text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert_eq!(
        notes,
        ["the terminal has no room for this column: tags; name the columns that you want, or --format csv"]
    );
}

#[test]
fn a_column_that_must_be_whole_is_and_those_that_matter_least_go_first() {
    let runs = batch(vec![
        ("run", text(vec![Some("telem-20261127-231920-18638"), Some("telem-20261127-231904-18045")])),
        ("name", text(vec![Some("lr 3e-4"), None])),
        ("took", text(vec![Some("3.1 s"), Some("0.1 s")])),
        ("state", text(vec![Some("completed"), Some("failed")])),
        ("nodes", Arc::new(Int64Array::from(vec![Some(1), Some(1)]))),
        ("bytes", text(vec![Some("42.6 kB"), Some("40.3 kB")])),
    ]);
    let columns = TableColumns {
        whole: &["run"],
        first_to_go: &["bytes", "nodes", "took"],
        last_to_go: &[],
        hint: "--json has all",
    };
    let (text, notes) = table(&[runs], TableOptions { rows_max: usize::MAX, width: Some(60), columns });
    expect![[r#"
        +-----------------------------+---------+---+-----------+
        | run                         | name    | … | state     |
        +-----------------------------+---------+---+-----------+
        | telem-20261127-231920-18638 | lr 3e-4 | … | completed |
        | telem-20261127-231904-18045 | NULL    | … | failed    |
        +-----------------------------+---------+---+-----------+
    "#]]
    .assert_eq(&text);
    assert_eq!(notes, ["the terminal has no room for these columns: took, nodes, bytes; --json has all"]);
}

#[test]
fn text_of_several_lines_is_wrapped() {
    check(
        &batch(vec![
            ("plan", text(vec![Some("AggregateExec: gby=[]\n  LeafExec: samples")])),
            ("n", floats(vec![None])),
        ]),
        Some(28),
        &expect![[r#"
            +-------------------+------+
            | plan              |    n |
            +-------------------+------+
            | AggregateExec: gb | NULL |
            | y=[]              |      |
            |   LeafExec: sampl |      |
            | es                |      |
            +-------------------+------+
        "#]],
    );
}

#[test]
fn what_comes_after_the_widths_are_set_is_whole_all_the_same() {
    let numbers = |values: Vec<i64>| batch(vec![("n", Arc::new(Int64Array::from(values)) as ArrayRef)]);
    let (text, _) = table(&[numbers(vec![1; BLOCK_ROWS]), numbers(vec![1_234_567])], wide(usize::MAX));
    assert_eq!(text.lines().count(), BLOCK_ROWS + 1 + 4);
    assert!(text.contains("| 1234567 |"), "{text}");
}

#[test]
fn the_first_rows_are_shown_and_how_many_there_are_is_said() {
    let numbers = |values: Vec<i64>| batch(vec![("n", Arc::new(Int64Array::from(values)) as ArrayRef)]);
    let batches = [numbers(vec![1, 2]), numbers(vec![3, 4, 5]), numbers(vec![6; 2_000])];
    let (text, notes) = table(&batches, wide(3));
    assert_eq!(text, "+---+\n| n |\n+---+\n| 1 |\n| 2 |\n| 3 |\n+---+\n");
    assert_eq!(notes, ["the first 3 of 2,005 rows; --rows-max N shows more, --format csv all"]);
    assert!(table(&batches[..1], wide(2)).1.is_empty());
}

#[test]
fn an_answer_without_rows_shows_its_columns() {
    let (text, notes) = table(&[batch(vec![("n", floats(vec![])), ("host", text(vec![]))])], wide(3));
    assert_eq!(text, "+---+------+\n| n | host |\n+---+------+\n+---+------+\n");
    assert!(notes.is_empty());
}
