//! What columns and cells are taken for.

use super::*;

fn columns(names: &[&str]) -> Vec<(String, ColumnKind)> {
    names.iter().map(|name| ((*name).to_owned(), ColumnKind::Number)).collect()
}

#[test]
fn layouts_are_told_by_the_columns_and_by_the_user() {
    let export = columns(&["metric", "host", "node", "rank", "ts", "value", "value_int"]);
    let none = TableRules::default();
    let told = TableRules { metric: Some("name".to_owned()), ..TableRules::default() };
    assert_eq!(layout(&export, &none), ImportLayout::Export);
    assert_eq!(layout(&export, &told), ImportLayout::Long);
    assert_eq!(layout(&columns(&["ts", "metric", "value"]), &none), ImportLayout::Long);
    assert_eq!(layout(&columns(&["ts", "value"]), &none), ImportLayout::Wide);
}

#[test]
fn the_time_is_found_by_name_and_by_kind() {
    let none = TableRules::default();
    let find = |columns: &[(String, ColumnKind)]| time_column(columns, &none, ImportLayout::Wide);
    assert_eq!(find(&columns(&["x", "Time"])), Ok(1));
    assert_eq!(find(&columns(&["time", "ts"])), Ok(1));
    let mut dates = columns(&["x", "when", "y"]);
    assert!(find(&dates).unwrap_err().contains("name it with --time; there are x, when, y"));
    dates[1].1 = ColumnKind::Time;
    assert_eq!(find(&dates), Ok(1));
    dates[2].1 = ColumnKind::Time;
    assert!(find(&dates).is_err(), "one of two");
}

#[test]
fn columns_of_an_export_are_the_tags_that_they_were() {
    for (column, expected) in
        [("rank", "rank"), ("tag_node", "node"), ("tag_tag_Value", "tag_Value"), ("tag_rank", "tag_rank")]
    {
        assert!(matches!(export_role(column), ColumnRole::Tag { key, .. } if key == expected), "{column}");
    }
}

#[test]
fn most_cells_say_what_a_column_is() {
    let kind = |cells: &[&str]| {
        let mut counts = KindCounts::default();
        cells.iter().for_each(|text| counts.add(kind_of_text(text)));
        counts.kind()
    };
    assert_eq!(kind(&["1", "2.5", "", "oops"]), ColumnKind::Number);
    assert_eq!(kind(&["a", "1", "b"]), ColumnKind::Text);
    assert_eq!(kind(&["2026-01-01", "NA"]), ColumnKind::Time);
    assert_eq!(kind(&["", "None"]), ColumnKind::Empty);
}

#[test]
fn numbers_are_exact() {
    for (text, expected) in [
        ("9223372036854775807", Value::Int(i64::MAX)),
        ("+7", Value::Int(7)),
        ("0.1", Value::Float(0.1)),
        ("-0.0", Value::Float(-0.0)),
        ("1e3", Value::Float(1_000.0)),
        ("5e-324", Value::Float(5e-324)),
        ("-inf", Value::Float(f64::NEG_INFINITY)),
    ] {
        assert_eq!(number(&Cell::Text(text)), Ok(Some(expected)), "{text}");
    }
    assert_eq!(
        number(&Cell::Text("9223372036854775808")),
        Err("9223372036854775808, an integer beyond 64 bits".to_owned())
    );
    assert!(number(&Cell::Text("0x10")).is_err() && number(&Cell::Time(1)).is_err());
}
