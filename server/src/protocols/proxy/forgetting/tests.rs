use super::super::testing::TestProxy;
use super::*;

/// Counters of two jobs, whose names are in all parts: how much each has in all.
async fn two_jobs(proxy: &TestProxy) -> BTreeMap<String, f64> {
    let names: Vec<String> = (0..100).map(|number| format!("c{number}")).collect();
    let counters: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 2.0)).collect();
    for id in ["one", "two"] {
        proxy.finished(id, "./app", 1, &counters).await;
    }
    sums(proxy)
}

fn sums(proxy: &TestProxy) -> BTreeMap<String, f64> {
    let own = proxy.live.table.all(proxy.live.main).into_iter().filter(|reading| reading.name.starts_with('c'));
    let value = |reading: CounterReading| match reading.value {
        CounterValue::Counter(value) => Some((reading.name.to_string(), value)),
        CounterValue::Gauge(_) => None,
    };
    own.filter_map(value).collect()
}

fn records(proxy: &TestProxy, kind: &str) -> usize {
    proxy.live.state.db.snapshot().meta().record_keys(kind).count()
}

#[tokio::test]
async fn a_run_counts_once_wherever_forgetting_it_is_killed() {
    for parts in [0, 1, 7, PARTS] {
        let proxy = TestProxy::new();
        let expected = two_jobs(&proxy).await;
        assert!(expected.len() == 100 && expected.values().all(|sum| *sum == 4.0), "{expected:?}");
        let snapshot = proxy.live.state.db.snapshot();
        let mut base = CounterBase::read(&snapshot);
        let run = Arc::clone(&proxy.live.runs.finished()[0]);
        base.add(&run.key, keeping::own_profile(&proxy.live, &run));
        // So many parts were kept, and then the process was killed.
        base.parts.retain(|number, _| *number < parts);
        assert!(base.keep(&proxy.live, &snapshot));
        let proxy = proxy.restarted();
        assert_eq!(sums(&proxy), expected, "{parts} parts");
        let left = if parts == 0 { 2 } else { 1 };
        assert_eq!(records(&proxy, RUN), left, "what was begun is ended");
        let proxy = proxy.restarted();
        assert_eq!(sums(&proxy), expected, "{parts} parts, the next time");
    }
}

#[tokio::test]
async fn the_base_of_an_older_database_goes_into_the_parts_once() {
    let proxy = TestProxy::new();
    let mut expected = two_jobs(&proxy).await;
    *expected.get_mut("c1").unwrap() += 5.0;
    let old = CounterReading { name: "c1".into(), doc: "d".into(), value: CounterValue::Counter(5.0) };
    proxy.live.keep(StateRecord::new(BASE, OLD, keeping::text(&[ProxyMetric::of(&old, 0)])));
    let proxy = proxy.restarted();
    assert_eq!(sums(&proxy), expected);
    forget(&proxy.live, &proxy.live.runs.finished());
    assert_eq!((records(&proxy, RUN), records(&proxy, PROFILE)), (0, 0));
    // The removal of the old one may be what is killed.
    proxy.live.keep(StateRecord::new(BASE, OLD, keeping::text(&[ProxyMetric::of(&old, 0)])));
    let part = proxy.live.state.db.snapshot().meta().record(BASE, &part_of("c1").to_string()).unwrap();
    assert!(part.contains("\"main\""), "{part}");
    let proxy = proxy.restarted();
    assert_eq!(sums(&proxy), expected);
}
