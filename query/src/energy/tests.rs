use telem_engine::{Db, Durability, InventoryEntry, JobInterval, MetaChange, Value};
use tempfile::TempDir;

use super::*;
use crate::testing::{Asked, load_into, open, put_into};

/// One node's database with these lines of samples; the job runs over those seconds.
fn recorded(job: Option<(i64, i64)>, text: &str) -> (TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), "n1");
    load_into(&db, text);
    if let Some((begin, end)) = job {
        let time = |second: i64| {
            let time = crate::testing::EPOCH_SECONDS + second;
            chrono::DateTime::from_timestamp(time, 0).unwrap().to_rfc3339()
        };
        let description = serde_json::json!({"id": "7", "start": time(begin), "end": time(end)});
        db.put_meta(MetaChange::Job(description), Durability::Buffered).unwrap();
    }
    (dir, db)
}

fn rows(db: &Db) -> Vec<JobEnergy> {
    of_jobs(&db.snapshot(), &|| false).unwrap()
}

/// The row of the whole node.
fn node(job: Option<(i64, i64)>, text: &str) -> JobEnergy {
    let (_dir, db) = recorded(job, text);
    rows(&db).into_iter().find(|row| row.gpu.is_none()).unwrap()
}

fn check(row: &JobEnergy, source: &str, method: &str, joules: f64, covered: (f64, f64)) {
    assert_eq!((row.source.as_deref(), row.method.as_deref()), (Some(source), Some(method)), "{row:?}");
    assert_eq!((row.joules, row.seconds, row.unknown_seconds), (Some(joules), covered.0, covered.1), "{row:?}");
    assert_eq!(row.kwh, Some(joules / 3.6e6));
}

#[test]
fn a_counter_tells_the_energy_between_its_readings() {
    let row = node(None, "node_energy_joules_total{host=n1,source=rapl} 0:1000 1:1100.5 2:1300 3:1301");
    check(&row, "rapl", "counter", 301.0, (3.0, 0.0));
    assert_eq!((row.mean_watts, row.peak_watts), (Some(301.0 / 3.0), Some(199.5)));
    assert_eq!((row.doubt, row.reason), (None, None));
}

#[test]
fn what_was_unwrapped_beyond_32_bits_is_counted_to_the_joule() {
    let row = node(None, "node_energy_joules_total{source=rapl} 0:4294967290 1:4294967300 2:8589934600");
    check(&row, "rapl", "counter", 4_294_967_310.0, (2.0, 0.0));
}

#[test]
fn a_counter_that_begins_anew_loses_the_span_of_that_and_no_other() {
    let row = node(None, "node_energy_joules_total{source=rapl} 0:1000 1:1100 2:30 3:130 4:230");
    check(&row, "rapl", "counter", 300.0, (3.0, 1.0));
}

#[test]
fn a_counter_bridges_a_gap_and_a_power_does_not() {
    let counter = node(None, "node_energy_joules_total{source=rapl} 0:0 1:100 100:10000 101:10100");
    check(&counter, "rapl", "counter", 10_100.0, (101.0, 0.0));
    let power = node(None, "node_power_watts{source=acpi_power_meter} 0:100 1:300 2:300 100:500 101:500");
    check(&power, "acpi_power_meter", "integrated", 200.0 + 300.0 + 500.0, (3.0, 98.0));
    assert_eq!(power.peak_watts, Some(500.0));
}

#[test]
fn at_its_ends_the_job_takes_its_share_of_a_span() {
    // 12 s of the job, of which the last reading leaves 2 s unknown.
    let text = "node_energy_joules_total{source=rapl} 0:0 10:1000 20:3000";
    check(&node(Some((5, 15)), text), "rapl", "counter", 1_500.0, (10.0, 0.0));
    check(&node(Some((10, 22)), text), "rapl", "counter", 2_000.0, (10.0, 2.0));
    let power = "node_power_watts{source=rapl} 0:0 10:100 20:100";
    check(&node(Some((5, 15)), power), "rapl", "integrated", 375.0 + 500.0, (10.0, 0.0));
}

