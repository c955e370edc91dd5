//! The fuzz target of the table that amdgpu tells its metrics in.

use crate::collect::gpu::amd::table::{AmdLayout, AmdMetrics, DIES, LAYOUTS, PARTITIONS_MAX, parse};

/// Of a table that was read, one with the same numbers at the places of its version is read the same, and of a version
/// with another size only the beginning is believed.
pub fn gpu_metrics(table: &[u8]) {
    let Some(metrics) = parse(table) else { return };
    for share in [metrics.compute_activity, metrics.memory_activity].into_iter().chain(metrics.partitions.clone()) {
        assert!(share.is_none_or(|percent| percent <= 100), "{metrics:?}");
    }
    let layout = LAYOUTS.iter().find(|layout| layout.content == table[3]).expect("a version that is read");
    if table[..2] == layout.size.to_le_bytes() {
        assert_eq!(parse(&written(layout, &metrics)), Some(metrics));
        return;
    }
    let AmdMetrics { hotspot, memory_temperature, power, compute_activity, memory_activity, .. } = metrics;
    let beginning =
        AmdMetrics { hotspot, memory_temperature, power, compute_activity, memory_activity, ..AmdMetrics::default() };
    assert_eq!(metrics, beginning);
}

/// A table of that version with these numbers and no others.
fn written(layout: &AmdLayout, metrics: &AmdMetrics) -> Vec<u8> {
    let mut table = vec![0xff; usize::from(layout.size)];
    let mut put = |at: usize, bytes: &[u8]| table[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &layout.size.to_le_bytes());
    put(2, &[1, layout.content]);
    let short = [
        (layout.edge, metrics.edge),
        (Some(layout.hotspot), metrics.hotspot),
        (Some(layout.memory_temperature), metrics.memory_temperature),
        (Some(layout.power), metrics.power),
        (Some(layout.compute_activity), metrics.compute_activity),
        (Some(layout.compute_activity + 2), metrics.memory_activity),
        (Some(layout.compute_clock), metrics.compute_clock),
        (Some(layout.memory_clock), metrics.memory_clock),
    ];
    for (at, number) in short {
        if let (Some(at), Some(number)) = (at, number) {
            put(at, &number.to_le_bytes());
        }
    }
    if let Some(energy) = metrics.energy {
        put(layout.energy, &energy.to_le_bytes());
    }
    for (first, sum) in layout.links.into_iter().flatten().zip(metrics.links) {
        // All of it over the first two links: a sum of all ones does not fit into one.
        if let Some(sum) = sum {
            put(first, &(sum / 2).to_le_bytes());
            put(first + 8, &(sum - sum / 2).to_le_bytes());
        }
    }
    if let (Some(first), Some(residencies)) = (layout.residencies, metrics.residencies) {
        let [socket, regulators, memory] = residencies.thermal;
        let all = [residencies.looks, residencies.prochot, residencies.power, socket, regulators, memory];
        for (place, number) in all.into_iter().enumerate() {
            put(first + 4 * place, &number.to_le_bytes());
        }
    }
    if let Some(partitions) = layout.partitions {
        assert!(metrics.partitions.len() <= PARTITIONS_MAX);
        if let Ok(count) = u16::try_from(metrics.partitions.len()) {
            put(partitions.count, &count.max(1).to_le_bytes());
        }
        for (number, share) in metrics.partitions.iter().enumerate() {
            let first = partitions.first + number * partitions.stride;
            for (die, share) in share.iter().cycle().take(DIES).enumerate() {
                put(first + 4 * die, &u32::from(*share).to_le_bytes());
            }
        }
    }
    table
}
