use std::os::unix::fs::PermissionsExt;

use telem_engine::{Db, Durability, SampleBatch, SeriesKey, TagSet, Timestamp, Value};

use super::*;

fn database(dir: &Path) {
    let db = Db::open(dir, Options { node: "n1".to_owned(), ..Options::default() }).unwrap();
    let series = db.series(&SeriesKey::new("loss", TagSet::new([("host", "n1")]).unwrap()).unwrap()).unwrap();
    let mut batch = SampleBatch::default();
    batch.push(series, Timestamp::from_seconds(1), Value::Int(1));
    db.append(&batch, Durability::Buffered).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
}

/// A run with files of its user, and who holds it.
fn held_run(dir: &Path) -> (PathBuf, Vec<DbClaim>) {
    let run = dir.join("run");
    database(&run.join("n1"));
    fs::create_dir_all(run.join("plots/old")).unwrap();
    fs::write(run.join("plots/old/WRITER"), "a file of this name").unwrap();
    fs::write(run.join("large"), "m".repeat(COMPARED_BYTES + 7)).unwrap();
    symlink("n1", run.join("latest")).unwrap();
    fs::set_permissions(&run, fs::Permissions::from_mode(0o750)).unwrap();
    let claims = SavedRun::find(&run).unwrap().claim(&Options::default()).unwrap();
    (run.canonicalize().unwrap(), claims)
}

#[test]
fn a_copied_run_has_everything_but_its_lock_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let (run, claims) = held_run(dir.path());
    let to = dir.path().join("kept");
    let written = fs::metadata(run.join("large")).unwrap().modified().unwrap();
    let copied = copy_beside(&run, &to, &claims).unwrap();
    remove_copied(&copied, claims).unwrap();
    fs::remove_dir(&run).unwrap();
    assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o750);
    assert_eq!(fs::metadata(to.join("large")).unwrap().modified().unwrap(), written);
    assert_eq!(fs::read_to_string(to.join("plots/old/WRITER")).unwrap(), "a file of this name");
    assert_eq!(fs::read_link(to.join("latest")).unwrap(), Path::new("n1"));
    assert_eq!(fs::metadata(to.join("large")).unwrap().len() as usize, COMPARED_BYTES + 7);
    assert!(!to.join("n1/WRITER").exists());
    assert_eq!(Db::open_read_only(&to.join("n1"), Options::default()).unwrap().info().unwrap().samples, 1);
    let here: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(here, ["kept"]);
}

#[test]
fn what_came_while_a_run_was_copied_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (run, claims) = held_run(dir.path());
    let copied = copy_beside(&run, &dir.path().join("kept"), &claims).unwrap();
    fs::write(run.join("plots/late.png"), "new").unwrap();
    fs::write(run.join("large"), "a program wrote on").unwrap();
    remove_copied(&copied, claims).unwrap();
    assert_eq!(fs::read_to_string(run.join("large")).unwrap(), "a program wrote on");
    assert!(run.join("plots/late.png").exists() && !run.join("plots/old").exists() && !run.join("n1").exists());
}

#[test]
fn a_copy_that_fails_takes_nothing_of_others_away_and_leaves_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let (run, claims) = held_run(dir.path());
    let to = dir.path().join("kept");
    // Another process was faster.
    fs::create_dir(&to).unwrap();
    fs::write(to.join("theirs"), "theirs").unwrap();
    let taken = copy_beside(&run, &to, &claims).unwrap_err();
    assert_eq!(taken.raw_os_error(), Some(Errno::EXIST.raw_os_error()), "{taken}");
    // What cannot be copied.
    rustix::fs::mknodat(CWD, run.join("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let refused = copy_beside(&run, &dir.path().join("other"), &claims).unwrap_err();
    assert!(refused.to_string().contains("neither a file nor a directory"), "{refused}");
    drop(claims);
    assert!(to.join("theirs").exists() && run.join("large").exists() && !dir.path().join("other").exists());
    assert!(Db::open_read_only(&run.join("n1"), Options::default()).is_ok());
    let mut here: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    here.sort();
    assert_eq!(here, ["kept", "run"]);
}

#[test]
fn a_file_that_differs_from_its_copy_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    fs::write(&one, "m".repeat(COMPARED_BYTES + 7)).unwrap();
    fs::write(&other, "m".repeat(COMPARED_BYTES + 7)).unwrap();
    compare(&one, &other).unwrap();
    fs::write(&other, "m".repeat(COMPARED_BYTES + 6) + "x").unwrap();
    assert!(compare(&one, &other).is_err());
}

#[test]
fn a_target_may_end_with_a_slash_and_must_not_be_there() {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().canonicalize().unwrap();
    fs::create_dir(own.join("kept")).unwrap();
    let run = own.join("run");
    assert_eq!(target(&run, &own.join("kept/")).unwrap(), own.join("kept/run"));
    assert_eq!(target(&run, &own.join("new/")).unwrap(), own.join("new"));
    fs::create_dir(own.join("kept/run")).unwrap();
    assert!(target(&run, &own.join("kept")).is_err() && target(&run, &run.join("below")).is_err());
    assert!(!own.join("new").exists());
}