#[test]
fn the_most_trusted_source_tells_and_none_is_added_to_another() {
    let all = [
        "node_energy_joules_total{source=rapl} 0:0 1:1 2:2",
        "gpu_power_watts{gpu=0} 0:2 1:2 2:2",
        "node_power_watts{source=acpi_power_meter} 0:3 1:3 2:3",
        "node_energy_joules_total{source=rapl_gpu} 0:0 1:4 2:8",
        "node_energy_joules_total{source=pm_counters} 0:0 1:5 2:10",
    ];
    let expected = [("rapl", 2.0), ("rapl", 2.0), ("acpi_power_meter", 6.0), ("rapl_gpu", 8.0), ("pm_counters", 10.0)];
    for (last, (source, joules)) in expected.into_iter().enumerate() {
        let row = node(None, &all[..=last].join("\n"));
        assert_eq!((row.source.as_deref(), row.joules), (Some(source), Some(joules)), "{last}");
    }
}

#[test]
fn a_source_that_tells_of_a_small_part_of_the_job_gives_way() {
    let text = "node_energy_joules_total{source=pm_counters} 0:0 1:100\n\
                node_energy_joules_total{source=rapl} 0:0 10:500";
    check(&node(None, text), "rapl", "counter", 500.0, (10.0, 0.0));
}

#[test]
fn gpus_alone_tell_of_the_node_what_they_took_together() {
    let (_dir, db) = recorded(
        None,
        "gpu_energy_joules_total{gpu=0} 0:100 1:200 2:300\n\
         gpu_energy_joules_total{gpu=1} 0:7 1:57 2:3\n\
         gpu_power_watts{gpu=10} 0:10 1:10 2:10",
    );
    let rows = rows(&db);
    let told: Vec<_> = rows.iter().map(|row| (row.gpu.as_deref(), row.joules, row.unknown_seconds)).collect();
    assert_eq!(
        told,
        [
            (None, Some(250.0), 0.0),
            (Some("0"), Some(200.0), 0.0),
            (Some("1"), Some(50.0), 1.0),
            (Some("10"), Some(20.0), 0.0)
        ]
    );
    assert_eq!(rows[1].gpu_hours, Some(2.0 / 3_600.0));
}

#[test]
fn a_counter_far_from_its_power_is_doubted() {
    let counter = |watts: i64| (0..=180).map(move |second| (second, Value::Int(second * watts)));
    let power = || (0..=180).map(|second| (second, Value::Int(100)));
    for (watts, doubted) in [(86, false), (84, true), (117, false), (119, true), (0, true)] {
        let (_dir, db) = recorded(None, "");
        put_into(&db, "gpu_energy_joules_total", &[("gpu", "0")], counter(watts));
        put_into(&db, "gpu_power_watts", &[("gpu", "0")], power());
        let gpu = rows(&db).remove(1);
        assert_eq!(gpu.doubt.is_some(), doubted, "{gpu:?}");
        assert_eq!((gpu.joules, gpu.method.as_deref()), (Some(180.0 * watts as f64), Some("counter")));
    }
    // Less than a minute is too short to say so.
    let short = node(
        None,
        "node_energy_joules_total{source=rapl} 0:0 59:100\nnode_power_watts{source=rapl} 0:100 20:100 40:100 59:100",
    );
    assert_eq!(short.doubt, None);
}

#[test]
fn hours_of_gpus_are_idle_where_a_whole_minute_was_and_held_where_memory_was_in_use() {
    let (_dir, db) = recorded(Some((30, 330)), "");
    // Busy in the minute from 120 s on, and for one sample at 200 s; memory is held until 250 s.
    let busy = |second: i64| if (120..180).contains(&second) || second == 200 { 80.0 } else { 0.5 };
    let used = |second: i64| if second < 250 { 2_i64 << 30 } else { 1 << 30 };
    put_into(&db, "gpu_utilization_percent", &[("gpu", "3")], (0..=400).map(|at| (at, Value::Float(busy(at)))));
    put_into(&db, "gpu_memory_used_bytes", &[("gpu", "3")], (0..=400).map(|at| (at, Value::Int(used(at)))));
    let gpu = rows(&db).into_iter().find(|row| row.gpu.is_some()).unwrap();
    // Whole minutes of the job: from 60, 120, 180 and 240 s; idle from 60 and 240, held from 60.
    assert_eq!((gpu.gpu_hours, gpu.idle_gpu_hours), (Some(300.0 / 3_600.0), Some(2.0 / 60.0)));
    assert_eq!(gpu.held_idle_gpu_hours, Some(1.0 / 60.0));
    assert_eq!(gpu.reason.as_deref(), Some("unknown, because this GPU tells neither power nor energy"));
}

