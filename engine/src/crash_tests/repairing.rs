//! Repairs of damaged databases. Whatever was damaged, the database opens again and its check is clean. Every sample
//! that is missing, or has an overwritten value again, was reported as lost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::model::{Content, Sample};
use super::random_steps::cases;
use super::sim_machine::SimMachine;
use super::world::{DIR, Step, World};
use super::{SERIES, key, observe};
use crate::check::check;
use crate::db::{Db, Durability};
use crate::disk::Disk;
use crate::disk::sim::{Failure, Fault, Random, SimDisk};
use crate::error::{Error, ErrorKind};
use crate::layout::{self, Layout};
use crate::options::Options;
use crate::repair::{Act, LOST_METRIC, Loss, LossKind, RepairReport, look, repair};
use crate::series::SeriesId;
use crate::time::{TimeRange, Timestamp};
use crate::value::Value;
use crate::wal::HEADER_BYTES;

/// What befalls a disk.
type Damage<'a> = Box<dyn Fn(&SimDisk) + 'a>;
/// A sample's place: series and time.
type Place = (usize, Timestamp);

/// A database to damage, and all that was ever written to it.
struct Subject {
    disk: SimDisk,
    full: Content,
    /// Every value that a place ever had.
    history: BTreeMap<Place, Vec<Value>>,
    /// What only the WAL holds, as it was before.
    in_wal: BTreeSet<Place>,
    /// The number of each series by its id.
    numbers: BTreeMap<u32, usize>,
}

fn append(from: i64, count: i64, series: &[usize], start: i64) -> Step {
    let mut samples: Vec<Sample> = Vec::new();
    for at in 0..count {
        for series in series {
            let int = Value::Int(start + at * 3 - 40);
            let value = if (at + *series as i64) % 3 == 0 { Value::Float(at as f64 * 0.3 + start as f64) } else { int };
            samples.push((*series, Timestamp::from_seconds(1_799_990_000 + from + at * 20), value));
        }
    }
    Step::Append { durability: Durability::Synced, samples }
}

impl Subject {
    /// Every kind of file; late and overwritten samples under flushed and merged runs; two WAL files.
    fn new() -> Self {
        let meta = |number| Step::PutMeta { metric: 3, number, durability: Durability::Synced };
        let flushed = [
            append(0, 50, &[0, 1], 0),
            meta(4),
            append(3_000, 50, &[0], 7),
            Step::Flush,
            append(300, 40, &[1, 2], 500),
            Step::Flush,
            Step::Compact,
            append(90_000, 50, &[2, 0, 3], 9),
            append(100, 20, &[0], 1_000),
            Step::Flush,
        ];
        let in_wal = [append(500, 10, &[4], 1), meta(5), append(80_000, 10, &[0, 5], 2)];
        let later = [append(600, 10, &[4], 3), append(80_050, 10, &[5, 1], 4), append(400, 5, &[0], 2_000)];
        let mut world = World::new(17);
        let steps = flushed.iter().chain(&in_wal).chain([&Step::Kill]).chain(&later).chain([&Step::Kill]);
        let mut history: BTreeMap<Place, Vec<Value>> = BTreeMap::new();
        for step in steps {
            world.run(step);
            if let Step::Append { samples, .. } = step {
                for (series, time, value) in samples {
                    history.entry((*series, *time)).or_default().push(*value);
                }
            }
        }
        let places = in_wal.iter().chain(&later).flat_map(|step| match step {
            Step::Append { samples, .. } => samples.iter().map(|(series, time, _)| (*series, *time)).collect(),
            _ => Vec::new(),
        });
        let index = world.db().index();
        let number = |id: u32| {
            let found = index.key(SeriesId(id)).unwrap();
            (0..SERIES).find(|number| key(*number) == found).unwrap()
        };
        let numbers = (0..index.len() as u32).map(|id| (id, number(id))).collect();
        Self { full: world.model.live(), disk: world.disk.kill(), history, in_wal: places.collect(), numbers }
    }

    fn files(&self) -> Vec<PathBuf> {
        self.disk.files().into_iter().filter(|file| !file.ends_with("WRITER")).collect()
    }

