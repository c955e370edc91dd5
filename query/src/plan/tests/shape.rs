use expect_test::{Expect, expect};

use super::support::{World, query};
use crate::plan::Route;

#[track_caller]
fn check(asked: &str, expected: Expect) {
    let world = World::load("m host=a 0:1 60:2\nm host=b 0:1 60:2");
    expected.assert_eq(&world.explain(&query(asked)).unwrap());
}

#[test]
fn one_leaf_of_few_series_with_room_for_all_buckets_names_groups_and_adds_up_at_once() {
    check(
        "0 3600 avg:1m-max:rate:m",
        expect![[r#"
            NodeLeafExec: Series: groups and buckets of m, downsample max, rate, for avg
        "#]],
    );
}

#[test]
fn decomposable_aggregates_are_partial_at_the_leaf() {
    check(
        "0 86400 avg:1s-max:rate:m",
        expect![[r#"
            AggregateExec: mode=Final, gby=[group@0 as group, ts@1 as ts, series@2 as series], aggr=[value, count, real]
              CoalescePartitionsExec
                AggregateExec: mode=Partial, gby=[group@0 as group, ts@1 as ts, series@5 as series], aggr=[value, count, real]
                  NodeLeafExec: Series: groups and buckets of m, downsample max, rate, for avg
        "#]],
    );
    check(
        "0 3600 none:1m-max:m",
        expect![[r#"
            CoalescePartitionsExec
              NodeLeafExec: Series: groups and buckets of m, downsample max, for none
        "#]],
    );
}

#[test]
fn what_needs_all_values_at_once_sends_points() {
    check(
        "0 3600 p99:1m-max:m",
        expect![[r#"
        NodeLeafExec: Series: groups of m, downsample max, for p99
        NodeLeafExec: Series: points of m, downsample max, for p99
    "#]],
    );
}

#[test]
fn a_fine_grid_on_few_points_sends_points() {
    let world = World::load("m host=a 0:1 60:2\nm host=b 0:1 60:2");
    assert_eq!(world.route(&query("0 3600 sum:1s-sum:m")), Route::Pushdown);
    let day = query("0 86400 sum:1ms-sum:m");
    assert_eq!(world.route(&day), Route::Points);
    assert_eq!(world.text(&day), "{host}: 0:2.0 60:4.0");
    for asked in ["0 3600 sum:m", "0 3600 sum:1hc-sum:m", "0 3600 dev:1m-sum:m", "0 3600 first:1m-sum:m"] {
        assert_eq!(world.route(&query(asked)), Route::Points, "{asked}");
    }
}

#[test]
fn many_buckets_do_not_wait_for_their_groups() {
    check(
        "0 864000 avg:1s-max:rate:m",
        expect![[r#"
            NodeLeafExec: Series: groups of m, downsample max, rate, for avg
            AggregateExec: mode=Final, gby=[group@0 as group, ts@1 as ts], aggr=[value, count, real]
              CoalescePartitionsExec
                AggregateExec: mode=Partial, gby=[group@0 as group, ts@1 as ts], aggr=[value, count, real]
                  NodeLeafExec: Series: buckets of m, downsample max, rate, for avg
        "#]],
    );
}

/// 200 hosts of three racks: the series of a host lie together, those of a rack do not.
fn racks() -> World {
    let series: String = (0..200)
        .map(|host| {
            format!("m host=h{host} rack=r{} slot=0 0:1 60:2\nm host=h{host} rack=r{} slot=1 0:1\n", host % 3, host % 3)
        })
        .collect();
    World::load(&series)
}

#[test]
fn groups_that_stay_whole_in_a_part_of_a_leaf_need_no_aggregate_above() {
    let world = racks();
    let explained = |asked: &str| world.explain(&query(asked)).unwrap();
    expect![[r#"
        NodeLeafExec: Series: groups and buckets of m, downsample max, for sum
    "#]]
    .assert_eq(&explained("0 3600 sum:1m-max:m{host=*}"));
    // Too many to wait.
    expect![[r#"
        NodeLeafExec: Series: groups of m, downsample max, for sum
        NodeLeafExec: Series: buckets of m, downsample max, for sum
    "#]]
    .assert_eq(&explained("0 3600 sum:1s-max:m{host=*}"));
}

#[test]
fn groups_that_cut_across_what_lies_together_are_put_together_by_the_leaf_or_above_it() {
    let world = racks();
    // Threads take pieces of such a leaf.
    expect![[r#"
        NodeLeafExec: Series: groups and buckets of m, downsample max, for sum
    "#]]
    .assert_eq(&world.explain(&query("0 3600 sum:1m-max:m{rack=*}")).unwrap());
    // So many buckets of each piece would wait that parts of the leaf are put together above it.
    expect![[r#"
        AggregateExec: mode=Final, gby=[group@0 as group, ts@1 as ts, series@2 as series], aggr=[value, real]
          CoalescePartitionsExec
            AggregateExec: mode=Partial, gby=[group@0 as group, ts@1 as ts, series@5 as series], aggr=[value, real]
              NodeLeafExec: Series: groups and buckets of m, downsample max, for sum
    "#]]
    .assert_eq(&world.explain(&query("0 2400000 sum:1m-max:m")).unwrap());
    // A median is made of points, above the leaf.
    expect![[r#"
        NodeLeafExec: Series: groups of m, downsample max, for median
        NodeLeafExec: Series: points of m, downsample max, for median
    "#]]
    .assert_eq(&world.explain(&query("0 3600 median:1m-max:m{rack=*}")).unwrap());
}

#[test]
fn answers_of_one_round_have_each_group_once_whatever_lies_where() {
    let world = racks();
    for flushed in [false, true] {
        let hosts = world.ask(&query("0 3600 sum:1m-max:m{host=*}")).unwrap();
        assert_eq!(hosts.groups.len(), 200);
        for group in &hosts.groups {
            assert_eq!(group.series.len(), 2);
            assert_eq!(group.aggregate_tags, ["slot"]);
            let values: Vec<f64> = group.points.iter().map(|(_, value)| value.as_f64()).collect();
            assert_eq!(values, [2.0, 2.0]);
        }
        let racks = world.ask(&query("0 3600 count:1m-max:m{rack=*}")).unwrap();
        let counts: Vec<Vec<f64>> =
            racks.groups.iter().map(|group| group.points.iter().map(|(_, value)| value.as_f64()).collect()).collect();
        assert_eq!(counts, [[134.0, 67.0], [134.0, 67.0], [132.0, 66.0]]);
        assert!(racks.groups.iter().all(|group| group.series.is_sorted()));
        if !flushed {
            world.flush();
        }
    }
}
