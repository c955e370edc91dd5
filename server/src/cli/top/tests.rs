//! Answers go in, a picture comes out.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;

use super::draw::{BarScale, bars, text};
use super::keys::{MetricOrder, NodeOrder, TopMode, TopTable};
use super::state::{NodeFigure, TopCurve, TopJob, TopMetric, TopPoint, TopSubject};
use super::*;

const SECOND: i64 = 1_000_000;
const NOW: i64 = 1_767_225_720 * SECOND;
const WINDOW: i64 = 120 * SECOND;

fn point(at_us: i64, sum: f64, series: i64) -> TopPoint {
    TopPoint { sum, mean: sum / series as f64, series, at_us }
}

/// `value` of the seconds until now, in the last minute.
fn points(subject: &TopSubject, series: i64, value: impl Fn(i64) -> f64) -> Vec<(TopSubject, i64, TopPoint)> {
    let point = |ago: i64| point(NOW - ago * SECOND, value(60 - ago), series);
    (0..60).map(|ago| (subject.clone(), NOW - ago * SECOND, point(ago))).collect()
}

fn node(node: &str, figure: NodeFigure) -> TopSubject {
    TopSubject::Node { node: node.to_owned(), figure }
}

/// Two nodes and two metrics.
fn answer() -> TopAnswer {
    let mut points_of_all = Vec::new();
    for (name, share) in [("n1", 0.25), ("n2", 0.75)] {
        points_of_all.extend(points(&node(name, NodeFigure::Busy), 5, |at| at as f64 * 8.0 * share));
        points_of_all.extend(points(&node(name, NodeFigure::Idle), 3, |at| at as f64 * 8.0 * (1.0 - share)));
        points_of_all.extend(points(&node(name, NodeFigure::Memory), 1, |at| share * at as f64));
        points_of_all.extend(points(&node(name, NodeFigure::Network), 2, |at| at as f64 * 1e6 * (1.0 - share)));
    }
    points_of_all.extend(points(&TopSubject::Metric("loss".to_owned()), 2, |at| 2.0 / at as f64));
    points_of_all.extend(points(&TopSubject::Metric("requests_total".to_owned()), 1, |at| 50.0 * at as f64));
    let metric = |is_counter, unit: Option<&str>, series| TopMetric {
        is_counter,
        unit: unit.map(str::to_owned),
        series,
        last: None,
    };
    TopAnswer {
        now_us: NOW,
        job: Some(TopJob {
            id: "4711".to_owned(),
            name: Some("lr 3e-4".to_owned()),
            state: "running".to_owned(),
            command: Some("python train.py".to_owned()),
            begin_us: Some(NOW - 3_700 * SECOND),
            end_us: None,
        }),
        nodes: Some(vec!["n1".to_owned(), "n2".to_owned(), "n3".to_owned()]),
        metrics: Some(BTreeMap::from([
            ("loss".to_owned(), metric(false, None, 2)),
            ("requests_total".to_owned(), metric(true, Some("requests"), 1)),
            ("silent".to_owned(), TopMetric { last: Some(7.0), ..metric(false, Some("volts"), 1) }),
        ])),
        metrics_left_out: 0,
        samples_per_second: Some(1234.0),
        points: points_of_all,
        notice: None,
    }
}

fn state() -> TopState {
    let mut state = TopState::new("http://n1:4242", WINDOW);
    state.take(answer());
    state
}

fn check(state: &TopState, view: &mut TopView, (width, height): (u16, u16), expected: &Expect) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(state, view, frame.buffer_mut())).unwrap();
    expected.assert_eq(&text(terminal.backend().buffer()));
}