    /// Bytes spread over a file, and a bit of each.
    fn some_places(&self, file: &Path, random: &mut Random) -> Vec<(usize, usize)> {
        let len = self.disk.content(file).unwrap().len();
        let step = len.div_ceil(places()).max(1);
        let starts = (0..len).step_by(step);
        starts.map(|start| ((start + random.below(step)).min(len - 1), random.below(8))).collect()
    }

    fn content(&self, disk: &SimDisk, what: &str) -> (Content, bool) {
        let db = Db::open(Path::new(DIR), options(disk)).unwrap_or_else(|error| panic!("{what}: {error}"));
        let report = db.recovery();
        assert!(report.missing.is_empty(), "{what}: {report}");
        let snapshot = db.snapshot();
        let index = db.index();
        let mut content = Content::new();
        let mut numbers = BTreeMap::new();
        for id in (0..index.len() as u32).map(SeriesId) {
            let found = index.key(id).unwrap();
            let number = if found.metric() == LOST_METRIC {
                self.numbers[&found.tags().get("id").unwrap().parse::<u32>().unwrap()]
            } else {
                (0..SERIES).find(|number| key(*number) == found).unwrap_or_else(|| panic!("{what}: {found}"))
            };
            numbers.insert(id, number);
        }
        for points in snapshot.points(numbers.keys().copied().collect(), TimeRange::ALL) {
            let points = points.unwrap_or_else(|error| panic!("{what}: {error}"));
            for (time, value) in points.times.iter().zip(points.values.iter()) {
                content.insert((numbers[&points.series], *time), value);
            }
        }
        for (name, meta) in snapshot.meta().metrics() {
            let number = (0..SERIES).find(|number| key(*number).metric() == name).unwrap();
            let (series, time, value) = observe::meta_sample(number, meta.help.parse().unwrap());
            content.insert((series, time), value);
        }
        (content, !report.torn.is_empty() || !report.damaged.is_empty())
    }

    /// What is there is what was written, but for what `losses` name.
    fn assert_explained(&self, found: &Content, losses: &[Loss], wal_ends_early: bool, what: &str) {
        for place in self.full.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
            let (expected, found) = (self.full.get(place), found.get(place));
            if expected == found {
                continue;
            }
            let wal_lost = wal_ends_early || losses.iter().any(|loss| matches!(loss.kind, LossKind::Wal { .. }));
            let named = losses.iter().any(|loss| self.names(loss, place)) || (wal_lost && self.may_be_in_wal(place));
            assert!(named, "{what}: {place:?} is {found:?}, was {expected:?}, and no loss names it: {losses:?}");
            if let Some(found) = found.filter(|_| place.0 < SERIES) {
                assert!(self.history.get(place).is_some_and(|all| all.contains(found)), "{what}: {place:?} {found:?}");
            }
        }
    }

    fn may_be_in_wal(&self, place: &Place) -> bool {
        place.0 == SERIES || self.in_wal.contains(place)
    }

    fn names(&self, loss: &Loss, place: &Place) -> bool {
        let (number, time) = (place.0, place.1.micros());
        match loss.kind {
            LossKind::Metadata => number == SERIES,
            LossKind::Names | LossKind::Wal { .. } => false,
            LossKind::Segment | LossKind::Rows if number == SERIES => false,
            LossKind::Segment | LossKind::Rows if loss.series.is_empty() => {
                loss.first.is_none_or(|first| first <= time) && loss.last.is_none_or(|last| time <= last)
            }
            LossKind::Segment | LossKind::Rows => {
                loss.series.iter().any(|run| self.numbers[&run.id] == number && run.first <= time && time <= run.last)
            }
        }
    }

    /// Damages a copy, and repairs it. Gives back what the repair said, and what is there then.
    fn try_repair(&self, what: &str, damage: impl Fn(&SimDisk)) -> (RepairReport, Content) {
        let disk = self.disk.fork();
        damage(&disk);
        let before = disk.journal().len();
        let seen = look(Path::new(DIR), &options(&disk), &mut |_| {}).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(disk.journal().len(), before, "{what}: a look wrote");
        let report =
            repair(Path::new(DIR), &options(&disk), &mut |_| {}).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!((&seen.actions, &seen.losses), (&report.actions, &report.losses), "{what}");
        self.assert_sound(&disk, what);
        let again = repair(Path::new(DIR), &options(&disk), &mut |_| {}).unwrap();
        assert!(again.is_nothing(), "{what}: a second repair does {again:?}");
        let (found, ends_early) = self.content(&disk, what);
        // A WAL that ends at a frame, or in the middle of its last, is that of a crash; and one file less is not missed.
        let is_cut = report.losses.is_empty() || what.contains("bytes left") || what.contains("gone");
        let wal_was_cut = what.contains(".wal") && is_cut;
        self.assert_explained(&found, &report.losses, ends_early || wal_was_cut, what);
        (report, found)
    }

    fn assert_sound(&self, disk: &SimDisk, what: &str) {
        let report = check(Path::new(DIR), &options(disk), &mut |_| {}).unwrap();
        assert!(report.is_sound(), "{what}: {:?}\n{:?}", report.findings, disk.files());
    }
}

