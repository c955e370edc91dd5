//! What is missing from an export of a running job, and that the export says so.

use super::{Job, put, wait_for_ranks, wait_for_states};
use crate::process::telem;

#[test]
fn an_export_names_the_nodes_that_it_lacks_and_with_strict_leaves_nothing() {
    let job = Job::new();
    let head = job.head(&[]);
    let (one, two) = (job.agent("n1", "a"), job.agent("n2", "b"));
    wait_for_states(&head, "head head up, n1 up, n2 up");
    for (rank, node) in [&head, &one, &two].into_iter().enumerate() {
        put(node, rank as u32);
    }
    wait_for_ranks(&head, "head 0, n1 1, n2 2");
    let url = format!("http://{}", head.address);
    let export = |out: &str, more: &[&str]| {
        let done = telem(["export", &url, "-o", job.path(out).to_str().unwrap()]).args(more).output().unwrap();
        (done.status.success(), String::from_utf8(done.stderr).unwrap())
    };
    let rows = |out: &str| std::fs::read_to_string(job.path(out)).unwrap().lines().count() - 1;
    let (succeeds, said) = export("whole.csv", &["--strict"]);
    assert!(succeeds && !said.contains("lack") && rows("whole.csv") == 3, "{said}");

    two.kill();
    wait_for_states(&head, "head head up, n1 up, n2 suspect");
    let (succeeds, said) = export("others.csv", &[]);
    assert!(succeeds && rows("others.csv") == 2, "{said}");
    assert_eq!(said.matches("n2=").count(), 1, "{said}");
    assert!(said.contains("warning: the export lacks nodes: n2="), "{said}");
    for out in ["strict.csv", "strict/", "whole.csv"] {
        let (succeeds, said) = export(out, &["--strict"]);
        assert!(!succeeds && said.contains("these nodes would be missing from the export: n2="), "{said}");
    }
    assert_eq!(rows("whole.csv"), 3, "what was there before");
    let left = |name: &str| {
        std::fs::read_dir(job.dir.path())
            .unwrap()
            .flatten()
            .any(|found| found.file_name().to_string_lossy().contains(name))
    };
    assert!(!left("strict"), "no half of it is left");

    one.kill();
    wait_for_states(&head, "head head up, n1 suspect, n2 suspect");
    let (succeeds, said) = export("nobody.csv", &["--metric", "only.there"]);
    assert!(!succeeds && said.contains("n1=") && said.contains("n2="), "why there is no such metric: {said}");
}
