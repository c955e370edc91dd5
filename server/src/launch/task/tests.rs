use std::collections::HashMap;
use std::sync::Mutex;

use telem_engine::SystemClock;

use super::*;

#[derive(Debug, Default)]
struct Env(HashMap<&'static str, &'static str>);

impl Surroundings for Env {
    fn variable(&self, name: &str) -> Option<String> {
        self.0.get(name).map(|value| (*value).to_owned())
    }

    fn file(&self, _: &Path) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// A machine on which processes have the numbers that a test gives them.
#[derive(Debug)]
struct Fake {
    me: u32,
    alive: Arc<Mutex<Vec<u32>>>,
}

impl Machine for Fake {
    fn this_process(&self) -> io::Result<Process> {
        Ok(Process { host: "n1".to_owned(), pid: self.me, boot: "b".to_owned(), started: u64::from(self.me) * 10 })
    }

    fn started(&self, pid: u32) -> Option<u64> {
        self.alive.lock().unwrap().contains(&pid).then(|| u64::from(pid) * 10)
    }
}

struct Patient;

impl Patience for Patient {
    fn ask(&self, _: Duration) {}

    fn is_over(&self) -> bool {
        false
    }
}

struct Node {
    dir: tempfile::TempDir,
    alive: Arc<Mutex<Vec<u32>>>,
    clock: Arc<dyn Clock>,
}

impl Node {
    fn new() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        Self { dir: tempfile::tempdir().unwrap(), alive: Arc::default(), clock }
    }

    fn meeting(&self) -> Meeting {
        let mut meeting = Meeting::of(self.dir.path(), "7", "n1", &Env::default());
        meeting.open().unwrap();
        meeting
    }

    /// A process that is not the head.
    fn enter(&self, pid: u32) -> TaskPart {
        self.enter_with(1, pid)
    }

    fn enter_with(&self, rank: u32, pid: u32) -> TaskPart {
        let machine = self.machine(pid);
        self.meeting().enter(rank, &Env::default(), &machine, &self.clock, &Patient).unwrap()
    }

    fn machine(&self, pid: u32) -> Fake {
        self.alive.lock().unwrap().push(pid);
        Fake { me: pid, alive: Arc::clone(&self.alive) }
    }

    fn entries(&self) -> Vec<String> {
        let dir = self.dir.path().join(".telem-7");
        let mut names: Vec<String> = fs::read_dir(dir)
            .map(|entries| entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect())
            .unwrap_or_default();
        names.sort();
        names
    }
}

fn keeper(part: TaskPart) -> Claim {
    match part {
        TaskPart::Keeper(claim) => claim,
        other => panic!("{other:?}"),
    }
}

fn told() -> Vec<(String, OsString)> {
    vec![("TELEM_SOCKET".to_owned(), "/run/x.sock".into())]
}

#[test]
fn the_first_process_of_a_node_keeps_it_and_the_others_are_told_how_it_is_reached() {
    let node = Node::new();
    let claim = keeper(node.enter(1));
    claim.tell(&told()).unwrap();
    // The process that runs a guest's command is the parent of its recorder.
    node.alive.lock().unwrap().push(std::os::unix::process::parent_id());
    match node.enter(2) {
        TaskPart::Guest { environment } => assert_eq!(environment, told()),
        other => panic!("{other:?}"),
    }
    let guests: Vec<String> = node.entries().into_iter().filter(|name| name.contains("guest")).collect();
    assert_eq!(guests.len(), 1, "{:?}", node.entries());
    assert!(node.entries().iter().any(|name| name == "n1.json"));
    let machine = Fake { me: 1, alive: Arc::clone(&node.alive) };
    assert!(claim.has_guests(&machine));
    let parent: u32 = guests[0].trim_start_matches("n1.guest-").parse().unwrap();
    node.alive.lock().unwrap().retain(|pid| *pid != parent);
    assert!(!claim.has_guests(&machine));
    drop(claim);
    assert!(!node.dir.path().join(".telem-7").exists());
}

#[test]
fn a_node_that_a_dead_process_kept_is_taken_over() {
    let node = Node::new();
    let dead = keeper(node.enter(1));
    dead.tell(&told()).unwrap();
    std::mem::forget(dead);
    node.alive.lock().unwrap().clear();
    let claim = keeper(node.enter(2));
    assert_eq!(node.entries(), ["n1.keeper"], "what the dead one told is of no use");
    drop(claim);
    assert!(node.entries().is_empty());
}

#[test]
fn a_node_is_given_up_to_a_head_that_comes_later_and_nobody_else_takes_it_between() {
    let node = Arc::new(Node::new());
    let early = keeper(node.enter(1));
    let head = std::thread::spawn({
        let node = Arc::clone(&node);
        move || keeper(node.enter_with(0, 2))
    });
    let machine = node.machine(1);
    while !node.meeting().is_wished(&machine) {
        std::thread::yield_now();
    }
    let other = std::thread::spawn({
        let node = Arc::clone(&node);
        move || node.enter(3)
    });
    let given_up = std::thread::spawn({
        let node = Arc::clone(&node);
        move || node.meeting().give_up(early, &machine, &node.clock, &Patient).unwrap()
    });
    let claim = head.join().unwrap();
    claim.tell(&told()).unwrap();
    for guest in [other, given_up] {
        match guest.join().unwrap() {
            TaskPart::Guest { environment } => assert_eq!(environment, told()),
            other => panic!("{other:?}"),
        }
    }
    drop(claim);
    assert!(node.entries().is_empty(), "{:?}", node.entries());
}

#[test]
fn the_wish_of_a_head_that_died_keeps_nobody_from_a_node() {
    let node = Node::new();
    let wish = node.meeting().wish(&node.machine(1)).unwrap();
    let machine = node.machine(2);
    assert!(node.meeting().is_wished(&machine));
    node.alive.lock().unwrap().retain(|pid| *pid != 1);
    assert!(!node.meeting().is_wished(&machine));
    drop((keeper(node.enter(2)), wish));
}

#[test]
fn of_many_at_once_one_keeps_the_node() {
    let node = Arc::new(Node::new());
    for pid in 1..=8 {
        node.alive.lock().unwrap().push(pid);
    }
    let enter = |pid| {
        let node = Arc::clone(&node);
        std::thread::spawn(move || match node.enter(pid) {
            TaskPart::Keeper(claim) => {
                claim.tell(&told()).unwrap();
                Some(claim)
            }
            TaskPart::Guest { .. } => None,
            TaskPart::Unheard => panic!("{pid} heard nothing"),
        })
    };
    let all: Vec<_> = (1..=8).map(enter).collect();
    let claims: Vec<Claim> = all.into_iter().filter_map(|thread| thread.join().unwrap()).collect();
    assert_eq!(claims.len(), 1);
    drop(claims);
    assert!(node.entries().is_empty());
}

#[test]
fn programs_that_one_job_starts_meet_apart() {
    let dir = Path::new("/dir");
    let head = |step: &[(&'static str, &'static str)]| {
        Meeting::of(dir, "7", "n1", &Env(step.iter().copied().collect())).head().display().to_string()
    };
    assert_eq!(head(&[]), "/dir/.telem-7/head");
    assert_eq!(head(&[("SLURM_STEP_ID", "0")]), "/dir/.telem-7/head");
    assert_eq!(head(&[("SLURM_STEP_ID", "3")]), "/dir/.telem-7.3/head");
    assert_eq!(head(&[("SLURM_STEP_ID", "../x")]), "/dir/.telem-7/head");
}
