//! Runs with one thing wrong that was put there: the report names it, with its figure, and nothing else. A clean run has no
//! warnings.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use clap::ValueEnum;
use proptest::prelude::*;
use telem_engine::{
    Db, DeviceKind, Durability, InventoryEntry, Options, SampleBatch, SeriesKey, TagSet, Timestamp, Value,
};

use super::robust::{median, outlier, slope};
use super::warnings::WarningCode;
use super::*;
use crate::testing::first_column;

const SECONDS: i64 = 120;
const BEGIN: i64 = 1_800_000_000;
const GIGABYTE: f64 = 1e9;

/// What is wrong with a run of four nodes and eight ranks. Also where nothing is, rank 3 grows in its first seconds, as
/// every program does that reads its data.
#[derive(Clone, Copy, PartialEq)]
enum Plant {
    Nothing,
    /// Each of a node, rank or GPU of its own: rank 5 takes 1.8 times as long for a step, rank 2 grows by 10 MB a second,
    /// the CPUs of n3 run at half the clock, rank 6 works a fifth of the time, the memory of n4 is full once, n1 swaps and
    /// writes by small pieces, the GPU of n4 is idle.
    Everything,
}

/// Noise that is the same in every run of these tests: within one part in fifty of 1.
fn noise(seed: i64) -> f64 {
    let mixed = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    1.0 + ((mixed >> 40) as f64 / (1_u64 << 24) as f64 - 0.5) / 25.0
}

#[test]
fn the_page_of_runs_lists_every_code() {
    let codes = WarningCode::value_variants().iter().map(|code| serde_json::to_value(code).unwrap());
    let codes: BTreeSet<String> = codes.map(|code| code.as_str().unwrap().to_owned()).collect();
    assert_eq!(BTreeSet::from_iter(first_column("runs.md", "| code |")), codes);
}

fn record(dir: &Path, plant: Plant) {
    let is_planted = plant == Plant::Everything;
    for node in 1..=4_i64 {
        let name = format!("n{node}");
        let db = Db::open(&dir.join(&name), Options { node: name.clone(), ..Options::default() }).unwrap();
        let mut batch = SampleBatch::default();
        let mut put = |metric: &str, tags: &[(&str, &str)], at: i64, value: f64| {
            let tags = TagSet::new(tags.iter().copied().chain([("host", &*name)])).unwrap();
            let series = db.series(&SeriesKey::new(metric, tags).unwrap()).unwrap();
            batch.push(series, Timestamp::from_seconds(BEGIN + at), Value::Float(value));
        };
        for at in 0..SECONDS {
            let seconds = at as f64;
            let noise = |what: i64| noise(at * 1_000 + node * 100 + what);
            for (mode, share) in [("user", 5.5), ("idle", 2.4), ("iowait", 0.1)] {
                put("node_cpu_seconds_total", &[("mode", mode)], at, seconds * share);
            }
            put("cpu_percent", &[], at, 69.0 * noise(1));
            let used = if is_planted && node == 4 && at > 80 { 61.0 } else { 30.0 };
            let leaked = if is_planted && node == 2 { 0.01 * seconds } else { 0.0 };
            put("node_memory_MemTotal_bytes", &[], at, 64.0 * GIGABYTE);
            put("node_memory_MemAvailable_bytes", &[], at, (64.0 - used * noise(2) - leaked) * GIGABYTE);
            put("used_RAM", &[], at, used / 0.64);
            let slow = if is_planted && node == 3 { 0.5 } else { 1.0 };
            put("node_cpu_scaling_frequency_hertz", &[("cpu", "0")], at, 3.0e9 * slow * noise(3));
            let idle = if is_planted && node == 4 { 0.02 } else { 1.0 };
            put("gpu_utilization_percent", &[("gpu", "0")], at, 80.0 * idle * noise(4));
            let swapped = if is_planted && node == 1 { seconds * 10.0 } else { 0.0 };
            put("node_vmstat_pswpout", &[], at, swapped);
            // Another job of this node has a second GPU, which does nothing.
            put("gpu_utilization_percent", &[("gpu", "1")], at, 0.0);
            // A GPU that works is at its limit of power.
            put("gpu_throttled_seconds_total", &[("gpu", "0"), ("reason", "power")], at, seconds * 0.9);
            let writes = if is_planted && node == 1 { 2_000.0 } else { 20.0 };
            put("node_disk_writes_completed_total", &[], at, seconds * writes);
            put("node_disk_written_bytes_total", &[], at, seconds * 20.0 * 100_000.0);
            for rank in [2 * node - 2, 2 * node - 1] {
                let number = rank.to_string();
                let tags = [("rank", &*number), ("pid", &*number), ("comm", "train")];
                let cores = if is_planted && rank == 6 { 0.2 } else { 1.0 };
                put("job_process_cpu_seconds_total", &tags, at, seconds * cores);
                let grown = match rank {
                    2 if is_planted => 0.01 * seconds,
                    3 => 0.15 * seconds.min(20.0),
                    _ => 0.0,
                };
                put("job_process_resident_memory_bytes", &tags, at, (2.0 * noise(10 + rank) + grown) * GIGABYTE);
                let slow = if is_planted && rank == 5 { 1.8 } else { 1.0 };
                put("step_seconds", &[("rank", &number)], at, 0.5 * slow * noise(20 + rank));
                // One rank writes the checkpoints, which nobody else does.
                if rank == 0 {
                    put("step_seconds", &[("rank", &number), ("phase", "checkpoint")], at, 30.0);
                }
                // A tag that is another word for the rank keeps nobody from being compared.
                let worker = format!("w{rank}");
                put("epoch_time", &[("rank", &number), ("worker", &worker)], at, 9.0 * noise(30 + rank));
                // Of no rank it is said that it is worse.
                put("loss", &[("rank", &number)], at, (rank + 1) as f64);
                put("train_mse", &[("rank", &number)], at, if rank == 3 { 0.7 } else { 0.5 });
                put("wait_seconds", &[("rank", &number)], at, if rank == 1 { 1e-7 } else { 0.0 });
            }
        }
        db.append(&batch, Durability::Buffered).unwrap();
        for (gpu, in_job) in [("0", true), ("1", false)] {
            let entry = InventoryEntry { in_job: Some(in_job), ..InventoryEntry::new(DeviceKind::Gpu, gpu) };
            db.put_meta(entry.change(&name), Durability::Buffered).unwrap();
        }
        db.close().unwrap();
    }
}

