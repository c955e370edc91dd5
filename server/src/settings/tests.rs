use serde_json::json;

use super::*;

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn settings_are_pairs_and_files_and_the_later_wins() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.json");
    fs::write(&file, r#"{"lr": 0.1, "model": {"depth": 12, "name": "vit"}, "sizes": [1, 2], "note": null}"#).unwrap();
    let found = settings(&texts(&[file.to_str().unwrap(), "lr=3e-4", "fast=true", "title=a = b", "empty="])).unwrap();
    let expected = json!({
        "lr": 3e-4, "model.depth": 12, "model.name": "vit", "sizes": "[1,2]", "note": null, "fast": true,
        "title": "a = b", "empty": "",
    });
    assert_eq!(Json::Object(found), expected);
}

#[test]
fn files_of_settings_are_json_yaml_or_toml() {
    let dir = tempfile::tempdir().unwrap();
    let expected = json!({"lr": 3e-4, "model.depth": 12, "sizes": "[1,2]", "day": "2026-01-02", "most": "inf"});
    for (name, text) in [
        ("a.yaml", "lr: 3e-4\nmodel: {depth: 12}\nsizes:\n- 1\n- 2\nday: 2026-01-02\nmost: inf\n"),
        ("a.toml", "lr = 3e-4\nsizes = [1, 2]\nday = 2026-01-02\nmost = inf\n[model]\ndepth = 12\n"),
        ("a.conf", r#"{"lr": 3e-4, "model": {"depth": 12}, "sizes": [1, 2], "day": "2026-01-02", "most": "inf"}"#),
    ] {
        let file = dir.path().join(name);
        fs::write(&file, text).unwrap();
        let found = settings(&texts(&[file.to_str().unwrap()])).unwrap();
        assert_eq!(Json::Object(found), expected, "{name}");
    }
}

#[test]
fn what_is_no_setting_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let refused = |text: String| settings(&[text]).unwrap_err();
    assert!(refused("nowhere.json".to_owned()).contains("neither KEY=VALUE nor a file"));
    assert!(refused(at("list.json", "[1]")).contains("no object"));
    assert!(refused(at("half.json", "{\"lr\": ")).contains("no JSON"));
    assert!(refused(at("bad.yml", "a: [\n")).contains("no YAML: "));
    assert!(refused(at("bad.toml", "a = \n")).contains("no TOML: "));
    assert!(refused("=3".to_owned()).contains("without a name"));
    assert!(refused(format!("k={}", "x".repeat(SETTING_BYTES_MAX + 1))).contains("at most 4096"));
    assert!(settings(&[format!("k={}", "x".repeat(SETTING_BYTES_MAX))]).is_ok());
    assert!(refused(format!("{}=1", "k".repeat(SETTING_NAME_BYTES_MAX + 1))).contains("at most 256"));
    let many: Vec<String> = (0..=SETTINGS_MAX).map(|at| format!("k{at}=1")).collect();
    assert!(settings(&many[1..]).is_ok() && settings(&many).unwrap_err().contains("more than 1000"));
    assert!(tags(&texts(&["team"])).unwrap_err().contains("KEY=VALUE"));
    assert_eq!(Json::Object(tags(&texts(&["team=a", "n=1"])).unwrap()), json!({"team": "a", "n": "1"}));
}

#[test]
fn the_commit_is_read_from_loose_and_packed_references_and_detached_heads() {
    let (one, two) = ("1".repeat(40), "2".repeat(40));
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("src/deep");
    fs::create_dir_all(&inside).unwrap();
    let git_dir = dir.path().join(".git");
    fs::create_dir_all(git_dir.join("refs/heads")).unwrap();
    let write = |name: &str, text: &str| fs::write(git_dir.join(name), text).unwrap();

    write("HEAD", &format!("{one}\n"));
    assert_eq!(git(&inside), Some(json!({ "commit": one })));
    write("HEAD", "ref: refs/heads/main\n");
    assert_eq!(git(&inside), None, "a branch without a commit");
    write("packed-refs", &format!("# pack-refs with: peeled\n{two} refs/heads/other\n{one} refs/heads/main\n"));
    assert_eq!(git(&inside), Some(json!({ "commit": one, "branch": "main" })));
    write("refs/heads/main", &format!("{two}\n"));
    assert_eq!(git(&inside), Some(json!({ "commit": two, "branch": "main" })));

    // A worktree of it.
    let tree = tempfile::tempdir().unwrap();
    let own = git_dir.join("worktrees/tree");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(own.join("commondir"), "../..\n").unwrap();
    fs::write(tree.path().join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
    assert_eq!(git(tree.path()), Some(json!({ "commit": two, "branch": "main" })));
}

#[test]
fn labels_that_would_make_a_description_too_long_are_refused_and_leave_it_as_it_was() {
    let long = "x".repeat(SETTING_BYTES_MAX);
    let many: Vec<String> = (0..300).map(|at| format!("s{at}={long}")).collect();
    assert!(settings(&many).unwrap_err().contains("the settings have"));
    assert!(tags(&many).unwrap_err().contains("the tags have"));
    assert!(settings(&many[..200]).is_ok());
    assert!(check_name(&"n".repeat(SETTING_BYTES_MAX + 1)).is_err() && check_name("n").is_ok());
    // What the job says in several requests counts together.
    let some = |from: usize| RunLabels { settings: settings(&many[from..from + 150]).unwrap(), ..RunLabels::default() };
    let first = some(0).onto(serde_json::json!({"id": "7"})).unwrap();
    assert!(some(150).onto(first).unwrap_err().contains("together"));
}

#[test]
fn a_pipe_of_settings_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let refused = settings(&[pipe.display().to_string()]).unwrap_err();
    assert!(refused.contains("no regular file"), "{refused}");
}

#[test]
fn the_control_group_of_a_job_is_told_unless_it_is_the_whole_machine() {
    let v2 = "0::/system.slice/slurmstepd.scope/job_7/step_0\n";
    let v1 = "9:name=systemd:/user\n4:cpuset,memory:/slurm/uid_1/job_7\n1:cpu:/\n";
    let both = "4:memory:/slurm/job_7\n0::/\n";
    assert_eq!(cgroup_of(v2).as_deref(), Some("/system.slice/slurmstepd.scope/job_7/step_0"));
    assert_eq!(cgroup_of(v1).as_deref(), Some("/slurm/uid_1/job_7"));
    assert_eq!(cgroup_of(both).as_deref(), Some("/slurm/job_7"));
    for none in ["", "0::/\n", "4:memory:/\n", "garbage", "1:cpu:/x\n"] {
        assert_eq!(cgroup_of(none), None, "{none}");
    }
}
