//! The output of `telem info`, and its view for DuckDB.

use expect_test::{Expect, expect};
use serde_json::json;
use telem_engine::{CacheFigures, WrittenFigures};

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
        clients_dropped: None,
        segment_files: segments.iter().map(|name| format!("/d/segments/{name}.parquet").into()).collect(),
        series_files: vec!["/d/series/000001.parquet".into()],
        job: None,
        shared_jobs: Vec::new(),
        storage: None,
        memory: None,
        by_metric: Vec::new(),
        inventory: Vec::new(),
        energy: Vec::new(),
        energy_left_out: false,
        databases: Vec::new(),
        unopened: Vec::new(),
    }
}

fn storage() -> Storage {
    Storage {
        segments_hour: 24,
        segments_day: 3,
        segment_bytes: 1_900_000,
        space_amplification: Some(1.053),
        ..Storage::default()
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
            node       n1
            samples    1,234,567, 2.0 MB on disk
            series     1,000 of 3 metrics
            time       2026-01-01 00:00:00 to 2026-01-02 00:00:00 UTC
            database   /data/o'brien (read-only)"#]],
    );
}

#[test]
fn what_storing_costs_is_said_as_far_as_it_is_known() {
    let of_a_directory = Info { storage: Some(storage()), ..info(&["a", "b"]) };
    check(
        &of_a_directory.storage_lines(),
        &expect![[r#"
            samples    1,234,567, 567 of them not in a segment yet
            bytes      2,000,000, 1.50 a flushed sample, 150,000 in the WAL
            segments   2: 24 of an hour, 3 of a day, 0 of more
            space      1.05 bytes on disk a byte of segments"#]],
    );
    let written = WrittenFigures {
        wal_bytes: 9_000_000,
        flush_bytes: 1_000_000,
        merge_bytes: 2_100_000,
        merges: 31,
        segments_merged: 99,
        segments_dropped: 2,
        samples_dropped: 123_456,
        bytes_dropped: 150_000,
    };
    let cache = CacheFigures { hits: 12_345, misses: 67, evictions: 0, segments: 27, bytes: 80_000 };
    let of_a_server = Storage { write_amplification: Some(12.1), written: Some(written), cache, ..storage() };
    let json = serde_json::to_value(&of_a_server).unwrap();
    assert_eq!((&json["written"]["merges"], &json["cache"]["hits"]), (&json!(31), &json!(12_345)));
    check(
        &Info { storage: Some(of_a_server), ..info(&[]) }.storage_lines(),
        &expect![[r#"
            samples    1,234,567, 567 of them not in a segment yet
            bytes      2,000,000, 1.50 a flushed sample, 150,000 in the WAL
            segments   0: 24 of an hour, 3 of a day, 0 of more
            space      1.05 bytes on disk a byte of segments
            written    12.10 bytes a flushed byte: 9,000,000 to the WAL, 1,000,000 by flushes, 2,100,000 by 31 merges
            dropped    2 segments with 123,456 samples
            cache      12,345 hits, 67 misses, 0 evictions, 80,000 bytes of 27 segments"#]],
    );
}

#[test]
fn an_empty_database_says_so() {
    let empty = Info { samples: 0, samples_unflushed: 0, first: None, last: None, ..info(&[]) };
    assert!(empty.to_string().contains("no samples"));
}

#[test]
fn a_job_leads_with_how_it_went() {
    let job = |more: serde_json::Value| {
        let mut job = json!({"id": "77", "command": ["python", "train.py"], "start": "2026-01-01T00:00:00.5Z"});
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Info { job: Some(job), ..info(&[]) }
    };
    let ended = |more: serde_json::Value| {
        let mut more = more;
        more["end"] = "2026-01-01T00:02:03.6Z".into();
        job(more).to_string().lines().take(4).collect::<Vec<_>>().join("\n")
    };
    check(
        &[
            ended(json!({"exit_code": 0})),
            ended(json!({"exit_code": 3})),
            ended(json!({"signal": 9})),
            ended(json!({})),
            job(json!({})).to_string(),
            Info { version: Some("0.1.0".to_owned()), read_only: false, level: Some(2), ..job(json!({})) }.to_string(),
            Info { job: Some(json!({"id": 1, "start": "yesterday"})), ..info(&[]) }.to_string(),
        ]
        .join("\n\n"),
        &expect![[r#"
            job        77: python train.py
            state      ended with exit code 0 after 2 min 3 s
            began      2026-01-01 00:00:00 UTC
            node       n1

            job        77: python train.py
            state      ended with exit code 3 after 2 min 3 s
            began      2026-01-01 00:00:00 UTC
            node       n1

            job        77: python train.py
            state      killed by signal 9 after 2 min 3 s
            began      2026-01-01 00:00:00 UTC
            node       n1

            job        77: python train.py
            state      ended (how is not recorded) after 2 min 3 s
            began      2026-01-01 00:00:00 UTC
            node       n1

            job        77: python train.py
            state      no end is recorded: it was killed, or it runs; last sample after 1 d 0 h
            began      2026-01-01 00:00:00 UTC
            node       n1
            samples    1,234,567, 2.0 MB on disk
            series     1,000 of 3 metrics
            time       2026-01-01 00:00:00 to 2026-01-02 00:00:00 UTC
            database   /data/o'brien (read-only)

            job        77: python train.py
            state      running for 1 d 0 h
            began      2026-01-01 00:00:00 UTC
            node       n1
            samples    1,234,567, 2.0 MB on disk
            series     1,000 of 3 metrics
            time       2026-01-01 00:00:00 to 2026-01-02 00:00:00 UTC
            database   /data/o'brien
            server     telem 0.1.0, level 2

            job        (without an id)
            state      no end is recorded: it was killed, or it runs
            began      yesterday
            node       n1
            samples    1,234,567, 2.0 MB on disk
            series     1,000 of 3 metrics
            time       2026-01-01 00:00:00 to 2026-01-02 00:00:00 UTC
            database   /data/o'brien (read-only)"#]],
    );
}

#[test]
fn metrics_of_the_job_stand_before_those_of_telem() {
    let figures = |metric: &str, unit: Option<&str>, samples, range: Option<(f64, f64)>| MetricFigures {
        metric: metric.to_owned(),
        unit: unit.map(str::to_owned),
        kind: telem_engine::MetricKind::Gauge,
        series: 2,
        samples,
        min: range.map(|(min, _)| min),
        max: range.map(|(_, max)| max),
    };
    let metrics = [
        figures("node_load1", Some("threads"), 1_234_567, Some((0.0, 2.345_678_91))),
        figures("node_memory_MemFree_bytes", Some("bytes"), 24, Some((22_389.0, 25_769_803_776.0))),
        figures("train.loss", None, 1_000, Some((-0.5, 1e-9))),
        figures("train.nan", None, 7, None),
    ];
    let lines = |metrics_max| MetricLines { metrics: &metrics, metrics_max }.to_string();
    check(
        &lines(9),
        &expect![[r#"

        metric                     unit     series    samples      min      max
        train.loss                               2      1,000     -0.5     1e-9
        train.nan                                2          7        -        -
        node_load1                 threads       2  1,234,567        0  2.34568
        node_memory_MemFree_bytes  bytes         2         24  22.4 kB  25.8 GB"#]],
    );
    assert!(lines(3).ends_with("\nand 1 more metrics, which `telem info ... | less` shows"), "{}", lines(3));
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
        -- In the WAL, and in no segment yet: 567 samples, which this view does not see. All is flushed when
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
          QUALIFY row_number() OVER (PARTITION BY series, ts ORDER BY list_position([
            '/d/segments/20260101T010000Z-20260101T015959Z-000002.parquet',
            '/d/segments/20260101T010000Z-20260101T015959Z-000007.parquet'], filename) DESC) = 1
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
fn a_run_is_shown_with_its_name_its_settings_and_its_tags() {
    let many: serde_json::Map<_, _> = (0..30).map(|at| (format!("k{at:02}"), json!(at))).collect();
    let job = json!({"id": "77", "name": "large\u{1b}[2J lr", "settings": many, "tags": {"sweep": "7", "by": "ada"}});
    let text = Info { job: Some(job), ..info(&[]) }.to_string();
    assert!(text.contains("name       large\u{fffd}[2J lr\n"), "{text}");
    assert!(text.contains("settings   k00=0, k01=1, ") && text.contains("k19=19, and 10 more\n"), "{text}");
    assert!(text.contains("tags       sweep=7, by=ada\n"), "{text}");
}

#[test]
fn without_segments_the_view_has_its_columns_and_no_rows() {
    let view = duckdb::view(&Info { series_files: Vec::new(), ..info(&[]) });
    assert!(view.contains("WHERE false") && !view.contains("read_parquet"), "{view}");
}

fn two() -> Info {
    let one = |node: &str, job: serde_json::Value| Info {
        data: format!("/saves/trial/{node}").into(),
        node: node.to_owned(),
        job: Some(job),
        segment_files: vec![format!("/d/{node}/20260101T000000Z-20260101T005959Z-000001.parquet").into()],
        series_files: vec![format!("/d/{node}/000001.parquet").into()],
        ..info(&[])
    };
    let job = json!({"id": "77", "command": ["python", "train.py", "--name", "it's a\u{1b}[2J"], "start": "S", "end": "E", "exit_code": 3});
    let other = json!({"id": "78", "start": "S"});
    let databases = vec![one("n1", job.clone()), one("n2", job), one("n1-2", other.clone())];
    Info { data: "/saves".into(), node: "n1,n2".to_owned(), databases, job: Some(other), ..info(&["a"]) }
}

#[test]
fn several_databases_are_summed_up_and_each_is_a_line() {
    check(
        &two().to_string(),
        &expect![[r#"
            job        77: python train.py --name 'it'\''s a�[2J'
            state      ended with exit code 3
            began      S
            nodes      2: n[1-2]
            job        78
            state      no end is recorded: it was killed, or it runs
            began      S
            node       n1-2
            nodes      2: n[1-2]
            samples    1,234,567, 2.0 MB on disk
            series     1,000 of 3 metrics
            time       2026-01-01 00:00:00 to 2026-01-02 00:00:00 UTC
            databases  3 in /saves (read-only)
              trial/n1: node n1, 1,234,567 samples, 1,000 series, 2.0 MB, 2026-01-01 00:00:00 to 2026-01-02 00:00:00 UTC
              trial/n2: node n2, 1,234,567 samples, 1,000 series, 2.0 MB, 2026-01-01 00:00:00 to 2026-01-02 00:00:00 UTC
              trial/n1-2: node n1-2, 1,234,567 samples, 1,000 series, 2.0 MB, 2026-01-01 00:00:00 to 2026-01-02 00:00:00 UTC"#]],
    );
}

#[test]
fn a_job_of_many_databases_is_one_and_runs_with_its_id_are_others() {
    let mere = |id: &str| serde_json::json!({"id": id});
    let run = |id: &str, start: &str| serde_json::json!({"id": id, "command": ["a.out"], "start": start});
    let [early, late] = ["2026-01-05T10:00:00Z", "2026-01-05T11:00:00Z"];
    let nodes = |described: &[(&str, Json)]| {
        let jobs = job::jobs_of(described.iter().map(|(node, job)| (*node, job)));
        jobs.iter().map(|job| (job.job()["start"].clone(), job.nodes().join(","))).collect::<Vec<_>>()
    };
    let check = |described: &[(&str, Json)], expected: &[(Json, &str)]| {
        let expected: Vec<_> = expected.iter().map(|(start, nodes)| (start.clone(), (*nodes).to_owned())).collect();
        assert_eq!(nodes(described), expected, "{described:?}");
    };
    // Agents know the id alone, whether the head's database comes before theirs or after.
    check(&[("n1", mere("7")), ("n0", run("7", early)), ("n2", mere("7"))], &[(early.into(), "n1,n0,n2")]);
    // The second run of an allocation is one of its own, and whoever knows the id alone means the first.
    check(
        &[
            ("n1", mere("7")),
            ("n0", run("7", early)),
            ("n0", run("7", late)),
            ("n1", mere("7")),
            ("n3", run("7", late)),
        ],
        &[(early.into(), "n1,n0"), (late.into(), "n0,n3")],
    );
    check(
        &[("n1", mere("7")), ("n1", mere("8")), ("n1", Json::Null)],
        &std::array::from_fn::<_, 3, _>(|_| (Json::Null, "n1")),
    );
}

#[test]
fn a_job_is_shown_as_far_as_it_is_described() {
    for (job, expected) in [
        (json!({}), "(without an id)"),
        (json!({"id": "1", "command": "not a list", "exit_code": "none"}), "1"),
        (
            json!({"id": "1", "command": ["", "a b"], "start": "S", "end": "E", "signal": 9}),
            "1: '' 'a b'; S to E, killed by signal 9",
        ),
        (json!([1, 2]), "(without an id)"),
    ] {
        assert_eq!(job::jobs(&Info { job: Some(job), ..info(&[]) }), [expected]);
    }
}

#[test]
fn json_holds_the_sum_and_every_database_and_older_answers_are_understood() {
    let json = serde_json::to_value(two()).unwrap();
    assert_eq!((&json["node"], json["databases"].as_array().unwrap().len()), (&json!("n1,n2"), 3));
    assert_eq!((&json["databases"][2]["job"]["id"], &json["job"]["id"]), (&json!("78"), &json!("78")));
    assert!(json["databases"][0].get("databases").is_none());
    let mut older = serde_json::to_value(info(&[])).unwrap();
    for name in ["job", "databases", "storage", "by_metric"] {
        older.as_object_mut().unwrap().remove(name);
    }
    assert_eq!(serde_json::from_value::<Info>(older).unwrap(), info(&[]));
}

#[test]
fn the_view_of_several_databases_makes_equal_keys_one_series_of_the_last() {
    check(
        &duckdb::view(&two()),
        &expect![[r#"
        -- The samples of /saves, for DuckDB: duckdb -init FILE
        -- Made from the segments of this moment; make it again when there are new ones.
        -- In the WAL, and in no segment yet: 567 samples, which this view does not see. All is flushed when
        -- the server stops, and while it runs from time to time.
        CREATE OR REPLACE VIEW samples AS
        WITH known AS (
          SELECT 0 AS place, 'n1' AS node, id, metric, tags FROM read_parquet([
            '/d/n1/000001.parquet'])
          UNION ALL
          SELECT 1 AS place, 'n2' AS node, id, metric, tags FROM read_parquet([
            '/d/n2/000001.parquet'])
          UNION ALL
          SELECT 2 AS place, 'n1-2' AS node, id, metric, tags FROM read_parquet([
            '/d/n1-2/000001.parquet'])
        ), k AS (
          SELECT place, id, metric, tags, count(*) OVER same AS databases, arg_max(node, place) OVER same AS node
          FROM known WINDOW same AS (PARTITION BY metric, tags)
        ), r AS (
          SELECT 0 AS place, * FROM (
          SELECT series, ts, "int", scale, "float" FROM read_parquet([
            '/d/n1/20260101T000000Z-20260101T005959Z-000001.parquet'])
          )
          UNION ALL
          SELECT 1 AS place, * FROM (
          SELECT series, ts, "int", scale, "float" FROM read_parquet([
            '/d/n2/20260101T000000Z-20260101T005959Z-000001.parquet'])
          )
          UNION ALL
          SELECT 2 AS place, * FROM (
          SELECT series, ts, "int", scale, "float" FROM read_parquet([
            '/d/n1-2/20260101T000000Z-20260101T005959Z-000001.parquet'])
          )
        )
        SELECT k.metric, map_extract(k.tags, 'host')[1] AS host,
               k.node AS node, k.tags, r.ts,
               CASE WHEN r."float" IS NOT NULL THEN r."float"
                    WHEN r.scale IS NULL THEN CAST(r."int" AS DOUBLE)
                    ELSE CAST(r."int" AS DOUBLE) / pow(10.0, r.scale) END AS value,
               CASE WHEN r."float" IS NULL AND r.scale IS NULL THEN r."int" END AS value_int
        FROM r JOIN k ON k.place = r.place AND k.id = r.series WHERE k.databases = 1
        UNION ALL
        SELECT k.metric, map_extract(k.tags, 'host')[1] AS host,
               k.node AS node, k.tags, r.ts,
               CASE WHEN r."float" IS NOT NULL THEN r."float"
                    WHEN r.scale IS NULL THEN CAST(r."int" AS DOUBLE)
                    ELSE CAST(r."int" AS DOUBLE) / pow(10.0, r.scale) END AS value,
               CASE WHEN r."float" IS NULL AND r.scale IS NULL THEN r."int" END AS value_int
        FROM r JOIN k ON k.place = r.place AND k.id = r.series WHERE k.databases > 1
        QUALIFY row_number() OVER (PARTITION BY k.metric, k.tags, r.ts ORDER BY r.place DESC) = 1;
    "#]],
    );
}

#[test]
fn a_database_that_could_not_be_opened_is_named_with_the_reason() {
    let error = telem_engine::Error::EmptyName { what: "a name" };
    let unopened = [UnopenedDatabase { dir: "/data/o'brien/n3".into(), error }];
    let text = info(&["a"]).without(&unopened).to_string();
    assert!(text.contains("\n  n3: LEFT OUT, "), "{text}");
    let json = serde_json::to_value(info(&["a"]).without(&unopened)).unwrap();
    assert_eq!(json["unopened"][0]["data"], "/data/o'brien/n3");
}

#[test]
fn energy_that_takes_too_long_is_left_out_and_that_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), telem_engine::Options::default()).unwrap();
    let clock = telem_engine::SystemClock::new();
    assert!(!Info::with_metrics(&db, &clock, &|| false).unwrap().energy_left_out);
    let stopped = Info::with_metrics(&db, &clock, &|| true).unwrap();
    assert!(stopped.energy_left_out && stopped.energy.is_empty());
    let told = stopped.to_string();
    assert!(told.contains("energy     not known within 10 s: `SELECT * FROM job_energy` has it, by job\n"), "{told}");
}