fn is_wal(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "wal")
}

fn options(disk: &SimDisk) -> Options {
    let machine = Arc::new(SimMachine::default());
    Options { disk: Arc::new(disk.clone()), machine, take_over: true, ..Options::default() }
}

/// What the reports in the directory say.
fn losses_on_file(disk: &SimDisk) -> Vec<Loss> {
    let files = disk.files().into_iter().filter(|file| {
        let is_report = file.extension().is_some_and(|extension| extension == "json");
        is_report && file.parent() == Some(&Path::new(DIR).join("damaged"))
    });
    files
        .flat_map(|file| {
            let json: serde_json::Value = serde_json::from_slice(&disk.content(&file).unwrap()).unwrap();
            serde_json::from_value::<Vec<Loss>>(json["losses"].clone()).unwrap()
        })
        .collect()
}

/// How many places of each file are tried.
fn places() -> usize {
    cases() as usize / 8
}

#[test]
fn a_sound_database_is_not_touched() {
    let subject = Subject::new();
    let (report, found) = subject.try_repair("nothing", |_| {});
    assert!(report.is_nothing(), "{report:?}");
    observe::assert_same(&subject.full, &found, "a repair of a sound database");
}

#[test]
fn a_flipped_bit_is_turned_back_and_costs_nothing() {
    let subject = Subject::new();
    let mut random = Random::new(1);
    let last_wal = subject.files().into_iter().rfind(|file| is_wal(file)).unwrap();
    for file in subject.files() {
        for (at, bit) in subject.some_places(&file, &mut random) {
            let what = format!("{} with bit {bit} of byte {at} flipped", file.display());
            let (report, found) = subject.try_repair(&what, |disk| disk.decay(&file, |bytes| bytes[at] ^= 1 << bit));
            // A frame's length has to lead to the next one, and behind the last good frame of all there may be anything.
            if !is_wal(&file) {
                assert_eq!(report.losses, [], "{what}");
                observe::assert_same(&subject.full, &found, &what);
            } else if file != last_wal && report.losses.is_empty() {
                observe::assert_same(&subject.full, &found, &what);
            }
        }
    }
}

#[test]
fn greater_damage_anywhere_is_repaired_or_its_loss_is_named() {
    let subject = Subject::new();
    let mut random = Random::new(7);
    for file in subject.files() {
        for (at, bit) in subject.some_places(&file, &mut random) {
            let what = format!("{} with byte {at} and what follows damaged", file.display());
            subject.try_repair(&what, |disk| {
                disk.decay(&file, |bytes| {
                    bytes.iter_mut().skip(at).take(3).for_each(|byte| *byte ^= 0x55 << (bit % 2))
                });
            });
        }
    }
}

