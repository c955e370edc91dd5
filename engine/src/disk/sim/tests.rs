use std::path::Path;

use super::*;

const DIR: &str = "/db";

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

/// A disk with the durable, empty directory [`DIR`].
fn disk() -> SimDisk {
    let disk = SimDisk::new(7);
    disk.create_dir(Path::new(DIR)).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

/// A file whose content and name are durable.
fn durable_file(disk: &SimDisk, name: &str, bytes: &[u8]) -> Box<dyn WriteFile> {
    let mut file = disk.create(&path(name)).unwrap();
    file.append(bytes).unwrap();
    file.sync().unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
    file
}

/// What 500 power losses make of `disk`, without repetitions.
fn outcomes<T: Ord>(disk: &SimDisk, look: impl Fn(&SimDisk) -> T) -> Vec<T> {
    let mut random = Random::new(42);
    let mut seen: Vec<T> = (0..500).map(|_| look(&disk.fork().power_loss(&mut random))).collect();
    seen.sort();
    seen.dedup();
    seen
}

#[test]
fn what_was_synced_survives_every_power_loss() {
    let disk = disk();
    durable_file(&disk, "a", b"kept");
    assert_eq!(outcomes(&disk, |disk| disk.content(&path("a"))), [Some(b"kept".to_vec())]);
}

#[test]
fn a_file_whose_name_was_never_synced_may_be_gone_and_may_be_there() {
    let disk = disk();
    disk.create(&path("a")).unwrap().sync().unwrap();
    assert_eq!(outcomes(&disk, |disk| disk.files().len()), [0, 1]);
}

#[test]
fn a_directory_whose_name_was_never_synced_takes_its_files_along() {
    let disk = disk();
    disk.create_dir(&path("wal")).unwrap();
    disk.create(&path("wal/1")).unwrap();
    disk.sync_dir(&path("wal")).unwrap();
    assert_eq!(outcomes(&disk, |disk| disk.files().len()), [0, 1]);
    disk.sync_dir(Path::new(DIR)).unwrap();
    assert_eq!(outcomes(&disk, |disk| disk.files().len()), [1]);
}

#[test]
fn an_unsynced_append_is_lost_torn_kept_or_replaced_by_other_bytes_behind_what_was_synced() {
    let disk = disk();
    let mut file = durable_file(&disk, "a", b"kept");
    file.append(b"lost?").unwrap();
    let seen = outcomes(&disk, |disk| disk.content(&path("a")).unwrap());
    assert!(seen.iter().all(|bytes| bytes.starts_with(b"kept") && bytes.len() <= 9), "{seen:?}");
    for expected in [&b"kept"[..], b"keptlo", b"keptlost?", b"kept\0\0\0\0\0"] {
        assert!(seen.iter().any(|bytes| bytes == expected), "{expected:?} is missing from {seen:?}");
    }
}

#[test]
fn later_blocks_may_persist_without_earlier_ones() {
    let disk = disk();
    let mut file = durable_file(&disk, "a", b"");
    file.append(&[1; 4096]).unwrap();
    file.append(&[2; 4096]).unwrap();
    let seen = outcomes(&disk, |disk| disk.content(&path("a")).unwrap());
    assert!(seen.iter().any(|bytes| bytes.len() == 8192 && bytes[0] == 0 && bytes[8191] == 2));
}

#[test]
fn a_truncation_is_durable_only_after_a_sync() {
    let disk = disk();
    let mut file = durable_file(&disk, "a", b"abcd");
    file.truncate(1).unwrap();
    assert_eq!(disk.content(&path("a")).unwrap(), b"a");
    let seen = outcomes(&disk, |disk| disk.content(&path("a")).unwrap().len());
    assert_eq!(seen, [1, 2, 3, 4]);
    file.sync().unwrap();
    assert_eq!(outcomes(&disk, |disk| disk.content(&path("a")).unwrap()), [b"a"]);
}

#[test]
fn a_rename_over_a_file_leaves_the_old_content_or_the_new_never_neither() {
    let disk = disk();
    durable_file(&disk, "MANIFEST", b"old");
    let mut file = disk.create(&path("MANIFEST.tmp")).unwrap();
    file.append(b"new").unwrap();
    file.sync().unwrap();
    disk.rename(&path("MANIFEST.tmp"), &path("MANIFEST")).unwrap();
    assert_eq!(disk.content(&path("MANIFEST")).unwrap(), b"new");
    assert_eq!(outcomes(&disk, |disk| disk.content(&path("MANIFEST"))), [Some(b"new".to_vec()), Some(b"old".to_vec())]);
}

#[test]
fn a_removed_file_may_come_back_and_stays_readable_for_who_has_it_open() {
    let disk = disk();
    durable_file(&disk, "a", b"kept");
    let open = disk.open(&path("a")).unwrap();
    disk.remove(&path("a")).unwrap();
    let mut bytes = [0; 4];
    open.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"kept");
    assert_eq!(disk.open(&path("a")).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(outcomes(&disk, |disk| disk.files().len()), [0, 1]);
}

#[test]
fn a_killed_process_loses_nothing_but_makes_nothing_durable() {
    let disk = disk();
    durable_file(&disk, "a", b"kept").append(b"!").unwrap();
    let next = disk.kill();
    assert_eq!(next.content(&path("a")).unwrap(), b"kept!");
    assert!(outcomes(&next, |disk| disk.content(&path("a")).unwrap().len()).contains(&4));
}

#[test]
fn who_still_has_the_old_disk_open_changes_nothing_on_the_next() {
    let disk = disk();
    let mut file = durable_file(&disk, "a", b"kept");
    let next = disk.kill();
    assert!(file.append(b"!").is_err());
    assert!(disk.remove(&path("a")).is_err());
    assert_eq!(next.content(&path("a")).unwrap(), b"kept");
}

#[test]
fn a_full_disk_takes_a_part_of_an_append_until_space_is_free() {
    let disk = disk();
    let mut file = durable_file(&disk, "a", b"kept");
    disk.inject(Fault { failure: Failure::Full, after: 1 });
    file.append(b"1").unwrap();
    assert_eq!(file.append(b"23").unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(disk.create(&path("b")).unwrap_err().kind(), io::ErrorKind::StorageFull);
    let kept = disk.content(&path("a")).unwrap();
    assert!(b"kept123".starts_with(&kept) && kept.len() >= 5, "{kept:?}");
    file.truncate(5).unwrap();
    disk.heal();
    file.append(b"23").unwrap();
    assert_eq!(disk.content(&path("a")).unwrap(), b"kept123");
    assert_eq!(disk.faults_struck(), 2);
}

#[test]
fn what_a_failed_sync_lost_no_later_sync_brings_back() {
    let disk = disk();
    let mut file = durable_file(&disk, "a", b"");
    let lost = [1; 1 << 16];
    file.append(&lost).unwrap();
    disk.inject(Fault { failure: Failure::Sync, after: 0 });
    file.sync().unwrap_err();
    assert!(disk.content(&path("a")).unwrap() == lost, "the page cache still has it");
    file.append(&[2; 10]).unwrap();
    file.sync().unwrap();
    let seen = outcomes(&disk, |disk| disk.content(&path("a")).unwrap());
    assert_eq!(seen.len(), 1, "all is synced as far as it can be");
    let (hole, rest) = seen[0].split_at(lost.len());
    assert!(hole != lost);
    assert_eq!(rest, [2; 10]);
}

#[test]
fn death_strikes_once_the_operations_before_it_went_well_and_ends_everything() {
    let disk = disk();
    disk.inject(Fault { failure: Failure::Death, after: 1 });
    let mut file = disk.create(&path("a")).unwrap();
    file.append(b"xy").unwrap_err();
    file.append(b"z").unwrap_err();
    disk.open(&path("a")).unwrap_err();
    let kept = disk.kill().content(&path("a")).unwrap();
    assert!(b"xy".starts_with(&kept), "{kept:?}");
}

#[test]
fn the_same_seed_gives_the_same_disk() {
    let run = || {
        let disk = disk();
        disk.inject(Fault { failure: Failure::Full, after: 2 });
        let mut file = disk.create(&path("a")).unwrap();
        file.append(&[1; 100]).unwrap();
        file.append(&[2; 100]).unwrap_err();
        let mut random = Random::new(3);
        (0..20).map(|_| disk.fork().power_loss(&mut random).content(&path("a"))).collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}

#[test]
fn it_answers_mistakes_as_the_real_disk_does() {
    let disk = disk();
    durable_file(&disk, "a", b"kept");
    let kind = |result: io::Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(disk.create(&path("a")).map(drop)), io::ErrorKind::AlreadyExists);
    assert_eq!(kind(disk.create(&path("no/b")).map(drop)), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.reopen(&path("b")).map(drop)), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.rename(&path("b"), &path("c"))), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.remove(&path("b"))), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.list(&path("no")).map(drop)), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.sync_dir(&path("no"))), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.open(&path("a")).unwrap().read_at(3, &mut [0; 2])), io::ErrorKind::UnexpectedEof);
}
