//! The energy of jobs for people: one line for nodes, and one for GPUs.

use telem_query::energy::{GPU_SOURCE, JobEnergy};

use super::{counted, grouped, human, shown};

/// Less of the job's time that nothing is known of is not worth a word.
const UNKNOWN_TOLD: f64 = 0.01;

/// The lines of all jobs, each with its label. Jobs that shared a node have lines of their own, as the node's energy
/// counts for each of them; at most `jobs_max` have.
pub fn lines(rows: &[JobEnergy], jobs_max: usize) -> Vec<(&'static str, String)> {
    let mut jobs: Vec<&str> = rows.iter().map(|row| &*row.job).collect();
    jobs.dedup();
    let of = |rows: &[JobEnergy], name: &str| {
        let told = [("energy", of_nodes(rows)), ("gpus", of_gpus(rows))];
        let named = told.map(|(label, line)| line.map(|line| (label, format!("{name}{line}"))));
        named.into_iter().flatten().collect::<Vec<_>>()
    };
    if jobs.len() < 2 || !rows.iter().any(|row| row.is_shared) {
        return of(rows, "");
    }
    let groups = rows.chunk_by(|one, other| one.job == other.job).take(jobs_max);
    let mut lines: Vec<_> = groups.flat_map(|rows| of(rows, &format!("{}: ", shown(&rows[0].job)))).collect();
    if jobs.len() > jobs_max {
        lines.push((
            "energy",
            format!("of {} more jobs: the table job_energy", grouped((jobs.len() - jobs_max) as u64)),
        ));
    }
    lines
}

/// What the nodes took; `None` where nothing is known, and nothing was refused either.
pub fn of_nodes(rows: &[JobEnergy]) -> Option<String> {
    let nodes: Vec<&JobEnergy> = rows.iter().filter(|row| row.gpu.is_none()).collect();
    let known: Vec<(&JobEnergy, f64)> = nodes.iter().filter_map(|row| Some((*row, row.joules?))).collect();
    if known.is_empty() {
        return nodes.iter().find(|row| row.is_refused()).and_then(|row| row.reason.clone());
    }
    let joules: f64 = known.iter().map(|(_, joules)| joules).sum();
    let seconds: f64 = known.iter().map(|(row, _)| row.seconds).sum();
    let mut text = joules_text(joules);
    if known.len() > 1 {
        text += &format!(" on {} nodes", grouped(known.len() as u64));
    }
    // Counters of a node do not tell jobs apart.
    if known.iter().any(|(row, _)| row.is_shared && row.source.as_deref() != Some(GPU_SOURCE)) {
        let nodes = if known.len() > 1 { "these nodes" } else { "the node" };
        text += &format!(", of {nodes} while the job ran");
    }
    text += &format!(", mean {} W", human::short((joules / seconds).round()));
    if let [(one, _)] = &*known {
        text += &one.peak_watts.map(|peak| format!(", peak {} W", human::short(peak.round()))).unwrap_or_default();
    } else {
        text += " a node";
    }
    let mut sources: Vec<&str> = known.iter().filter_map(|(row, _)| row.source.as_deref()).collect();
    sources.sort_unstable();
    sources.dedup();
    text += &format!(", by {}", sources.join(" and "));
    let unknown: f64 = known.iter().map(|(row, _)| row.unknown_seconds).sum();
    if unknown > (seconds + unknown) * UNKNOWN_TOLD {
        text += &format!("; covers {:.0} % of the time", seconds / (seconds + unknown) * 100.0);
    }
    if nodes.len() > known.len() {
        text += &format!("; unknown on {}", counted((nodes.len() - known.len()) as u64, "node"));
    }
    Some(text + &doubts(&nodes))
}

/// What GPUs took and how long they idled; `None` without GPUs.
pub fn of_gpus(rows: &[JobEnergy]) -> Option<String> {
    let gpus: Vec<&JobEnergy> = rows.iter().filter(|row| row.gpu.is_some()).collect();
    if gpus.is_empty() {
        return None;
    }
    let mut text = counted(gpus.len() as u64, "GPU");
    let known: Vec<f64> = gpus.iter().filter_map(|row| row.joules).collect();
    if !known.is_empty() {
        text += &format!(", {}", joules_text(known.iter().sum()));
    }
    let hours = |of: fn(&JobEnergy) -> Option<f64>| -> Option<f64> {
        let known: Vec<f64> = gpus.iter().filter_map(|row| of(row)).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    };
    if let Some(all) = hours(|row| row.gpu_hours) {
        text += &format!(", {} GPU-hours", human::short(all));
    }
    if let Some(idle) = hours(|row| row.idle_gpu_hours) {
        text += &format!(", {} of them idle", human::short(idle));
    }
    if let Some(held) = hours(|row| row.held_idle_gpu_hours).filter(|held| *held > 0.0) {
        text += &format!(" ({} with memory held)", human::short(held));
    }
    Some(text + &doubts(&gpus))
}

fn doubts(rows: &[&JobEnergy]) -> String {
    let doubted: Vec<&JobEnergy> = rows.iter().copied().filter(|row| row.doubt.is_some()).collect();
    let Some(JobEnergy { node, gpu, doubt: Some(doubt), .. }) = doubted.first() else { return String::new() };
    let what = gpu.as_ref().map_or_else(|| node.to_string(), |gpu| format!("GPU {gpu} of {node}"));
    match doubted.len() - 1 {
        0 => format!("; DOUBTED of {what}: {doubt}"),
        others => format!("; DOUBTED of {what}: {doubt}, and {} more so", grouped(others as u64)),
    }
}

