//! What `telem info` says, and the view it gives DuckDB.

use expect_test::{Expect, expect};

use super::*;

fn info(segments: &[&str]) -> Info {
    Info {
        data: "/data/o'brien".into(),
        node: "n1".to_owned(),
        database: "0123".to_owned(),
        metrics: 3,
        series: 1_000,
        samples: 1_234_567,
        samples_unflushed: 567,
        bytes: 2_000_000,
        wal_bytes: 150_000,
        first: Some("2026-01-01T00:00:00Z".to_owned()),
        last: Some("2026-01-02T00:00:00.500Z".to_owned()),
        read_only: true,
        version: None,
        level: None,
        segment_files: segments.iter().map(|name| format!("/d/segments/{name}.parquet").into()).collect(),
        series_files: vec!["/d/series/000001.parquet".into()],
    }
}

fn check(text: &str, expected: &Expect) {
    expected.assert_eq(text);
}

#[test]
fn info_is_one_line_a_fact() {
    check(
        &info(&["a", "b"]).to_string(),
        &expect![[r#"
        database   /data/o'brien (read-only)
        node       n1
        metrics    3
        series     1,000
        samples    1,234,567, 567 of them not in a segment yet
        bytes      2,000,000, 1.50 a flushed sample, 150,000 in the WAL
        time       2026-01-01T00:00:00Z to 2026-01-02T00:00:00.500Z
        segments   2"#]],
    );
}

#[test]
fn an_empty_database_says_so() {
    let empty = Info { samples: 0, samples_unflushed: 0, first: None, last: None, ..info(&[]) };
    assert!(empty.to_string().contains("no samples"));
}

#[test]
fn numbers_are_grouped_by_thousands() {
    for (number, expected) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
        assert_eq!(grouped(number), expected);
    }
}

#[test]
fn the_view_looks_for_repeated_samples_only_where_segments_share_a_window() {
    let view = duckdb::view(&info(&[
        "20260101T000000Z-20260101T005959Z-000001",
        "20260101T010000Z-20260101T015959Z-000002",
        "20260101T010000Z-20260101T015959Z-000007",
    ]));
    check(
        &view,
        &expect![[r#"
        -- The samples of /data/o'brien, for DuckDB: duckdb -init FILE
        -- Made from the segments of this moment; make it again when there are new ones.
        -- 567 samples are in the WAL and in no segment yet: this view does not see them. They are flushed when
        -- the server stops, and while it runs from time to time.
        CREATE OR REPLACE VIEW samples AS
        SELECT k.metric, map_extract(k.tags, 'host')[1] AS host,
               'n1' AS node, k.tags, r.ts,
               CASE WHEN r."float" IS NOT NULL THEN r."float"
                    WHEN r.scale IS NULL THEN CAST(r."int" AS DOUBLE)
                    ELSE CAST(r."int" AS DOUBLE) / pow(10.0, r.scale) END AS value,
               CASE WHEN r."float" IS NULL AND r.scale IS NULL THEN r."int" END AS value_int
        FROM (
          SELECT series, ts, "int", scale, "float" FROM read_parquet([
            '/d/segments/20260101T000000Z-20260101T005959Z-000001.parquet'])
          UNION ALL
          SELECT series, ts, "int", scale, "float" FROM read_parquet([
            '/d/segments/20260101T010000Z-20260101T015959Z-000002.parquet',
            '/d/segments/20260101T010000Z-20260101T015959Z-000007.parquet'], filename = true)
          QUALIFY row_number() OVER (PARTITION BY series, ts
            ORDER BY CAST(regexp_extract(filename, '([0-9]+)\.parquet$', 1) AS UBIGINT) DESC) = 1
        ) r JOIN read_parquet([
            '/d/series/000001.parquet']) k ON k.id = r.series;
    "#]],
    );
}

#[test]
fn a_segment_whose_name_says_nothing_is_searched_with_all_others() {
    let view = duckdb::view(&info(&[
        "-8000000000000000--7fffffff00000000-000003",
        "20260101T000000Z-20260101T005959Z-000001",
    ]));
    assert!(view.contains("QUALIFY") && !view.contains("UNION ALL"), "{view}");
}

#[test]
fn without_segments_the_view_has_its_columns_and_no_rows() {
    let view = duckdb::view(&Info { series_files: Vec::new(), ..info(&[]) });
    assert!(view.contains("WHERE false") && !view.contains("read_parquet"), "{view}");
}