fn report_on(dir: &Path, more: &[&str]) -> RunReport {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: ReportArgs,
    }
    let line = ["report", dir.to_str().unwrap()].into_iter().chain(more.iter().copied());
    let args = <Line as clap::Parser>::parse_from(line).args;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(report(dir.to_str().unwrap(), &args)).unwrap_or_else(|failure| panic!("{failure:?}"))
}

/// The report on a run in which everything was planted.
fn planted() -> &'static RunReport {
    static REPORT: LazyLock<RunReport> = LazyLock::new(|| {
        let dir = tempfile::tempdir().unwrap();
        record(dir.path(), Plant::Everything);
        report_on(dir.path(), &[])
    });
    &REPORT
}

/// The only warning of this code.
fn warning(code: WarningCode) -> ReportWarning {
    let found: Vec<&ReportWarning> = planted().warnings.iter().filter(|warning| warning.code == code).collect();
    let [one] = &*found else { panic!("{code:?}: {found:?}") };
    (*one).clone()
}

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() <= expected.abs() * 0.03, "{found} is not {expected}");
}

#[test]
fn a_clean_run_has_no_warnings_though_it_begins_by_growing() {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), Plant::Nothing);
    assert_eq!(report_on(dir.path(), &[]).warnings, []);
}

#[test]
fn what_was_planted_is_all_that_is_told() {
    let told: Vec<(WarningCode, &str)> =
        planted().warnings.iter().map(|warning| (warning.code, &*warning.subject)).collect();
    assert_eq!(
        told,
        [
            (WarningCode::MemoryNearlyFull, "node n4"),
            (WarningCode::MemoryLeak, "rank 2 on n2"),
            (WarningCode::Swap, "node n1"),
            (WarningCode::Throttled, "node n3"),
            (WarningCode::Straggler, "rank 5 on n3"),
            (WarningCode::WaitingRank, "rank 6 on n4"),
            (WarningCode::IdleGpu, "GPU 0 on n4"),
            (WarningCode::SmallWrites, "node n1"),
        ]
    );
}

#[test]
fn the_straggler_is_named_with_how_far_it_is_behind() {
    let found = warning(WarningCode::Straggler);
    close(found.value, 0.9);
    close(found.expected, 0.5);
    assert!(found.text.contains("step_seconds") && found.text.contains("1.8"), "{}", found.text);
}