/// `12.3 MJ (3.42 kWh)`
fn joules_text(joules: f64) -> String {
    let (mut value, mut unit) = (joules, 0);
    let units = ["J", "kJ", "MJ", "GJ", "TJ"];
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1e3;
        unit += 1;
    }
    let decimals = if value >= 99.95 || unit == 0 { 0 } else { 1 };
    let kwh = joules / 3.6e6;
    let kwh_decimals = if kwh >= 100.0 {
        0
    } else if kwh >= 0.1 {
        2
    } else {
        4
    };
    format!("{value:.decimals$} {} ({kwh:.kwh_decimals$} kWh)", units[unit])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn row(node: &str, gpu: Option<&str>, joules: Option<f64>) -> JobEnergy {
        JobEnergy {
            job: Arc::from("7"),
            node: Arc::from(node),
            host: None,
            gpu: gpu.map(str::to_owned),
            source: joules.map(|_| "pm_counters".to_owned()),
            method: joules.map(|_| "counter".to_owned()),
            joules,
            kwh: joules.map(|joules| joules / 3.6e6),
            mean_watts: joules.map(|joules| joules / 100.0),
            peak_watts: joules.map(|joules| joules / 50.0),
            seconds: if joules.is_some() { 100.0 } else { 0.0 },
            unknown_seconds: 0.0,
            gpu_hours: None,
            idle_gpu_hours: None,
            held_idle_gpu_hours: None,
            is_shared: false,
            doubt: None,
            reason: None,
        }
    }

    #[test]
    fn the_energy_of_nodes_is_one_line() {
        let one = row("n1", None, Some(50_000.0));
        let told = of_nodes(std::slice::from_ref(&one)).unwrap();
        assert_eq!(told, "50.0 kJ (0.0139 kWh), mean 500 W, peak 1000 W, by pm_counters");
        let silent = row("n3", None, None);
        let half = JobEnergy { unknown_seconds: 100.0, doubt: Some("it stands still".to_owned()), ..one.clone() };
        let told = of_nodes(&[one, half, silent]).unwrap();
        assert_eq!(
            told,
            "100 kJ (0.0278 kWh) on 2 nodes, mean 500 W a node, by pm_counters; covers 67 % of the time; unknown on 1 \
             node; DOUBTED of n1: it stands still"
        );
    }

    #[test]
    fn the_energy_of_a_node_that_others_used_too_is_called_that() {
        let one = JobEnergy { is_shared: true, ..row("n1", None, Some(50_000.0)) };
        assert_eq!(
            of_nodes(std::slice::from_ref(&one)).unwrap(),
            "50.0 kJ (0.0139 kWh), of the node while the job ran, mean 500 W, peak 1000 W, by pm_counters"
        );
        let told = of_nodes(&[one.clone(), row("n2", None, Some(50_000.0))]).unwrap();
        assert!(told.contains("on 2 nodes, of these nodes while the job ran, mean"), "{told}");
        // The job's own GPUs are its own.
        let gpus = JobEnergy { source: Some(GPU_SOURCE.to_owned()), ..one };
        assert_eq!(of_nodes(&[gpus]).unwrap(), "50.0 kJ (0.0139 kWh), mean 500 W, peak 1000 W, by gpu");
    }

    #[test]
    fn jobs_that_shared_a_node_have_lines_of_their_own() {
        let of = |job: &str, is_shared| JobEnergy { job: Arc::from(job), is_shared, ..row("n1", None, Some(50_000.0)) };
        let gpu = JobEnergy { gpu: Some("0".to_owned()), ..of("b", true) };
        assert_eq!(
            lines(&[of("a", true), of("b", true), gpu.clone(), of("c", true)], 2),
            [
                (
                    "energy",
                    "a: 50.0 kJ (0.0139 kWh), of the node while the job ran, mean 500 W, peak 1000 W, by pm_counters"
                        .to_owned()
                ),
                (
                    "energy",
                    "b: 50.0 kJ (0.0139 kWh), of the node while the job ran, mean 500 W, peak 1000 W, by pm_counters"
                        .to_owned()
                ),
                ("gpus", "b: 1 GPU, 50.0 kJ (0.0139 kWh)".to_owned()),
                ("energy", "of 1 more jobs: the table job_energy".to_owned()),
            ]
        );
        // Of runs that came one after the other the sum.
        let sum = lines(&[of("a", false), of("b", false)], 2);
        assert!(sum.len() == 1 && sum[0].1.starts_with("100 kJ"), "{sum:?}");
    }

    #[test]
    fn nothing_is_said_where_there_is_nothing_and_the_reason_where_it_was_refused() {
        let nothing =
            JobEnergy { reason: Some(telem_query::energy::NOTHING_TELLS.to_owned()), ..row("n1", None, None) };
        assert_eq!(of_nodes(std::slice::from_ref(&nothing)), None);
        assert_eq!(of_gpus(std::slice::from_ref(&nothing)), None);
        let refused = JobEnergy { reason: Some("unknown, because /sys/x: no".to_owned()), ..nothing.clone() };
        assert_eq!(of_nodes(&[nothing, refused]).as_deref(), Some("unknown, because /sys/x: no"));
    }

    #[test]
    fn the_hours_of_gpus_are_one_line() {
        let gpu = |number| JobEnergy {
            gpu_hours: Some(1.5),
            idle_gpu_hours: Some(0.25),
            held_idle_gpu_hours: Some(0.1),
            ..row("n1", Some(number), Some(2_700_000.0))
        };
        assert_eq!(
            of_gpus(&[row("n1", None, Some(1.0)), gpu("0"), gpu("1")]).unwrap(),
            "2 GPUs, 5.4 MJ (1.50 kWh), 3 GPU-hours, 0.5 of them idle (0.2 with memory held)"
        );
        assert_eq!(of_gpus(&[row("n1", Some("0"), None)]).unwrap(), "1 GPU");
    }
}
