//! No content of a file causes a panic: random bytes, and recorded files that were cut and overwritten.

use proptest::prelude::*;

use super::*;

/// All files of the recording that are read.
fn recorded_files() -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut dirs = vec![recording("first")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() {
                dirs.push(entry.path());
            } else {
                let path = entry.path().strip_prefix(recording("first")).unwrap().to_path_buf();
                files.push((path, fs::read(entry.path()).unwrap()));
            }
        }
    }
    files.sort();
    files
}

/// What every parser makes of it; only that it ends is of interest.
fn parse_as_everything(text: &[u8]) {
    cpu::parse(text).for_each(drop);
    load::parse(text);
    memory::entries(text).filter_map(|(_, rest)| memory::bytes(rest)).for_each(drop);
    pressure::parse(text);
    assert!(disk::parse(text).filter(|(name, _)| disk::is_disk(name)).count() <= text.len());
    network::parse(text).for_each(drop);
    mounts::parse(text);
    inventory::processors(text);
    processes::parse_stat(text);
    processes::parse_io(text);
    processes::parse_page_bytes(text);
    cgroup::parse_as_everything(text);
    crate::fuzzing::kernel_text(text);
    energy::cray::parse(text, "W");
    energy::cray::parse(text, "J");
    // Energy counters, sensors, errors of memory and ports are one number each.
    text::fields(text).for_each(|field| {
        let _ = (text::number(field), text::float(field));
    });
    text::fields(text).fold(unwrapped::Unwrapped::new(Some(1 << 38)), |mut counter, field| {
        counter.next_or_last(text::number(field));
        counter
    });
    fabric::infiniband::parse_state(text);
    fabric::cxi::parse_item(text);
    fabric::cxi::least_size(&String::from_utf8_lossy(text), "hni_tx_ok_");
    lustre::parse(text).for_each(drop);
    nfs::parse(text);
    numa::parse_pages(text).for_each(drop);
    numa::parse_sizes(text).for_each(drop);
    schedstat::parse(text).for_each(drop);
    tcp::parse(text);
    gpu::amd::table::parse(text);
    gpu::amd::parse_errors(text);
    gpu::clients::parse_fdinfo(text);
    gpu::clients::parse_place(text);
    sleep::of_status(text);
}