#[test]
fn a_file_that_was_cut_or_has_vanished_is_a_named_loss() {
    let subject = Subject::new();
    let mut random = Random::new(2);
    for file in subject.files() {
        let len = subject.disk.content(&file).unwrap().len();
        for len in [0, 1, len / 2, len - 1, random.below(len)] {
            let what = format!("{} with {len} bytes left", file.display());
            subject.try_repair(&what, |disk| disk.decay(&file, |bytes| bytes.truncate(len)));
        }
        subject.try_repair(&format!("{} gone", file.display()), |disk| disk.remove(&file).unwrap());
        subject.try_repair(&format!("{} with more behind it", file.display()), |disk| {
            disk.decay(&file, |bytes| bytes.extend_from_slice(b"something else"));
        });
    }
}

#[test]
fn a_damaged_or_lost_manifest_loses_nothing() {
    let subject = Subject::new();
    let manifest = Layout::new(Path::new(DIR)).manifest();
    let mut random = Random::new(3);
    let len = subject.disk.content(&manifest).unwrap().len();
    let mut damages: Vec<Damage<'_>> = vec![Box::new(|disk| disk.remove(&manifest).unwrap())];
    let places: Vec<usize> = (0..40).chain((0..places()).map(|_| random.below(len))).collect();
    for at in places {
        let (manifest, bit) = (manifest.clone(), random.below(8));
        damages.push(Box::new(move |disk| disk.decay(&manifest, |bytes| bytes[at] ^= 1 << bit)));
    }
    for (number, damage) in damages.iter().enumerate() {
        let (report, found) = subject.try_repair(&format!("manifest damage {number}"), damage);
        assert_eq!(report.losses, [], "damage {number}");
        assert!(report.actions.iter().any(|action| action.act == Act::RebuildManifest));
        observe::assert_same(&subject.full, &found, &format!("manifest damage {number}"));
    }
}

#[test]
fn a_damaged_run_index_loses_nothing() {
    let subject = Subject::new();
    let layout = Layout::new(Path::new(DIR));
    let manifest = crate::manifest::Manifest::load(&subject.disk, &layout).unwrap().unwrap();
    for entry in &manifest.segments {
        let file = layout.named(&entry.file.file);
        for at in [0, 9, 30, 41] {
            let at = entry.tail as usize + at;
            let what = format!("byte {at} of {}", entry.file.file);
            let (report, found) = subject.try_repair(&what, |disk| disk.decay(&file, |bytes| bytes[at] ^= 0x55));
            assert_eq!(report.losses, [], "{what}");
            assert!(report.actions.iter().any(|action| action.act == Act::RebuildSegment), "{what}: {report:?}");
            observe::assert_same(&subject.full, &found, &what);
            // The same where the manifest is lost too.
            let what = format!("{what} and the manifest");
            let (report, found) = subject.try_repair(&what, |disk| {
                disk.decay(&file, |bytes| bytes[at] ^= 0x55);
                disk.remove(&layout.manifest()).unwrap();
            });
            assert_eq!(report.losses, [], "{what}");
            observe::assert_same(&subject.full, &found, &what);
        }
    }
}

#[test]
fn without_a_manifest_a_damaged_segment_is_repaired_or_named_too() {
    let subject = Subject::new();
    let layout = Layout::new(Path::new(DIR));
    let manifest = crate::manifest::Manifest::load(&subject.disk, &layout).unwrap().unwrap();
    let mut random = Random::new(4);
    for entry in &manifest.segments {
        let file = layout.named(&entry.file.file);
        let len = subject.disk.content(&file).unwrap().len();
        // Checksums of the file's own cover the rows and the run index, and nothing of what is behind them.
        let (tail, count) = (entry.tail as usize, places());
        let anywhere: Vec<usize> = (0..count).map(|_| random.below(len)).collect();
        let behind: Vec<usize> = (0..3 * count).map(|_| tail + random.below(len - tail)).collect();
        for at in anywhere.into_iter().chain(behind) {
            let bit = random.below(8);
            let what = format!("no manifest, bit {bit} of byte {at} of {}", file.display());
            subject.try_repair(&what, |disk| {
                disk.decay(&file, |bytes| bytes[at] ^= 1 << bit);
                disk.remove(&layout.manifest()).unwrap();
            });
        }
    }
}