#[test]
fn what_is_not_known_is_told_with_its_reason() {
    let (_dir, db) = recorded(Some((0, 10)), "node_load1{host=n1} 0:1 10:1");
    let row = rows(&db).remove(0);
    assert_eq!((row.joules, row.seconds, row.unknown_seconds), (None, 0.0, 10.0));
    assert_eq!(row.reason.as_deref(), Some("unknown, because nothing on this node tells power or energy"));
    for domain in ["0", "1", "2"] {
        let path = format!("/sys/class/powercap/intel-rapl:{domain}/energy_uj");
        let refused = InventoryEntry::refused(DeviceKind::Energy, path, "Permission denied", "an administrator can");
        db.put_meta(refused.change("n1"), Durability::Buffered).unwrap();
    }
    let expected = "unknown, because /sys/class/powercap/intel-rapl:0/energy_uj: Permission denied; an administrator can; \
                    /sys/class/powercap/intel-rapl:1/energy_uj: Permission denied; an administrator can; \
                    and 1 more in the inventory";
    assert_eq!(rows(&db)[0].reason.as_deref(), Some(expected));
}

#[test]
fn an_odd_reading_is_none() {
    let text = "node_energy_joules_total{source=rapl} 0:0 1:NaN 2:inf 3:-5 4:400";
    check(&node(None, text), "rapl", "counter", 400.0, (4.0, 0.0));
}

