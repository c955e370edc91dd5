//! The smallest cases that distinguish the rules of `OpenTSDB` from plausible misreadings. Answers marked with `!` were
//! given by the real server.

use expect_test::{Expect, expect};

use telem_engine::{Timestamp, Value};

use super::support::{World, query};
use crate::error::Error;

#[track_caller]
fn check(world: &World, asked: &str, expected: Expect) {
    expected.assert_eq(&world.text(&query(asked)));
}

const RATES: &str = "
    m host=a 0:0 60:60 120:120 180:180 240:240
    m host=b 120:240 180:360 240:480";

#[test]
fn a_rated_series_contributes_from_its_first_rate_on() {
    let world = World::load(RATES);
    check(&world, "60 240 count:1m-avg:rate:m", expect!["{host}: 60:1.0 120:1.0 180:2.0 240:2.0"]);
    check(&world, "60 240 avg:1m-avg:rate:m", expect!["{host}: 60:1.0 120:1.0 180:1.5 240:1.5"]);
}

#[test]
fn opentsdb_lets_it_contribute_from_the_start_of_the_query() {
    let world = World::load(
        "m host=a 3600:0 3660:60 3720:120 3780:180
         m host=b 3720:7440 3780:7560",
    );
    check(&world, "!3660 3780 count:1m-avg:rate:m", expect!["{host}: 3660:2.0 3720:2.0 3780:2.0"]);
    // 7440 at second 3720 is a rate of 2 since 1970.
    check(&world, "!3660 3780 sum:1m-avg:rate:m", expect!["{host}: 3660:3.0 3720:3.0 3780:3.0"]);
    check(&world, "3660 3780 sum:1m-avg:rate:m", expect!["{host}: 3660:1.0 3720:1.0 3780:3.0"]);
}

#[test]
fn opentsdb_counts_a_rated_series_that_starts_after_the_end_but_inside_the_hour() {
    let world = World::load(
        "m host=a 7200:0 7260:60 7320:120
         m host=b 7500:0 7560:60 7620:120",
    );
    check(&world, "!7200 7380 count:1m-avg:rate:m", expect!["{host}: 7260:2.0 7320:2.0"]);
    check(&world, "7200 7380 count:1m-avg:rate:m", expect!["{host}: 7260:1.0 7320:1.0"]);
    check(&world, "!7200 7380 dev:rate:m", expect!["{host}: 7260:0.5 7320:0.5"]);
}