#[test]
fn nodes_and_metrics_are_on_one_screen_with_their_curves() {
    check(
        &state(),
        &mut TopView::default(),
        (100, 16),
        &expect![[r#"
            lr 3e-4 (4711)   running · since 2025-12-31 23:00 · 1 h 1 min · 3 nodes · 1234 samples/s
            at 2026-01-01 00:02:00   python train.py

            NODES▼     CORES                 MEM                 NET B/s                DISK B/s
            n1        2.00/8       ▃▃▃▃▃▃  15.0%       ▁▁▁▂▂▂     750 kB       ██████          -
            n2        6.00/8       ▆▆▆▆▆▆  45.0%       ▁▂▂▃▃▄     250 kB       ██████          -
            n3             -                   -                       -                       -

            METRICS▼        SERIES        LAST
            loss                 2   0.0166667                                       █▄▃▂▂▂▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
            requests_total       1          50 requests/s                            ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
            silent               1           7 volts



            q quit   Tab nodes/metrics   s sort   / filter   ? help
        "#]],
    );
}

#[test]
fn on_a_small_terminal_both_tables_have_lines_and_scroll() {
    let mut view = TopView::default();
    let small = (60, 10);
    check(
        &state(),
        &mut view,
        small,
        &expect![[r#"
            lr 3e-4 (4711)   running · since 2025-12-31 23:00 · 1 h 1 mi
            at 2026-01-01 00:02:00   python train.py

            NODES▼     CORES       MEM       NET B/s      DISK B/s
            n1        2.00/8  ▃  15.0%  ▂     750 kB  █          -

            METRICS▼        SERIES        LAST
            loss                 2   0.0166667                   █▂▂▁▁▁▁
            requests_total       1          50 requests/s        ▁▁▁▁▁▁▁
            q quit   Tab nodes/metrics   s sort   / filter   ? help
        "#]],
    );
    for key in [TopKey::Down, TopKey::Down, TopKey::Down, TopKey::Tab, TopKey::End] {
        assert_eq!(view.key(key), KeyOutcome::Stay);
    }
    check(
        &state(),
        &mut view,
        small,
        &expect![[r#"
            lr 3e-4 (4711)   running · since 2025-12-31 23:00 · 1 h 1 mi
            at 2026-01-01 00:02:00   python train.py

            NODES▼     CORES       MEM       NET B/s      DISK B/s
            n3             -         -             -             -

            METRICS▼        SERIES        LAST
            requests_total       1          50 requests/s        ▁▁▁▁▁▁▁
            silent               1           7 volts
            q quit   Tab nodes/metrics   s sort   / filter   ? help
        "#]],
    );
    assert_eq!((view.focus, view.nodes.offset), (TopTable::Metrics, 2), "no further than the end");
}

#[test]
fn a_terminal_of_any_size_is_drawn_on() {
    for width in [1, 2, 7, 20, 81, 300] {
        for height in [1, 2, 3, 5, 6, 7, 40] {
            for mode in [TopMode::Tables, TopMode::Filter, TopMode::Help] {
                let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
                let mut view = TopView { mode, ..TopView::default() };
                terminal.draw(|frame| draw(&state(), &mut view, frame.buffer_mut())).unwrap();
            }
        }
        assert!(page(&state(), width).lines().all(|line| line.chars().count() <= usize::from(width)));
    }
}

#[test]
fn what_is_no_terminal_gets_all_lines() {
    let mut answer = answer();
    answer.nodes = Some((0..500).map(|n| format!("node{n:03}")).collect());
    let mut state = state();
    state.take(answer);
    let page = page(&state, 100);
    assert!(page.contains("node000") && page.contains("node499") && page.contains("silent"), "{page}");
    assert!(!page.contains("quit"), "{page}");
}

#[test]
fn a_rate_skips_a_restart_and_a_series_that_comes() {
    let mut state = TopState::new("", WINDOW);
    let of = |series: i64, sums: &[f64]| {
        let subject = node("n1", NodeFigure::Disk);
        let at = (0..).map(|n| NOW + n * SECOND);
        at.zip(sums).map(|(time, sum)| (subject.clone(), time, point(time, *sum, series))).collect::<Vec<_>>()
    };
    state.take(TopAnswer { now_us: NOW + 3 * SECOND, points: of(1, &[10.0, 30.0, 5.0, 6.0]), ..TopAnswer::default() });
    assert_eq!(state.nodes()[0].disk, TopCurve(vec![(NOW + SECOND, 20.0), (NOW + 3 * SECOND, 1.0)]));
    // A point that is read again takes the place of what it was.
    let again = of(2, &[10.0, 30.0]);
    state.take(TopAnswer { now_us: NOW + 3 * SECOND, points: again, ..TopAnswer::default() });
    assert_eq!(state.nodes()[0].disk, TopCurve(vec![(NOW + SECOND, 20.0), (NOW + 3 * SECOND, 1.0)]));
}

#[test]
fn a_rate_is_that_of_the_times_of_the_samples() {
    // The last sample of a job is taken when it ends, within the second.
    let subject = node("n1", NodeFigure::Busy);
    let at = NOW + SECOND + SECOND / 4;
    let points = vec![(subject.clone(), NOW, point(NOW, 1.0, 1)), (subject, NOW + SECOND, point(at, 2.25, 1))];
    let mut state = TopState::new("", WINDOW);
    state.take(TopAnswer { now_us: NOW + 2 * SECOND, points, ..TopAnswer::default() });
    assert_eq!(state.nodes()[0].cores, TopCurve(vec![(at, 1.0)]));
}

#[test]
fn what_is_older_than_the_window_goes() {
    let mut state = state();
    state.take(TopAnswer { now_us: NOW + 2 * WINDOW, ..TopAnswer::default() });
    assert!(state.nodes().iter().all(|line| line.cores == TopCurve::default()));
    assert_eq!(state.nodes().len(), 3, "nodes stay");
    assert_eq!(state.metrics().iter().filter_map(|line| line.last).collect::<Vec<_>>(), [7.0]);
}

#[test]
fn a_node_that_sends_nothing_and_metrics_that_are_left_out_are_told_of() {
    let mut answer = answer();
    answer.metrics_left_out = 1200;
    answer.points.retain(|(subject, time, _)| match subject {
        TopSubject::Node { node, .. } => node == "n1" || *time < NOW - 20 * SECOND,
        TopSubject::Metric(_) => true,
    });
    let mut state = TopState::new("", WINDOW);
    state.take(answer);
    let page = page(&state, 80);
    assert_eq!(page.lines().find(|line| line.starts_with("n2")), Some("n2     has sent nothing for 21.0 s"), "{page}");
    assert!(page.contains("n1        2.00/8") && page.contains("and 1,200 more metrics"), "{page}");
}

#[test]
fn bars_have_gaps_and_stay_within_the_scale() {
    assert_eq!(bars(&[Some(0.0), None, Some(50.0), Some(100.0)], BarScale::From0To(100.0)), "▁ ▅█");
    assert_eq!(bars(&[Some(-1.0), Some(0.0), Some(f64::NAN), Some(1.0)], BarScale::Own), "▁▅ █");
    assert_eq!(bars(&[Some(3.0), Some(3.0)], BarScale::Own), "▁▁");
    assert_eq!(bars(&[Some(f64::MIN), Some(f64::MAX)], BarScale::Own), "▁█");
    assert_eq!(bars(&[], BarScale::From0To(0.0)), "");
}

#[test]
fn a_server_that_is_away_is_told_of_in_the_head() {
    let mut state = state();
    state.notice = Some("no answer for 3 s: cannot reach http://n1:4242\x1b[2J".to_owned());
    let text = page(&state, 80);
    assert_eq!(text.lines().nth(2), Some("no answer for 3 s: cannot reach http://n1:4242 [2J"));
    state.take(answer());
    assert!(!page(&state, 80).contains("no answer"));
}

#[test]
fn keys_are_read_from_what_a_terminal_sends() {
    use TopKey::{Backspace, Char, Down, End, Enter, Escape, Home, Interrupt, PageDown, PageUp, Tab, Up};
    for (sent, read) in [
        (&b"q"[..], vec![Char('q')]),
        (b"\x1b", vec![Escape]),
        (b"\x1b[A\x1bOB", vec![Up, Down]),
        (b"\x1b[5~\x1b[6~", vec![PageUp, PageDown]),
        (b"\x1b[H\x1b[F\x1b[1~\x1b[4~", vec![Home, End, Home, End]),
        (b"\t\x1b[Z\r\x7f\x03", vec![Tab, Tab, Enter, Backspace, Interrupt]),
        (b"\x1b[1;5Cx", vec![Char('x')]),
        (b"\x1b[", vec![]),
        ("é\x01".as_bytes(), vec![Char('é')]),
        (b"\xff", vec![Char('\u{fffd}')]),
    ] {
        assert_eq!(keys(sent), read, "{:?}", String::from_utf8_lossy(sent));
    }
}

#[test]
fn the_tables_are_filtered_and_sorted_by_keys() {
    let mut view = TopView::default();
    let mut press = |sent: &[u8]| keys(sent).into_iter().map(|key| view.key(key)).collect::<Vec<_>>();
    press(b"s\t/q\x7floss*\rs");
    assert_eq!((view.node_order, view.metric_order), (NodeOrder::Cores, MetricOrder::Value));
    assert_eq!((&*view.metrics.filter, &*view.nodes.filter), ("loss*", ""));
    check(
        &state(),
        &mut view,
        (70, 12),
        &expect![[r#"
            lr 3e-4 (4711)   running · since 2025-12-31 23:00 · 1 h 1 min · 3 node
            at 2026-01-01 00:02:00   python train.py

            NODES    CORES▼          MEM          NET B/s         DISK B/s
            n2       6.00/8   ▆▆▆  45.0%   ▁▂▄     250 kB   ███          -
            n1       2.00/8   ▃▃▃  15.0%   ▁▁▂     750 kB   ███          -
            n3            -            -                -                -

            METRICS /loss*  SERIES       LAST▼
            loss                 2   0.0166667                   █▃▂▂▂▁▁▁▁▁▁▁▁▁▁▁▁

            q quit   Tab nodes/metrics   s sort   / filter   ? help
        "#]],
    );
    let mut press = |sent: &[u8]| keys(sent).into_iter().map(|key| view.key(key)).collect::<Vec<_>>();
    assert_eq!(press(b"/\x1b?qq"), [KeyOutcome::Stay; 4].into_iter().chain([KeyOutcome::Quit]).collect::<Vec<_>>());
    assert_eq!(view.metrics.filter, "");
    assert_eq!(view.key(TopKey::Interrupt), KeyOutcome::Quit);
}

#[test]
fn a_speed_is_a_number_above_0() {
    let speed = |text| playing(text).map(|playing| playing.speed);
    assert_eq!((speed("60"), speed("0.5x")), (Ok(60.0), Ok(0.5)));
    for text in ["0", "-1", "NaN", "inf", "fast", ""] {
        assert!(speed(text).is_err(), "{text}");
    }
}