/// Rows of `report_rank_metrics`.
fn rank_rows(rows: &[(&str, serde_json::Value, f64)]) -> ViewAnswers {
    let columns = ["metric", "rank", "node", "tags", "mean", "samples"].map(str::to_owned).to_vec();
    let rows = rows
        .iter()
        .map(|(metric, tags, mean)| {
            vec![json!(metric), tags["rank"].clone(), json!("n1"), tags.clone(), json!(mean), json!(100)]
        })
        .collect();
    ViewAnswers::from([("report_rank_metrics".to_owned(), ReportTable { columns, rows })])
}

#[test]
fn ranks_are_compared_phase_by_phase_whatever_they_are_called_besides() {
    let row = |rank: usize, phase: &str, mean: f64| {
        let tags = json!({"rank": rank.to_string(), "host": "n1", "worker": format!("w{rank}"), "phase": phase});
        ("step_seconds", tags, mean)
    };
    let mut rows: Vec<_> = (0..8).map(|rank| row(rank, "train", 0.5)).collect();
    rows.extend((0..4).map(|rank| row(rank, "eval", 6.0)));
    assert_eq!(warnings::of(&rank_rows(&rows)), [], "half of the ranks evaluate");
    rows[9].2 = 12.0;
    let found = warnings::of(&rank_rows(&rows));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&*found[0].subject, found[0].value, found[0].expected), ("rank 1 on n1", 12.0, 6.0));
    assert!(found[0].text.contains("step_seconds (phase=eval)"), "{}", found[0].text);
}

#[test]
fn a_node_with_nothing_to_do_has_a_low_clock_and_is_not_throttled() {
    let nodes = |columns: [&str; 2], rows: &[(&str, f64)]| ReportTable {
        columns: ["node", columns[0], columns[1]].map(str::to_owned).to_vec(),
        rows: rows.iter().map(|(node, value)| vec![json!(node), json!(value), json!(100)]).collect(),
    };
    let clocks = nodes(["clock_hertz", "samples"], &[("a", 3e9), ("b", 3e9), ("c", 1.2e9), ("d", 3e9)]);
    let warned = |shares: &[(&str, f64)]| {
        let nodes = nodes(["used_share", "samples"], shares);
        let answers = [("report_clocks".to_owned(), clocks.clone()), ("report_nodes".to_owned(), nodes)];
        warnings::of(&ViewAnswers::from(answers)).len()
    };
    assert_eq!(warned(&[("a", 0.9), ("b", 0.9), ("c", 0.1), ("d", 0.9)]), 0);
    assert_eq!(warned(&[("a", 0.9), ("b", 0.9), ("c", 0.8), ("d", 0.9)]), 1);
}

#[test]
fn one_sample_with_a_strange_time_hides_no_leak() {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), Plant::Everything);
    let db = Db::open(&dir.path().join("n2"), Options { node: "n2".to_owned(), ..Options::default() }).unwrap();
    let series = db.series(&SeriesKey::new("odd", TagSet::new([("host", "n2")]).unwrap()).unwrap()).unwrap();
    let mut batch = SampleBatch::default();
    batch.push(series, Timestamp::from_seconds(1), Value::Int(1));
    db.append(&batch, Durability::Buffered).unwrap();
    db.close().unwrap();
    let report = report_on(dir.path(), &[]);
    assert!(report.warnings.iter().any(|warning| warning.code == WarningCode::MemoryLeak), "{:?}", report.warnings);
    assert!(report.answers["report_curves"].rows.len() > 1_000, "the pictures have all their points");
}

#[test]
fn a_leak_is_told_with_its_pace_and_when_it_ends_the_run() {
    let found = warning(WarningCode::MemoryLeak);
    close(found.value, 0.01 * GIGABYTE);
    // 60.8 GB are left.
    assert!(found.text.contains("MB a minute") && found.text.contains("is full after another 1 h 4"), "{}", found.text);
}

#[test]
fn a_lower_clock_is_told_with_that_of_the_others() {
    let found = warning(WarningCode::Throttled);
    close(found.value, 1.5e9);
    close(found.expected, 3.0e9);
}

#[test]
fn a_rank_that_waits_is_told_with_how_much_less_it_did() {
    let found = warning(WarningCode::WaitingRank);
    close(found.value, 0.2);
    assert!(found.text.contains("80 % less"), "{}", found.text);
}

