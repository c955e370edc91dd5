//! Panels of the page over a head with three agents, of which one is killed.

use super::*;

/// How many lines the answers to panels have, and which nodes they lack.
fn panels(head: &Server) -> Vec<(usize, Vec<String>)> {
    let start = 1_767_225_600_000_i64;
    let ranks = |more: Json| {
        let mut panel = json!({"metric": "loss", "by": ["rank"]});
        panel.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        panel
    };
    let question = json!({
        "start": start, "end": start + 10_000, "columns": 10,
        "panels": [
            ranks(json!({})), ranks(json!({"function": "sum"})), ranks(json!({"matrix": true})),
            // One line of all nodes: its columns meet on the way to the head.
            json!({"metric": "loss"}),
        ],
    });
    let answer = head.post("/api/panels", &question).expect(200).text();
    let panels = answer.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    let of_panel = |panel: Json| {
        let missing = panel["missing"].as_array().unwrap_or_else(|| panic!("{panel}"));
        let missing = missing.iter().map(|one| one["node"].as_str().unwrap().to_owned()).collect();
        (panel["lines"].as_u64().unwrap() as usize, missing)
    };
    panels.map(of_panel).collect()
}

/// Three panels with so many lines, and one with one line of all of them.
fn answer_of(lines: usize, missing: &[&str]) -> Vec<(usize, Vec<String>)> {
    let missing: Vec<String> = missing.iter().map(|node| (*node).to_owned()).collect();
    [lines, lines, lines, 1].into_iter().map(|lines| (lines, missing.clone())).collect()
}

#[test]
fn panels_name_the_agent_that_was_killed_and_have_the_lines_of_all_others() {
    let job = Job::new();
    let head = job.head(&[]);
    let agents = [job.agent("n1", "a"), job.agent("n2", "b"), job.agent("n3", "c")];
    for (rank, agent) in (1..).zip(&agents) {
        put(agent, rank);
    }
    wait_for_ranks(&head, "n1 1, n2 2, n3 3");
    assert_eq!(panels(&head), answer_of(3, &[]));
    let [_one, two, _three] = agents;
    two.kill();
    wait_for_states(&head, "head head up, n1 up, n2 suspect, n3 up");
    assert_eq!(panels(&head), answer_of(2, &["n2"]));
    let page = head.get("/api/page").expect(200).json();
    assert_eq!(page["missing"][0]["node"], "n2", "{page}");
    let nodes: Vec<String> =
        page["nodes"].as_array().unwrap().iter().map(|one| format!("{} {}", one["name"], one["state"])).collect();
    assert_eq!(nodes, [r#""head" "up""#, r#""n1" "up""#, r#""n2" "down""#, r#""n3" "up""#]);
}
