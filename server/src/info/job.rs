//! The description of a job, for people: what ran, when, and how it ended. Its fields are its writer's; those that
//! `telem run` writes are known here, and what is missing or of another kind is left out.

use serde_json::Value as Json;

use super::Info;

/// A line for every job whose databases these are, the same job of several nodes once.
pub fn jobs(info: &Info) -> Vec<String> {
    let of_databases = info.databases.iter().filter_map(|database| database.job.as_ref());
    let mut lines: Vec<String> = Vec::new();
    for line in of_databases.chain(&info.job).map(line) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

fn line(job: &Json) -> String {
    let text = |name: &str| job[name].as_str().map(shown);
    let mut line = text("id").unwrap_or_else(|| "(without an id)".to_owned());
    if let Some(words) = job["command"].as_array() {
        let words: Vec<String> = words.iter().filter_map(Json::as_str).map(quoted).collect();
        line.push_str(&format!(": {}", words.join(" ")));
    }
    match (text("start"), text("end")) {
        (Some(start), Some(end)) => line.push_str(&format!("; {start} to {end}")),
        (Some(start), None) => line.push_str(&format!("; since {start}, its end is not recorded")),
        _ => {}
    }
    if let Some(code) = job["exit_code"].as_i64() {
        line.push_str(&format!(", exit code {code}"));
    } else if let Some(signal) = job["signal"].as_i64() {
        line.push_str(&format!(", killed by signal {signal}"));
    }
    line
}

/// A word of a command line, in quotes where a shell would need them.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-+=./:,@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", shown(&word.replace('\'', "'\\''"))),
    }
}

/// Text of somebody else's, without what would move a terminal's cursor.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