#[test]
fn memory_swap_gpus_and_small_writes_are_told_with_their_amounts() {
    for (code, value) in [
        (WarningCode::MemoryNearlyFull, 0.97),
        (WarningCode::Swap, 1_190.0),
        (WarningCode::IdleGpu, 0.016),
        (WarningCode::SmallWrites, 1_000.0),
    ] {
        close(warning(code).value, value);
    }
}

#[test]
fn the_facts_are_what_was_recorded_in_every_form() {
    let report = planted();
    assert_eq!((report.job.nodes, report.job.duration_us), (4, (SECONDS - 1) * 1_000_000));
    let nodes: Vec<_> = report.answers["report_nodes"].rows().collect();
    assert_eq!(nodes.len(), 4);
    close(nodes[0].number("cores").unwrap(), 8.0);
    close(nodes[0].number("cores_used").unwrap(), 5.5);
    close(nodes[0].number("peak_share").unwrap(), 0.48);
    let ranks: Vec<_> = report.answers["report_ranks"].rows().collect();
    assert_eq!(ranks.len(), 8);
    close(ranks[0].number("cores_used").unwrap(), 1.0);
    let metrics: Vec<_> = report.answers["report_metrics"].rows().filter_map(|row| row.text("metric")).collect();
    assert_eq!(
        metrics,
        ["epoch_time", "loss", "step_seconds", "train_mse", "wait_seconds"],
        "telem's own are left out, and those of exporters"
    );

    let text = text::text(report, None);
    for expected in ["8 warnings\n  ! memory of node n4", "Nodes: cores and memory", "68.8 %", "64.0 GB"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
    assert_eq!(json["warnings"][4]["code"], "straggler");
    assert_eq!(json["views"]["report_nodes"][3]["node"], "n4");
    let markdown = text::markdown(report);
    assert!(markdown.contains("\n| node | cores |") && markdown.contains("\n| --- | ---: |"), "{markdown}");
    let page = html::page(report);
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    // CPU, memory, GPUs, and the ranks' memory.
    assert_eq!(page.matches("<svg").count(), 4, "{page}");
    assert!(!page.contains("http") && page.contains("rank 5 on n3"), "it loads nothing");
}

#[test]
fn a_site_adds_views_of_its_own_and_may_replace_ours() {
    let dir = tempfile::tempdir().unwrap();
    record(&dir.path().join("run"), Plant::Nothing);
    let file = dir.path().join("site.sql");
    let own = "-- Cost of the run\nCREATE VIEW site_cost AS\nSELECT count(DISTINCT node) * 0.5 AS euros FROM series;\n\
               create view report_traffic as select ';' AS nothing FROM nodes LIMIT 1;\n";
    std::fs::write(&file, own).unwrap();
    let report = report_on(&dir.path().join("run"), &["--views", file.to_str().unwrap()]);
    let text = text::text(&report, None);
    assert!(text.contains("Cost of the run\neuros\n2\n"), "{text}");
    assert!(!text.contains("disks and network") && text.contains("report_traffic\nnothing\n;"), "{text}");
}

#[test]
fn a_file_of_views_that_is_none_is_refused_by_its_line() {
    for (text, expected) in [
        ("SELECT 1;\n", "line 1: expected CREATE VIEW name AS"),
        ("-- a\nCREATE VIEW a AS SELECT 1;\nCREATE VIEW a AS SELECT 2;", "line 3: a view 'a' is there already"),
        ("CREATE VIEW a AS\nSELECT 1", "the view 'a' does not end"),
        ("CREATE VIEW é", "line 1"),
    ] {
        let why = view::parse(text, ViewAuthor::User).unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
    assert_eq!(view::parse("", ViewAuthor::User).unwrap(), []);
    assert!(
        view::parse(view::OWN, ViewAuthor::Telem)
            .unwrap()
            .iter()
            .all(|view| view.title != view.name && view.name.starts_with("report_"))
    );
}

#[test]
fn a_section_that_cannot_be_made_is_named_and_the_others_are_there() {
    let dir = tempfile::tempdir().unwrap();
    record(&dir.path().join("run"), Plant::Nothing);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let view = |name: &str, sql: &str, author| ReportView {
        name: name.to_owned(),
        title: format!("of {name}"),
        sql: sql.to_owned(),
        author,
    };
    let ask = |author| {
        let views = [view("bad", "SELECT nothing FROM nodes", author), view("good", "SELECT node FROM nodes", author)];
        let mut source =
            RunSource::open(dir.path().join("run").to_str().unwrap(), StrictArg { strict: false }).unwrap();
        runtime.block_on(read::answers(&mut source, &views))
    };
    let (answers, unanswered) = ask(ViewAuthor::Telem).unwrap();
    assert_eq!(answers.keys().collect::<Vec<_>>(), ["good"]);
    assert_eq!(unanswered[0].code, WarningCode::NotAnswered);
    assert!(unanswered[0].text.starts_with("the section 'of bad' is missing: "), "{}", unanswered[0].text);
    // A mistake in a view of the user's is for the user to mend.
    assert!(ask(ViewAuthor::User).unwrap_err().into_message().starts_with("the view bad: "));
}

#[test]
fn the_worst_of_each_code_are_told_and_the_others_counted() {
    let one = planted().warnings[1].clone();
    let many = vec![one.clone(); 300];
    let lines = text::told(&many);
    assert!(lines.len() == 6 && lines[5] == "and 295 more like these: --json", "{lines:?}");
    assert_eq!(text::told(std::slice::from_ref(&one)), [one.text.as_str()]);
}

#[test]
fn several_runs_are_not_reported_as_one() {
    let dir = tempfile::tempdir().unwrap();
    for (node, id) in [("n1", "7"), ("n2", "8")] {
        let db = Db::open(&dir.path().join(node), Options { node: node.to_owned(), ..Options::default() }).unwrap();
        let series = db.series(&SeriesKey::new("m", TagSet::new([("host", node)]).unwrap()).unwrap()).unwrap();
        let mut batch = SampleBatch::default();
        batch.push(series, Timestamp::from_seconds(1), Value::Int(1));
        db.append(&batch, Durability::Buffered).unwrap();
        db.put_meta(telem_engine::MetaChange::Job(json!({"id": id})), Durability::Buffered).unwrap();
        db.close().unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let why = runtime.block_on(async {
        let mut source = RunSource::open(dir.path().to_str().unwrap(), StrictArg { strict: false })?;
        read::job(&mut source).await.map(drop)
    });
    assert!(matches!(&why, Err(CliFailure::Failed(why)) if why.contains("2 runs (7, 8)")), "{why:?}");
}

#[test]
fn a_run_too_short_to_judge_has_no_warnings() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options { node: "n1".to_owned(), ..Options::default() }).unwrap();
    let mut batch = SampleBatch::default();
    for (metric, value) in [("node_memory_MemTotal_bytes", 10.0), ("node_memory_MemAvailable_bytes", 0.1)] {
        let series = db.series(&SeriesKey::new(metric, TagSet::new([("host", "n1")]).unwrap()).unwrap()).unwrap();
        batch.push(series, Timestamp::from_seconds(1), Value::Float(value));
    }
    db.append(&batch, Durability::Buffered).unwrap();
    db.close().unwrap();
    assert_eq!(report_on(dir.path(), &[]).warnings, []);
}

proptest! {
    #[test]
    fn of_equal_values_none_stands_out_and_one_that_is_far_off_does(
        values in prop::collection::vec(0.99..1.01_f64, 4..40),
        at in any::<prop::sample::Index>(),
    ) {
        prop_assert_eq!(outlier(&values, |value, median| value > median * 1.15), None);
        let mut planted = values.clone();
        let at = at.index(planted.len());
        planted[at] = 2.0;
        let (found, middle) = outlier(&planted, |value, median| value > median * 1.15).unwrap();
        prop_assert_eq!(found, at);
        prop_assert!((0.99..1.01).contains(&middle));
    }

    #[test]
    fn a_line_has_its_slope_whatever_a_fifth_of_its_points_says(
        rise in -5.0..5.0_f64,
        strange in prop::collection::vec((any::<prop::sample::Index>(), -1e6..1e6_f64), 0..8),
    ) {
        let mut points: Vec<(f64, f64)> = (0..60).map(|x| (f64::from(x), 7.0 + rise * f64::from(x))).collect();
        for (at, value) in strange {
            let at = at.index(points.len());
            points[at].1 = value;
        }
        prop_assert!((slope(&points).unwrap() - rise).abs() < 1e-9);
    }
}

#[test]
fn the_median_is_the_middle_or_the_mean_of_the_two_in_the_middle() {
    assert_eq!(
        [median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0]), median(&[f64::NAN])],
        [Some(2.0), Some(2.5), None]
    );
}
