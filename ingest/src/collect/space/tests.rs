//! File systems that answer, fail and hang, as the test decides.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use telem_engine::{Db, Options, SystemClock};
use tempfile::TempDir;

use super::*;

#[derive(Debug, Default)]
struct Hands {
    seconds: AtomicU64,
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_seconds(self.seconds.load(Ordering::Relaxed).cast_signed())
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.seconds.load(Ordering::Relaxed))
    }
}

/// Tells which path is asked, and answers when the test says so.
struct Desk {
    asked: Receiver<(PathBuf, Sender<std::io::Result<Usage>>)>,
    space: Space,
    clock: Arc<Hands>,
    db: Db,
    tree: TempDir,
    _database: TempDir,
}

const MOUNTS: &str = "/dev/vda / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\n/dev/vdb /scratch xfs rw 0 0\n";

impl Desk {
    fn new() -> Self {
        let (tree, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(tree.path().join("proc")).unwrap();
        std::fs::write(tree.path().join("proc/mounts"), MOUNTS).unwrap();
        let (ask, asked) = channel();
        let ask: SpaceProbe = Arc::new(move |path| {
            let (answer, answered) = channel();
            ask.send((path.to_path_buf(), answer)).unwrap();
            // The test may have ended.
            answered.recv().unwrap_or_else(|_| Err(std::io::ErrorKind::Interrupted.into()))
        });
        let clock = Arc::new(Hands::default());
        let space = Space::new(&Tree::new(tree.path()), ask, Arc::<Hands>::clone(&clock));
        let db = Db::open(database.path(), Options::default()).unwrap();
        Desk { asked, space, clock, db, tree, _database: database }
    }

    fn next(&self) -> (PathBuf, Sender<std::io::Result<Usage>>) {
        let (path, answer) = self.asked.recv_timeout(Duration::from_secs(60)).unwrap();
        (Path::new("/").join(path.strip_prefix(self.tree.path()).unwrap()), answer)
    }

    /// What a tick says of sizes, by mount point.
    fn tick(&mut self, second: u64) -> BTreeMap<String, i64> {
        self.clock.seconds.store(second, Ordering::Relaxed);
        let mut out = Out::new(&self.db, "n1", self.clock.now(), 0);
        self.space.sample(&mut out);
        let mut sizes = BTreeMap::new();
        for (id, _, value) in out.finish().batch.iter() {
            let key = self.db.index().key(id).unwrap();
            if key.metric() == "node_filesystem_size_bytes" {
                let (device, point) = (key.tags().get("device").unwrap(), key.tags().get("mountpoint").unwrap());
                assert!(MOUNTS.contains(&format!("{device} {point} ")), "{device} at {point}");
                sizes.insert(key.tags().get("mountpoint").unwrap().to_owned(), value.as_f64() as i64);
            }
        }
        sizes
    }

    /// Ticks until `count` file systems said their sizes; returns all that was said.
    fn said(&mut self, second: u64, count: usize) -> BTreeMap<String, i64> {
        let patience = SystemClock::new();
        let mut said = BTreeMap::new();
        loop {
            said.extend(self.tick(second));
            if said.len() >= count {
                return said;
            }
            assert!(patience.monotonic() < Duration::from_secs(60), "only {said:?}");
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }
}

fn usage(size: u64) -> std::io::Result<Usage> {
    Ok(Usage { size, ..Usage::default() })
}

#[test]
fn a_file_system_that_hangs_keeps_no_tick_and_no_other_file_system_waiting() {
    let mut desk = Desk::new();
    assert!(desk.tick(10).is_empty(), "answers come later");
    for (expected, size) in [("/", 1), ("/scratch", 2)] {
        let (path, answer) = desk.next();
        assert_eq!(path, Path::new(expected), "local ones first");
        answer.send(usage(size)).unwrap();
    }
    let (hanging, answer) = desk.next();
    assert_eq!(hanging, Path::new("/home"));
    assert_eq!(desk.said(11, 2), BTreeMap::from([("/".to_owned(), 1), ("/scratch".to_owned(), 2)]));

    assert!(desk.tick(15).is_empty(), "within its deadline it is waited for, and nothing else is asked");
    // Past it the others are asked again, without it.
    desk.tick(20);
    for (expected, size) in [("/", 3), ("/scratch", 4)] {
        let (path, answer) = desk.next();
        assert_eq!(path, Path::new(expected));
        answer.send(usage(size)).unwrap();
    }
    // Both have been heard before the clock goes on: one whose answer is on its way at 30 s would count as late.
    desk.said(21, 2);

    // It answers at last: what it says is old, but from now on it is asked again.
    answer.send(usage(9)).unwrap();
    let patience = SystemClock::new();
    while !lock(&desk.space.hung).is_empty() {
        assert!(patience.monotonic() < Duration::from_secs(60));
        std::thread::park_timeout(Duration::from_millis(2));
    }
    desk.asks_all(30);
}

impl Desk {
    /// A round begins in which every file system is asked.
    fn asks_all(&mut self, second: u64) {
        let patience = SystemClock::new();
        loop {
            // The round before may not have ended yet.
            self.tick(second);
            if self.space.asked == Some(self.clock.now()) {
                break;
            }
            assert!(patience.monotonic() < Duration::from_secs(60), "no round begins");
            std::thread::park_timeout(Duration::from_millis(2));
        }
        for expected in ["/", "/scratch", "/home"] {
            let (path, answer) = self.next();
            assert_eq!(path, Path::new(expected));
            answer.send(usage(1)).unwrap();
        }
    }
}

#[test]
fn a_file_system_that_refuses_or_has_no_size_says_nothing() {
    let mut desk = Desk::new();
    desk.tick(10);
    desk.next().1.send(Err(std::io::ErrorKind::PermissionDenied.into())).unwrap();
    desk.next().1.send(usage(0)).unwrap();
    desk.next().1.send(usage(5)).unwrap();
    assert_eq!(desk.said(11, 1), BTreeMap::from([("/home".to_owned(), 5)]));
    for second in 12..20 {
        assert!(desk.tick(second).is_empty(), "asked every 10 s");
    }
}

#[test]
fn no_more_threads_hang_than_the_limit() {
    let mut desk = Desk::new();
    let mounts: String = (0..HUNG_MAX + 3).map(|at| format!("server:/{at} /{at} nfs4 rw 0 0\n")).collect();
    std::fs::write(desk.tree.path().join("proc/mounts"), mounts).unwrap();
    let mut hanging = Vec::new();
    for at in 0..HUNG_MAX as u64 {
        desk.tick(10 + at * 10);
        hanging.push(desk.next());
    }
    for at in HUNG_MAX as u64..HUNG_MAX as u64 + 3 {
        desk.tick(10 + at * 10);
        assert!(desk.asked.try_recv().is_err());
        assert!(desk.space.round.is_none() && lock(&desk.space.hung).len() == HUNG_MAX);
    }
}

#[test]
fn the_system_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let usage = ask_system()(dir.path()).unwrap();
    assert!(usage.size >= usage.free && usage.free >= usage.available && usage.size > 0, "{usage:?}");
}

#[test]
fn file_systems_that_matter_are_those_with_files_of_users_each_once() {
    let text = "proc /proc proc rw 0 0\n\
        /dev/nvme0n1p2 / xfs rw 0 0\n\
        devtmpfs /dev devtmpfs rw 0 0\n\
        tmpfs /dev/shm tmpfs rw 0 0\n\
        tmpfs /run/user/1000 tmpfs rw 0 0\n\
        10.0.0.1@o2ib:/fs1 /lustre/my\\040project lustre rw 0 0\n\
        10.0.0.1@o2ib:/fs1 /lustre/again lustre rw 0 0\n\
        tmpfs /tmp tmpfs rw 0 0\n\
        overlay /var/lib/containers/x overlay rw 0 0\n\
        /dev/nvme0n1p2 /var/bound xfs rw 0 0\n\
        /dev/sdb1 /data ext4 rw 0 0\n\
        /dev/sdc1 /data ext4 rw 0 0\n\
        short\n\n";
    let found: Vec<(String, String)> = mounts::parse(text.as_bytes())
        .into_iter()
        .map(|mount| (mount.point.display().to_string(), mount.kind))
        .collect();
    let expected =
        [("/", "xfs"), ("/dev/shm", "tmpfs"), ("/tmp", "tmpfs"), ("/data", "ext4"), ("/lustre/my project", "lustre")];
    assert_eq!(found, expected.map(|(point, kind)| (point.to_owned(), kind.to_owned())));

    let many: String = (0..=mounts::FILE_SYSTEMS_MAX).map(|at| format!("/dev/sd{at} /{at} ext4 rw 0 0\n")).collect();
    assert_eq!(mounts::parse(many.as_bytes()).len(), mounts::FILE_SYSTEMS_MAX);
    let container = mounts::parse(b"overlay / overlay rw 0 0\n");
    assert_eq!(container.len(), 1, "a container's root is an overlay");
}