proptest! {
    #[test]
    fn random_bytes_are_read_as_nothing_or_something(text in proptest::collection::vec(any::<u8>(), 0..400)) {
        parse_as_everything(&text);
    }

    #[test]
    fn words_and_numbers_in_any_order_are_read(
        words in proptest::collection::vec(
            prop_oneof![
                "[0-9]{0,3}-[0-9]{0,20},|259:0|rbytes=|Read|samples|\\[bytes\\]|device|nfs4|bytes:|per-op|Tcp:|RetransSegs|@",
                "cpu[0-9]{0,12}|some|full|total=|MemTotal:|kB|sda|nvme|eth0:|\\(|\\)|\\n|:|lo:|\\\\777|\\\\040|/",
                any::<u64>().prop_map(|number| number.to_string()),
                any::<f64>().prop_map(|number| number.to_string()),
            ],
            0..40,
        ),
        glue in "[ \n\t]",
    ) {
        parse_as_everything(words.join(&glue).as_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn a_damaged_tree_is_sampled_as_far_as_it_goes(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..60),
    ) {
        let mut files = recorded_files();
        for (which, at, byte) in damage {
            let count = files.len();
            let (_, bytes) = &mut files[which.index(count)];
            if bytes.is_empty() {
                continue;
            }
            let at = at.index(bytes.len());
            match byte {
                0..=99 => bytes[at] = byte,
                100..=149 => bytes.truncate(at),
                150..=199 => drop(bytes.remove(at)),
                _ => bytes.splice(at..at, b"18446744073709551615 ".iter().copied()).for_each(drop),
            }
        }
        let (tree, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut world = World::following(4, tree, database, Some(JobTarget::of_node("j1")));
        for pid in [4242, 4243] {
            world.write(&format!("proc/{pid}/environ"), "TELEM_JOB=j1\0");
        }
        for (path, bytes) in &files {
            world.write(path.to_str().unwrap(), bytes);
        }
        for second in [1_000, 1_005, 1_010] {
            world.tick(second);
        }
    }
}

/// What happens to the files of a tree.
type Damage = Vec<(prop::sample::Index, prop::sample::Index, u8)>;

fn damage() -> impl Strategy<Value = Damage> {
    proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..40)
}

/// All files below `dir` that are no links.
pub(super) fn files_below(dir: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(dir).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files_below(&entry.path(), found),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

fn damage_files(root: &Path, damage: &Damage) {
    let mut files = Vec::new();
    files_below(root, &mut files);
    for (which, at, how) in damage {
        let path = &files[which.index(files.len())];
        let mut bytes = fs::read(path).unwrap();
        if bytes.is_empty() {
            continue;
        }
        let at = at.index(bytes.len());
        match how {
            0..=69 => bytes[at] = *how,
            70..=109 => bytes.truncate(at),
            110..=139 => drop(bytes.remove(at)),
            140..=169 => bytes.splice(at..at, *b"18446744073709551615 ").for_each(drop),
            170..=199 => bytes.splice(.., *b"9223372036854775807\n").for_each(drop),
            200..=229 => bytes.splice(.., *b"-1\n").for_each(drop),
            _ => bytes.clear(),
        }
        fs::write(path, bytes).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    /// Energy counters, meters, sensors, fabrics, parallel file systems, control groups, NUMA nodes and cards.
    #[test]
    fn a_damaged_machine_is_sampled_as_far_as_it_goes(
        which in any::<prop::sample::Index>(), level in 2u8..=4, early in damage(), late in damage(),
    ) {
        let all = machines::machines();
        let path = which.get(&all);
        let mut machine = machines::machine(path, level);
        damage_files(machine.world.tree.path(), &early);
        machine.sample(1_000);
        damage_files(machine.world.tree.path(), &late);
        machine.sample(1_010);
        machine.sample(1_070);
    }
}

#[test]
fn numbers_that_can_be_no_count_are_no_samples() {
    let mut world = World::empty(2);
    let max = u64::MAX;
    world.write("proc/stat", format!("cpu {max} {max} {max} {max} {max} {max} {max} {max}\nctxt {max}\n"));
    world.write("proc/meminfo", format!("MemTotal: {max} kB\nMemAvailable: {max} kB\n"));
    let numbers = [max; 11].map(|number| number.to_string()).join(" ");
    world.write("proc/diskstats", format!("8 0 sda {numbers}\n8 16 sdb {numbers}\n"));
    world.write("proc/loadavg", "-1 2 3 1/2 3\n");
    assert_eq!(world.tick(1), BTreeMap::new());

    // The largest that are taken, and what is made of them: no sum and no product overflows.
    let max = i64::MAX;
    world.write("proc/meminfo", format!("MemTotal: {max} kB\nMemFree: {} kB\n", max / 1_024));
    let numbers = [max; 11].map(|number| number.to_string()).join(" ");
    world.write("proc/diskstats", format!("8 0 sda {numbers}\n8 16 sdb {numbers}\n"));
    let second = world.tick(2);
    assert_eq!(second["node_memory_MemFree_bytes"], Value::Int(max / 1_024 * 1_024));
    assert!(!second.keys().any(|series| series.contains("MemTotal") || series.contains("used_RAM")), "{second:?}");
    assert!(!second.contains_key("node_disk_read_bytes_total"));
    world.write("proc/stat", "cpu 0 0 0 0 0 0 0 0\n");
    world.tick(3);
    world.write("proc/stat", format!("cpu {max} {max} {max} {max} {max} {max} {max} {max}\n"));
    let last = world.tick(4);
    assert!(last["cpu_percent"].as_f64() <= 100.0, "{last:?}");
}