#[tokio::test]
async fn sql_tells_the_energy_of_each_job_and_node() {
    let job = |id: &str, begin: &str, end: &str| serde_json::json!({"id": id, "start": begin, "end": end});
    let [t0, t10, t20] = ["2024-01-01T00:00:00Z", "2024-01-01T00:00:10Z", "2024-01-01T00:00:20Z"];
    let text = "node_energy_joules_total{host=n1,source=pm_counters} 0:0 10:1000 20:3000";
    let other = "node_energy_joules_total{host=n2,source=pm_counters} 0:0 10:700";
    let asked = Asked::runs(&[
        ("n1", job("a", t0, t10), text),
        ("n2", job("a", t0, t10), other),
        ("n1", job("b", t10, t20), text),
    ]);
    let expected = expect_test::expect![[r#"
        +-----+------+-------------+---------+--------+------------+---------+-----------------+
        | job | node | source      | method  | joules | mean_watts | seconds | unknown_seconds |
        +-----+------+-------------+---------+--------+------------+---------+-----------------+
        | a   | n1   | pm_counters | counter | 1000.0 | 100.0      | 10.0    | 0.0             |
        | a   | n2   | pm_counters | counter | 700.0  | 70.0       | 10.0    | 0.0             |
        | b   | n1   | pm_counters | counter | 2000.0 | 200.0      | 10.0    | 0.0             |
        +-----+------+-------------+---------+--------+------------+---------+-----------------+"#]];
    let columns = "job, node, source, method, joules, mean_watts, seconds, unknown_seconds";
    expected.assert_eq(&asked.answer(&format!("SELECT {columns} FROM job_energy ORDER BY job, node")).await);
    let expected = expect_test::expect![[r#"
        +--------+
        | joules |
        +--------+
        | 700.0  |
        +--------+"#]];
    expected.assert_eq(&asked.answer("SELECT joules FROM job_energy WHERE job = 'a' AND node <> 'n1'").await);
    let expected = expect_test::expect![[r#"
        +----------+
        | count(*) |
        +----------+
        | 3        |
        +----------+"#]];
    expected.assert_eq(&asked.answer("SELECT count(*) FROM job_energy").await);
}

#[tokio::test]
async fn sql_tells_the_devices_of_each_node() {
    let asked = Asked::load("load{host=n1} 0:1");
    let gpu = InventoryEntry {
        vendor: "AMD".to_owned(),
        numa: Some(3),
        memory_bytes: Some(206_141_652_992),
        limit_watts: Some(750.0),
        in_job: Some(true),
        ..InventoryEntry::new(DeviceKind::Gpu, "0")
    };
    let refused = InventoryEntry::refused(DeviceKind::Energy, "/sys/x", "Permission denied", "ask root");
    for entry in [gpu, refused] {
        asked.db.put_meta(entry.change(asked.db.snapshot().node()), Durability::Buffered).unwrap();
    }
    let expected = expect_test::expect![[r#"
        +--------+--------+--------+-------+------+--------------+-------------+---------+--------+-----------------------------+
        | kind   | device | vendor | model | numa | memory_bytes | limit_watts | status  | in_job | reason                      |
        +--------+--------+--------+-------+------+--------------+-------------+---------+--------+-----------------------------+
        | gpu    | 0      | AMD    |       | 3    | 206141652992 | 750.0       | ok      | true   |                             |
        | energy | /sys/x |        |       |      |              |             | refused |        | Permission denied; ask root |
        +--------+--------+--------+-------+------+--------------+-------------+---------+--------+-----------------------------+"#]];
    expected.assert_eq(
        &asked
            .answer(
                "SELECT kind, device, vendor, model, numa, memory_bytes, limit_watts, status, in_job, reason FROM inventory",
            )
            .await,
    );
    let expected = expect_test::expect![[r#"
        +------+
        | kind |
        +------+
        +------+"#]];
    expected.assert_eq(&asked.answer("SELECT kind FROM inventory WHERE node = 'n9'").await);
}

#[test]
fn jobs_that_share_a_node_have_the_energy_of_the_node_while_they_ran() {
    let (_dir, db) = recorded(None, "node_energy_joules_total{host=n1,source=rapl} 0:0 10:1000 20:3000 30:3600");
    let time = |second: i64| Timestamp::from_seconds(crate::testing::EPOCH_SECONDS + second);
    for (slot, (begin, end)) in [(0, (5, Some(20))), (1, (15, None))] {
        let job = serde_json::json!({"id": format!("j{slot}")});
        let interval = JobInterval { slot, since: None, begin: time(begin), end: end.map(time), job: Arc::new(job) };
        db.put_meta(MetaChange::JobInterval(interval), Durability::Buffered).unwrap();
    }
    let mut told: Vec<_> = rows(&db).into_iter().map(|row| (row.job.to_string(), row.joules, row.seconds)).collect();
    // What it used while no job ran, up to the last microsecond before the first one.
    let (job, joules, seconds) = told.pop().unwrap();
    assert_eq!((&*job, joules.unwrap().round(), seconds.round()), ("local", 500.0, 5.0));
    assert_eq!(told, [("j0".to_owned(), Some(2_500.0), 15.0), ("j1".to_owned(), Some(1_600.0), 15.0)]);
}

/// What the GPUs of the inventory say of the job.
fn given(db: &Db, gpus: [Option<bool>; 3]) {
    for (number, in_job) in gpus.into_iter().enumerate() {
        let entry = InventoryEntry { in_job, ..InventoryEntry::new(DeviceKind::Gpu, number.to_string()) };
        db.put_meta(entry.change("n1"), Durability::Buffered).unwrap();
    }
}

const THREE_GPUS: &str = "gpu_energy_joules_total{gpu=0} 0:0 10:100\n\
                          gpu_energy_joules_total{gpu=1} 0:0 10:2000\n\
                          gpu_energy_joules_total{gpu=2} 0:0 10:30000";

#[test]
fn gpus_that_the_job_was_not_given_are_not_its_own() {
    let (_dir, db) = recorded(None, THREE_GPUS);
    let told = |db: &Db| -> Vec<_> {
        let of = |row: JobEnergy| (row.gpu, row.joules.unwrap(), row.is_shared, row.doubt.is_some());
        rows(db).into_iter().map(of).collect()
    };
    let gpu = |number: &str| Some(number.to_owned());
    given(&db, [Some(true), Some(false), None]);
    assert_eq!(
        told(&db),
        [(None, 30_100.0, true, false), (gpu("0"), 100.0, true, false), (gpu("2"), 30_000.0, true, true)]
    );
    // What covers the node covers all of it.
    load_into(&db, "node_energy_joules_total{source=pm_counters} 0:0 10:77000");
    assert_eq!(told(&db)[0], (None, 77_000.0, true, false));
    given(&db, [Some(true); 3]);
    assert_eq!(told(&db)[3], (gpu("2"), 30_000.0, false, false));
}

#[test]
fn what_the_server_was_given_says_nothing_of_jobs_that_share_it() {
    let (_dir, db) = recorded(None, THREE_GPUS);
    given(&db, [Some(true), Some(false), None]);
    let time = |second: i64| Timestamp::from_seconds(crate::testing::EPOCH_SECONDS + second);
    let job = serde_json::json!({"id": "a"});
    let interval = JobInterval { slot: 0, since: None, begin: time(0), end: Some(time(10)), job: Arc::new(job) };
    db.put_meta(MetaChange::JobInterval(interval), Durability::Buffered).unwrap();
    let of_job: Vec<JobEnergy> = rows(&db).into_iter().filter(|row| &*row.job == "a" && row.gpu.is_some()).collect();
    assert_eq!(of_job.len(), 3);
    assert!(of_job.iter().all(|row| row.is_shared && row.doubt.as_deref() == Some(NOT_KNOWN_WHOSE)), "{of_job:?}");
}

#[tokio::test]
async fn each_run_has_the_gpus_that_it_was_given() {
    let job = |id: &str| serde_json::json!({"id": id});
    let dir = tempfile::tempdir().unwrap();
    let mut dirs = Vec::new();
    for (id, gpus) in [("a", [Some(true), Some(false), Some(false)]), ("b", [Some(false), Some(true), Some(true)])] {
        dirs.push(dir.path().join(id));
        let db = open(&dir.path().join(id), "n1");
        load_into(&db, THREE_GPUS);
        given(&db, gpus);
        db.put_meta(MetaChange::Job(job(id)), Durability::Buffered).unwrap();
    }
    let db = Db::open_together(&dirs, telem_engine::Options::default()).unwrap();
    let told: Vec<_> = rows(&db).into_iter().map(|row| (row.job.to_string(), row.joules.unwrap())).collect();
    let told: Vec<_> = told.iter().map(|(job, joules)| (&**job, *joules)).collect();
    assert_eq!(told, [("a", 100.0), ("a", 100.0), ("b", 32_000.0), ("b", 2_000.0), ("b", 30_000.0)]);
}

/// How often it is looked whether somebody waits: once for each piece that is read.
fn looks(db: &Db, job: &str) -> usize {
    let count = std::cell::Cell::new(0);
    let is_stopped = || {
        count.set(count.get() + 1);
        false
    };
    let question = EnergyQuestion { is_job: &|id| id == job, is_node: &|_| true, is_stopped: &is_stopped };
    assert!(!question.answer(&db.snapshot()).unwrap().is_empty());
    count.get()
}

#[test]
fn of_a_job_no_more_is_read_than_its_time() {
    let (_dir, db) = recorded(None, "");
    let counted = (0..100_000).map(|second| (second, Value::Int(second)));
    put_into(&db, "node_energy_joules_total", &[("source", "rapl")], counted);
    let time = |second: i64| Timestamp::from_seconds(crate::testing::EPOCH_SECONDS + second);
    for number in 0..20 {
        let (begin, end) = (time(50_000 + 100 * number), time(50_050 + 100 * number));
        let job = serde_json::json!({"id": format!("j{number}")});
        let interval = JobInterval { slot: 0, since: Some(begin), begin, end: Some(end), job: Arc::new(job) };
        db.put_meta(MetaChange::JobInterval(interval), Durability::Buffered).unwrap();
    }
    let of_one = looks(&db, "j7");
    assert!(of_one < 10, "{of_one}");
    let question = EnergyQuestion { is_job: &|id| id == "j7", is_node: &|_| true, is_stopped: &|| false };
    let row = question.answer(&db.snapshot()).unwrap().remove(0);
    assert_eq!((row.joules, row.seconds), (Some(50.0), 50.0));
    let elsewhere = EnergyQuestion { is_node: &|node| node == "n9", ..question };
    assert_eq!(elsewhere.answer(&db.snapshot()).unwrap(), []);
}

#[test]
fn a_span_that_begins_and_ends_hours_from_the_job_tells_of_it() {
    let text = "node_energy_joules_total{source=rapl} 0:0 9:5 86409:86405 100000:86405";
    check(&node(Some((40_000, 40_100)), text), "rapl", "counter", 100.0, (100.0, 0.0));
}