#[test]
fn damage_in_a_wal_file_that_another_follows_costs_the_damaged_frame_alone() {
    let subject = Subject::new();
    let first = subject.files().into_iter().find(|file| is_wal(file)).unwrap();
    let len = subject.disk.content(&first).unwrap().len();
    // The header is not in the way of the frames: one bit of its salt is turned back, all of it is in the list, and
    // frames that follow each other tell it.
    let list = Layout::new(Path::new(DIR)).wal_list();
    let assert_whole = |what: &str, damage: &dyn Fn(&SimDisk)| {
        let (report, found) = subject.try_repair(what, damage);
        let anew = report.actions.iter().find(|action| action.act == Act::RebuildWal);
        assert_eq!(anew.map(|action| &*action.why), Some("its header is damaged"), "{what}: {report:?}");
        assert_eq!(report.losses, [], "{what}");
        observe::assert_same(&subject.full, &found, what);
    };
    assert_whole("magic", &|disk| disk.decay(&first, |bytes| bytes[3] ^= 1));
    assert_whole("header", &|disk| disk.decay(&first, |bytes| bytes[..HEADER_BYTES].fill(0)));
    assert_whole("salt, without a list", &|disk| {
        disk.remove(&list).unwrap();
        disk.decay(&first, |bytes| bytes[17] ^= 8);
    });
    assert_whole("header, without a list", &|disk| {
        disk.remove(&list).unwrap();
        disk.decay(&first, |bytes| bytes[..HEADER_BYTES].fill(0xFF));
    });
    // The last frame of the first file holds ten samples of two series; all of the second file stays.
    let (report, found) = subject.try_repair("last frame of the first file .wal", |disk| {
        disk.decay(&first, |bytes| bytes[len - 30] ^= 0x55);
    });
    assert!(matches!(report.losses[..], [Loss { kind: LossKind::Wal { .. }, .. }]), "{report:?}");
    assert_eq!(found.len(), subject.full.len() - 20, "{report:?}");
}

#[test]
fn a_last_wal_file_without_its_header_is_whole_where_a_list_has_its_salt_and_else_a_loss() {
    let subject = Subject::new();
    let last = subject.files().into_iter().rfind(|file| is_wal(file)).unwrap();
    let list = Layout::new(Path::new(DIR)).wal_list();
    for is_listed in [true, false] {
        let damage = |disk: &SimDisk| {
            if !is_listed {
                disk.remove(&list).unwrap();
            }
            disk.decay(&last, |bytes| bytes[..HEADER_BYTES].fill(0));
        };
        let disk = subject.disk.fork();
        damage(&disk);
        let checked = check(Path::new(DIR), &options(&disk), &mut |_| {}).unwrap();
        assert!(checked.findings.iter().any(|finding| finding.file == last), "{:?}", checked.findings);
        let (report, found) = subject.try_repair("header of the last file .wal", damage);
        if is_listed {
            assert_eq!(report.losses, []);
            observe::assert_same(&subject.full, &found, "the last file");
        } else {
            assert!(matches!(report.losses[..], [Loss { kind: LossKind::Wal { .. }, .. }, ..]), "{report:?}");
            assert!(found.len() < subject.full.len());
        }
    }
}

#[test]
fn what_was_set_aside_is_kept_byte_for_byte() {
    let subject = Subject::new();
    for file in subject.files() {
        let disk = subject.disk.fork();
        let len = disk.content(&file).unwrap().len();
        disk.decay(&file, |bytes| bytes[len / 2] ^= 1);
        let damaged = disk.content(&file).unwrap();
        let report = repair(Path::new(DIR), &options(&disk), &mut |_| {}).unwrap();
        let relative = file.strip_prefix(DIR).unwrap();
        let aside = Path::new(DIR).join("damaged").join(relative);
        let kept = disk.content(&aside).or_else(|| disk.content(&file));
        assert_eq!(kept.as_deref(), Some(&*damaged), "{}: {report:?}", file.display());
    }
}