#[test]
fn between_its_points_a_series_stands_on_a_line_or_at_what_its_aggregator_says() {
    let world = World::load(
        "m host=a 0:0 120:2 240:4
         m host=b 60:10 180:30",
    );
    for (aggregator, expected) in [
        ("sum", expect!["{host}: 0:0.0 60:11.0 120:22.0 180:33.0 240:4.0"]),
        ("zimsum", expect!["{host}: 0:0.0 60:10.0 120:2.0 180:30.0 240:4.0"]),
        ("pfsum", expect!["{host}: 0:0.0 60:10.0 120:12.0 180:32.0 240:4.0"]),
        ("mimmin", expect!["{host}: 0:0.0 60:10.0 120:2.0 180:30.0 240:4.0"]),
        ("mimmax", expect!["{host}: 0:0.0 60:10.0 120:2.0 180:30.0 240:4.0"]),
        ("count", expect!["{host}: 0:1.0 60:2.0 120:2.0 180:2.0 240:1.0"]),
        ("min", expect!["{host}: 0:0.0 60:1.0 120:2.0 180:3.0 240:4.0"]),
        ("max", expect!["{host}: 0:0.0 60:10.0 120:20.0 180:30.0 240:4.0"]),
        ("squareSum", expect!["{host}: 0:0.0 60:100.0 120:4.0 180:900.0 240:16.0"]),
        ("first", expect!["{host}: 0:0.0 60:0.0 120:2.0 180:0.0 240:4.0"]),
        ("last", expect!["{host}: 0:0.0 60:10.0 120:0.0 180:30.0 240:4.0"]),
        ("diff", expect!["{host}: 0:0.0 60:9.0 120:18.0 180:27.0 240:0.0"]),
        ("mult", expect!["{host}: 0:0.0 60:10.0 120:40.0 180:90.0 240:4.0"]),
        ("median", expect!["{host}: 0:0.0 60:10.0 120:20.0 180:30.0 240:4.0"]),
        ("p50", expect!["{host}: 0:0.0 60:5.5 120:11.0 180:16.5 240:4.0"]),
        ("dev", expect!["{host}: 0:0.0 60:4.5 120:9.0 180:13.5 240:0.0"]),
    ] {
        check(&world, &format!("0 240 {aggregator}:1m-avg:m"), expected);
    }
    let none = expect![[r#"
        host=a {}: 0:0.0 120:2.0 240:4.0
        host=b {}: 60:10.0 180:30.0"#]];
    check(&world, "0 240 none:1m-avg:m", none);
}

#[test]
fn integers_stay_integers_until_a_float_is_near() {
    let world = World::load(
        "m host=a 0:1 60:2 120:4
         m host=b 0:2 60:2.5 120:2",
    );
    // At 0 the next point of b is a float, and so is the sum.
    check(&world, "0 120 sum:m", expect!["{host}: 0:3.0 60:4.5 120:6"]);
    check(&world, "0 120 avg:m{host=a}", expect!["host=a {}: 0:1 60:2 120:4"]);
    let world = World::load("m host=a 0:1 60:2\nm host=b 0:2 60:3\nm host=c 600:0.5");
    // A series that has not started has a say already.
    check(&world, "0 60 avg:m", expect!["{host}: 0:1.5 60:2.5"]);
    check(&world, "0 60 avg:m{}{host=a|b}", expect!["{host}: 0:1 60:2"]);
    let world = World::load("m host=a 0:0.5 10:0.5\nm host=b 60:1 120:2");
    check(&world, "0 120 sum:m", expect!["{host}: 0:0.5 10:0.5 60:1 120:2"]);
}

#[test]
fn integers_between_points_are_truncated_and_wrap() {
    let world = World::load("m host=a 0:0 3:10\nm host=b 1:0 2:0");
    check(&world, "0 3 sum:m", expect!["{host}: 0:0 1:3 2:6 3:10"]);
    let world = World::load("m host=a 0:-9223372036854775808 2:9223372036854775807\nm host=b 1:0");
    check(&world, "0 3 max:m", expect!["{host}: 0:-9223372036854775808 1:0 2:9223372036854775807"]);
    let world = World::load("m host=a 0:0 4:9223372036854775807\nm host=b 1:0 2:0 3:0");
    // The product of milliseconds and difference wraps, as it does in the original.
    check(&world, "0 3 sum:m", expect!["{host}: 0:0 1:0 2:0 3:0"]);
}

#[test]
fn a_bucket_that_began_before_the_window_is_left_out() {
    // 100 minutes do not divide an hour: the window starts at 3600, the first whole bucket at 6000.
    let world = World::load("m host=a 3600:1 5940:1 6000:5 12000:9");
    check(&world, "7200 12000 sum:100m-sum:m", expect!["host=a {}: 12000:9.0"]);
    check(&world, "6000 12000 sum:100m-sum:m", expect!["host=a {}: 6000:5.0 12000:9.0"]);
}

#[test]
fn a_series_in_no_bucket_fills_them_all() {
    // Its one sample lies in the window, in a bucket that began before the window.
    let world = World::load("m host=a 3600:1");
    for aggregator in ["mult", "sum", "last"] {
        check(&world, &format!("6000 6001 {aggregator}:100m-sum-zero:m"), expect!["host=a {}: 6000:0.0"]);
    }
}

#[test]
fn fills_cover_the_window_and_not_only_the_life_of_a_series() {
    let world = World::load("m host=a 0:1 60:1\nm host=b 120:5 240:5");
    check(&world, "0 240 sum:1m-avg-zero:m", expect!["{host}: 0:1.0 60:1.0 120:5.0 180:0.0 240:5.0"]);
    check(&world, "0 240 count:1m-avg-zero:m", expect!["{host}: 0:2.0 60:2.0 120:2.0 180:2.0 240:2.0"]);
    check(&world, "0 240 sum:1m-avg-nan:m", expect!["{host}: 0:1.0 60:1.0 120:5.0 180:NaN 240:5.0"]);
    check(&world, "0 240 count:1m-avg-nan:m", expect!["{host}: 0:1.0 60:1.0 120:1.0 180:0.0 240:1.0"]);
    check(&world, "0 240 median:1m-avg-nan:m", expect!["{host}: 0:1.0 60:1.0 120:5.0 180:NaN 240:5.0"]);
}

#[test]
fn one_bucket_for_all_excludes_the_end_and_has_no_rate() {
    let world = World::load("m host=a 0:1 60:2 120:4");
    check(&world, "0 120 sum:0all-sum:m", expect!["host=a {}: 0:3.0"]);
    check(&world, "1 119 sum:0all-sum:m", expect!["host=a {}: 1:2.0"]);
    check(&world, "0 120 sum:0all-sum:rate:m", expect!["host=a {}:"]);
    check(&world, "!0 120 median:0all-sum:rate:m", expect!["host=a {}:"]);
}

#[test]
fn groups_exist_and_have_tags_also_without_values() {
    let world = World::load(
        "m host=a dc=x 0:1 60:1
         m host=b dc=x rack=r 3000:1
         m host=c dc=y 7200:1",
    );
    check(
        &world,
        "0 60 sum:m{host=*}",
        expect![[r#"
            dc=x,host=a {}: 0:1 60:1
            dc=x,host=b,rack=r {}:"#]],
    );
    // A tag that only one of two series carries is no difference.
    check(&world, "0 60 sum:1m-sum:m", expect!["dc=x,rack=r {host}: 0:1.0 60:1.0"]);
    check(&world, "20000 20060 sum:m", expect![[""]]);
}

#[test]
fn names_must_be_known_where_they_are_literal() {
    let world = World::load("m host=a dc=x 0:1\nother host=b 0:1");
    check(&world, "0 60 sum:nope", expect!["NotFound: no series has the metric 'nope'"]);
    check(&world, "0 60 sum:m{nope=*}", expect!["NotFound: no series has the tag key 'nope'"]);
    check(&world, "0 60 sum:m{host=a|nope}", expect!["NotFound: no series has the tag value 'nope'"]);
    // Known to another metric is known enough, and patterns need not match.
    check(&world, "0 60 sum:m{host=b}", expect![[""]]);
    check(&world, "0 60 sum:m{host=~nope}", expect![[""]]);
}

#[test]
fn filters_on_one_key_are_all_asked_and_explicit_tags_leave_no_other() {
    let world = World::load("m host=a1 0:1\nm host=a2 0:2\nm host=b1 dc=x 0:4");
    check(&world, "0 60 sum:m{host=a*,host=*1}", expect!["host=a1 {}: 0:1"]);
    check(&world, "0 60 sum:m{}{host=~1$}", expect!["dc=x {host}: 0:5"]);
    check(&world, "0 60 sum:explicit_tags:m{}{host=*}", expect!["{host}: 0:3"]);
    check(&world, "0 60 sum:explicit_tags:m", expect!["dc=x {host}: 0:7"]);
}

#[test]
fn an_infinite_result_is_an_error_inside_of_the_range_only() {
    let world = World::load("m host=a 0:1.5e308 60:1.0 120:1.0\nm host=b 0:1.5e308 60:1.0 120:1.0");
    check(
        &world,
        "0 120 sum:1m-avg:m",
        expect!["Invalid: the result at 0 ms is infinite; use a downsample or aggregator that stays in range"],
    );
    check(
        &world,
        "0 120 sum:m",
        expect!["Invalid: the result at 0 ms is infinite; use a downsample or aggregator that stays in range"],
    );
    check(&world, "60 120 sum:1m-avg:m", expect!["{host}: 60:2.0 120:2.0"]);
}

/// Noon of a day of 1970. Day 24 (January 25) was a Sunday.
fn noon(day: i64) -> i64 {
    day * 86_400 + 43_200
}

#[test]
fn calendar_intervals_have_one_grid_for_all_series() {
    let world =
        World::load(&format!("m host=a {}:1 {}:1\nm host=b {}:10 {}:10", noon(32), noon(46), noon(39), noon(53)));
    // The window starts with the two weeks from day 24 on; day 32 lies in them, before the start.
    let asked = format!("{} {} sum:2wc-sum-zero:m", 31 * 86_400, 66 * 86_400);
    check(&world, &asked, expect!["{host}: 3283200:11.0 4492800:10.0"]);
    // OpenTSDB counts from each series' own first sample, and loses what meets no filled bucket: all of A.
    check(&world, &format!("!{asked}"), expect!["{host}: 3283200:10.0 4492800:10.0"]);
    // Without a fill each series shows its own grid, interpolated on the other.
    check(
        &world,
        &format!("!{}", asked.replace("-zero", "")),
        expect!["{host}: 3283200:10.0 3888000:11.0 4492800:10.0"],
    );
}

#[test]
fn a_day_has_23_hours_when_clocks_are_set_forward() {
    // New York, 2013-03-10: midnight is 05:00 UTC, the next one 04:00 UTC.
    let world = World::load("m host=a 1362891600:1 1362974399:2 1362974400:4");
    check(
        &world,
        "1362891600 1362974400 sum:1dc@America/New_York-sum:m",
        expect!["host=a {}: 1362891600:3.0 1362974400:4.0"],
    );
}

#[test]
fn more_than_the_limits_is_an_error() {
    let mut world = World::load("m host=a 0:1 10:2 20:3 30:4\nm host=b 0:1 10:2");
    world.options.points_max = 6;
    world.options.answer_values_max = 4;
    check(&world, "0 30 sum:m", expect!["{host}: 0:2 10:4 20:3 30:4"]);
    check(&world, "0 30 sum:10s-sum:m", expect!["{host}: 0:2.0 10:4.0 20:3.0 30:4.0"]);
    world.options.answer_values_max = 3;
    check(
        &world,
        "0 30 sum:m",
        expect![
            "Invalid: the query produces more than 3 values; query less time, fewer series or a coarser downsample"
        ],
    );
    check(
        &world,
        "0 30 sum:10s-sum:m",
        expect![
            "Invalid: the query produces more than 3 values; query less time, fewer series or a coarser downsample"
        ],
    );
    world.options.points_max = 5;
    check(
        &world,
        "0 30 sum:m",
        expect![[
            "Invalid: the query produces more than 5 points; query less time, fewer series or a coarser downsample"
        ]],
    );
    // The fill would be as long as the window.
    check(
        &world,
        "0 30 median:1ms-sum-zero:m",
        expect![
            "Invalid: the query produces more than 5 points; query less time, fewer series or a coarser downsample"
        ],
    );
}

#[test]
fn memory_is_bounded_on_both_ways() {
    let mut world = World::new();
    let samples = || (0..40_000).map(|second| (Timestamp::from_seconds(second), Value::Int(second)));
    world.put("m", &[("host", "a")], samples());
    world.limit_memory(100_000);
    for asked in ["0 40000 sum:m", "0 40000 sum:1s-sum:m", "0 40000 median:1s-sum:m"] {
        assert!(matches!(world.ask(&query(asked)), Err(Error::Memory(_))), "{asked}: {:?}", world.ask(&query(asked)));
    }
    assert_eq!(world.text(&query("0 40000 sum:0all-count:m")), "host=a {}: 0:40000.0");
    // About a megabyte of answer: sums and what they are made of take a few times that.
    world.limit_memory(16 << 20);
    assert_eq!(world.ask(&query("0 40000 sum:1s-sum:m")).unwrap().groups[0].points.len(), 40_000);
}

#[test]
fn a_query_that_nobody_waits_for_stops_instead_of_giving_a_part_of_the_answer() {
    let world = World::load("m host=a 0:1\nm host=b 0:1");
    for asked in ["0 60 sum:m", "0 60 sum:1m-sum:m", "0 60 p99:1m-sum:m"] {
        let error = world.ask_in_vain(&query(asked)).unwrap_err().to_string();
        assert!(error.contains("the query was stopped"), "{error}");
    }
}

#[test]
fn hours_of_a_calendar_are_counted_from_the_first_sample_of_a_series() {
    // New York; clocks are set forward on 2013-03-10. A starts the day before, B the day after.
    let world = World::load(
        "m host=a 1362805200:1 1363100400:1
         m host=b 1362978000:10 1363100400:10",
    );
    let asked = "1362805200 1363104000 none:6hc@America/New_York-sum:m";
    // A: 00:00 EST and 07:00 EDT; B: 00:00 EDT and 06:00 EDT.
    check(
        &world,
        &format!("!{asked}"),
        expect![[r#"
            host=a {}: 1362805200:1.0 1363086000:1.0
            host=b {}: 1362974400:10.0 1363082400:10.0"#]],
    );
    // One grid, from the start of the window on.
    check(
        &world,
        asked,
        expect![[r#"
            host=a {}: 1362805200:1.0 1363086000:1.0
            host=b {}: 1362978000:10.0 1363086000:10.0"#]],
    );
}