#[test]
fn a_repair_that_is_stopped_anywhere_is_simply_run_again() {
    let subject = Subject::new();
    let layout = Layout::new(Path::new(DIR));
    let mut random = Random::new(6);
    let middle = |file: &Path| {
        let at = subject.disk.content(file).unwrap().len() / 2;
        move |bytes: &mut Vec<u8>| bytes[at] ^= 0x55
    };
    let manifest = layout.manifest();
    let all = subject.files();
    let mut damages: Vec<(String, Damage<'_>)> = Vec::new();
    for file in subject.files() {
        let flip = middle(&file);
        let what = format!("{} flipped", file.display());
        damages.push((what, Box::new(move |disk: &SimDisk| disk.decay(&file, flip))));
    }
    damages.push((
        "no manifest, everything flipped .wal".to_owned(),
        Box::new(|disk: &SimDisk| {
            disk.remove(&manifest).unwrap();
            for file in all.iter().filter(|file| !file.ends_with(layout::MANIFEST)) {
                // Series and metadata have no checksum but the manifest's.
                let is_proven =
                    file.starts_with(layout.sub(layout::SEGMENTS)) || file.starts_with(layout.sub(layout::WAL));
                if is_proven {
                    disk.decay(file, middle(file));
                }
            }
        }),
    ));
    let failures = [Failure::Death, Failure::Full];
    for (what, damage) in &damages {
        for failure in failures {
            // A full disk stops it as a death does, and leaves more behind: fewer moments tell enough.
            let stride = if failure == Failure::Full { 5 } else { 1 };
            for after in (0..).step_by(stride) {
                let disk = subject.disk.fork();
                damage(&disk);
                disk.inject(Fault { failure, after });
                let stopped = repair(Path::new(DIR), &options(&disk), &mut |_| {});
                if disk.faults_struck() == 0 {
                    break;
                }
                let what = format!("{what}, {failure:?} after {after}");
                if let Err(error) = stopped {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}: {error}");
                }
                let disk = if failure == Failure::Death {
                    disk.power_loss(&mut random)
                } else {
                    disk.heal();
                    disk
                };
                // Somebody may open it before the repair is run again.
                if after % 2 == 1 {
                    match Db::open(Path::new(DIR), options(&disk)) {
                        Ok(db) => drop(db),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}"),
                    }
                }
                let report = repair(Path::new(DIR), &options(&disk), &mut |_| {})
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                subject.assert_sound(&disk, &what);
                let (found, ends_early) = subject.content(&disk, &what);
                let mut losses = report.losses;
                losses.extend(losses_on_file(&disk));
                subject.assert_explained(&found, &losses, ends_early || what.contains(".wal"), &what);
            }
        }
    }
}

#[test]
fn a_writer_keeps_a_repair_out() {
    let mut world = World::new(5);
    world.run(&append(0, 5, &[0], 1));
    let options = Options { take_over: false, ..options(&world.disk) };
    let error = repair(Path::new(DIR), &options, &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    assert!(look(Path::new(DIR), &options, &mut |_| {}).unwrap().is_nothing());
}

#[test]
fn a_directory_without_a_database_stays_as_it_is() {
    let disk = super::world::empty_disk(1);
    disk.create_dir(Path::new(DIR)).unwrap();
    let before = disk.journal().len();
    let error = repair(Path::new(DIR), &options(&disk), &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::NotADatabase { .. }), "{error}");
    assert_eq!(disk.journal().len(), before);
}

#[test]
fn a_disk_that_does_not_read_is_no_damage() {
    let subject = Subject::new();
    for after in 0.. {
        let disk = subject.disk.fork();
        let before = disk.journal().len();
        disk.inject(Fault { failure: Failure::Once(crate::disk::sim::Operation::Read), after });
        let looked = look(Path::new(DIR), &options(&disk), &mut |_| {});
        assert_eq!(disk.journal().len(), before);
        match looked {
            Err(error) => assert!(error.kind() == ErrorKind::Unavailable && disk.faults_struck() == 1, "{error}"),
            Ok(report) => assert!(report.is_nothing(), "after {after} reads: {report:?}"),
        }
        if disk.faults_struck() == 0 {
            assert!(after > 20, "{after} reads");
            return;
        }
    }
}
