use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread::ThreadId;

use datafusion::common::exec_err;
use telem_engine::Timestamp;
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::testing::{Asked, StandingClock};

/// A clock that a test moves.
#[derive(Debug, Default)]
struct MovedClock(AtomicU64);

impl MovedClock {
    fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }
}

impl Clock for MovedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(0)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

fn runtime(blocking_threads: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(1).max_blocking_threads(blocking_threads).build().unwrap()
}

fn context(cores: usize) -> LeafContext {
    let spare = SpareCores::of(cores, Arc::new(StandingClock));
    LeafContext { spare, ..LeafContext::new(Asked::empty().db.snapshot()) }
}

fn this_thread() -> ThreadId {
    std::thread::current().id()
}

#[test]
fn cores_are_spare_while_few_questions_run_and_not_at_once_after_many_did() {
    let clock = Arc::new(MovedClock::default());
    for (cores, alone, of_two, of_three) in [(1, 0, 0, 0), (2, 1, 0, 0), (3, 2, 0, 0), (4, 3, 1, 0), (8, 7, 3, 1)] {
        let spare = SpareCores::of(cores, clock.clone());
        let _one = spare.begin();
        assert_eq!(spare.others(0), alone, "{cores} cores");
        assert_eq!(spare.others(2), of_two, "{cores} cores, and a leaf for a head");
        let lent = spare.lend(&Reading::default());
        assert_eq!((lent.is_some(), spare.others(2)), (alone > 0, alone.saturating_sub(1)), "{cores} cores, one lent");
        assert!(lent.as_ref().is_none_or(LentCore::may_go_on), "{cores} cores");
        let two = spare.begin();
        assert!(lent.as_ref().is_none_or(|lent| lent.may_go_on() == (of_two > 0)), "{cores} cores");
        drop(lent);
        assert_eq!(spare.others(1), of_two, "{cores} cores");
        let three = spare.begin();
        assert_eq!(spare.others(1), of_three, "{cores} cores");
        drop((two, three));
        let was_crowded = of_three == 0;
        assert_eq!(spare.others(1), if was_crowded { 0 } else { alone }, "{cores} cores, just after");
        clock.pass(CALM_AFTER);
        assert_eq!(spare.others(1), alone, "{cores} cores, later");
    }
    assert_eq!(SpareCores::default().others(1), 0);
}

#[test]
fn a_core_that_something_else_uses_is_not_spare_for_a_while() {
    let clock = Arc::new(MovedClock::default());
    let (spare, reading) = (SpareCores::of(2, clock.clone()), Reading::default());
    let late = |spare: &SpareCores, after: Duration| {
        let core = spare.lend(&reading).unwrap();
        clock.pass(after);
        core.begin();
    };
    let helped = |spare: &SpareCores, pieces: usize, own_ms: u64, waited_ms: u64| {
        let asked = spare.now();
        clock.pass(Duration::from_millis(own_ms));
        let done = spare.now();
        clock.pass(Duration::from_millis(waited_ms));
        spare.waited(asked, done, pieces);
    };
    let is_spare_after = |spare: &SpareCores, busy_ms: u64| {
        if busy_ms > 0 {
            clock.pass(Duration::from_millis(busy_ms) - Duration::from_micros(1));
            assert_eq!(spare.others(1), 0, "just before {busy_ms} ms");
            clock.pass(Duration::from_micros(1));
        }
        assert_eq!(spare.others(1), 1, "after {busy_ms} ms");
    };
    late(&spare, LATE);
    is_spare_after(&spare, 0);
    for busy_ms in [4, 8, 16, 32, 64, 128, 256, 256] {
        late(&spare, LATE + Duration::from_micros(1));
        is_spare_after(&spare, busy_ms);
    }
    // It was found six times; now others help three questions in time.
    for _ in 0..3 {
        helped(&spare, 2, 2, 1);
        is_spare_after(&spare, 0);
    }
    for (pieces, own_ms, waited_ms, busy_ms) in
        [(10, 100, 21, 0), (10, 100, 22, 4), (1, 100, 201, 0), (1, 0, 2, 4), (1, 0, 2, 8), (0, 0, 100, 0), (5, 5, 3, 0)]
    {
        helped(&spare, pieces, own_ms, waited_ms);
        is_spare_after(&spare, busy_ms);
    }
    assert_eq!(spare.others(1), 1);
}

#[test]
fn a_question_that_came_first_leaves_the_second_its_share() {
    let spare = SpareCores::of(8, Arc::new(StandingClock));
    let reading = Reading::default();
    let (one, other) = (spare.of_another(), spare.of_another());
    let _first = one.begin();
    let mut of_one: Vec<LentCore> = std::iter::from_fn(|| one.lend(&reading)).collect();
    assert_eq!(of_one.len(), 7);
    let _second = other.begin();
    // All cores are taken; the first gives back what is more than its share, as its pieces end.
    assert!(other.lend(&reading).is_none());
    while of_one.last().is_some_and(|core| !core.may_go_on()) {
        of_one.pop();
    }
    assert_eq!(of_one.len(), 3);
    assert!(one.lend(&reading).is_none());
    let of_other: Vec<LentCore> = std::iter::from_fn(|| other.lend(&reading)).collect();
    assert_eq!(of_other.len(), 3);
    drop((of_one, of_other));
    assert_eq!((one.others(0), other.others(0)), (3, 3));
}

#[test]
fn little_work_is_one_piece_and_much_is_some_for_each_core() {
    for (rows, cores, expected) in [
        (0, 2, 1),
        ((128 << 10) - 1, 2, 1),
        (128 << 10, 2, 2),
        (256 << 10, 2, 4),
        (256 << 10, 8, 4),
        (256 << 10, 1, 1),
        (1 << 20, 2, 4),
        (1 << 20, 8, 16),
        (64 << 20, 2, 64),
    ] {
        assert_eq!(pieces(rows, cores, PIECE_SIZES), expected, "{rows} rows, {cores} cores");
    }
}

#[test]
fn what_is_made_comes_in_the_order_of_the_pieces_whoever_made_it() {
    let runtime = runtime(8);
    let _entered = runtime.enter();
    for (cores, count) in [(1, 5), (2, 0), (2, 1), (2, 2), (2, 50), (4, 50)] {
        let made = context(cores).worked_off((0..count).collect(), |piece| Ok(piece * 10)).unwrap();
        assert_eq!(made, (0..count).map(|piece| piece * 10).collect::<Vec<_>>(), "{count} pieces, {cores} cores");
    }
    assert_eq!(context(2).worked_off(vec![1, 2, 3], Ok).unwrap(), [1, 2, 3]);
}

#[test]
fn another_thread_takes_pieces_too_unless_a_second_question_runs() {
    let runtime = runtime(8);
    let _entered = runtime.enter();
    let context = context(2);
    // The piece of one thread waits until the other has one.
    let (began, other_began) = mpsc::sync_channel(2);
    let other_began = Mutex::new(other_began);
    let caller = this_thread();
    let made = context.worked_off(vec![(); 2], move |()| {
        if this_thread() == caller {
            other_began.lock().unwrap().recv().unwrap();
        } else {
            began.send(()).unwrap();
        }
        Ok(this_thread())
    });
    let made = made.unwrap();
    assert_ne!(made[0], made[1]);
    let _questions = (context.spare.begin(), context.spare.begin());
    let made = context.worked_off(vec![(); 20], |()| Ok(this_thread())).unwrap();
    assert_eq!(made, [this_thread(); 20]);
}

#[test]
fn nobody_waits_for_a_thread_that_has_not_begun() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    // The only other thread is busy until the end.
    let (release, released) = mpsc::channel::<()>();
    let busy = runtime.spawn_blocking(move || released.recv());
    let made = context(2).worked_off(vec![(); 20], |()| Ok(this_thread())).unwrap();
    assert_eq!(made, [this_thread(); 20]);
    release.send(()).unwrap();
    runtime.block_on(busy).unwrap().unwrap();
}

#[test]
fn an_error_of_any_piece_ends_the_others() {
    let runtime = runtime(8);
    let _entered = runtime.enter();
    for wrong in [0, 1, 7, 99] {
        let made = context(2).worked_off((0..100).collect(), move |piece: usize| match piece == wrong {
            true => exec_err!("piece {piece} is wrong"),
            false => Ok(piece),
        });
        assert_eq!(made.unwrap_err().message(), format!("piece {wrong} is wrong"));
    }
}

#[test]
fn a_panic_of_another_thread_is_one_of_the_question() {
    let runtime = runtime(8);
    let _entered = runtime.enter();
    let caller = this_thread();
    let context = context(2);
    let (begin, begun) = mpsc::sync_channel(1);
    let begun = Mutex::new(begun);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        context.worked_off(vec![(); 2], move |()| {
            if this_thread() != caller {
                begin.send(()).unwrap();
                panic!("another lost its mind");
            }
            begun.lock().unwrap().recv().unwrap();
            Ok(())
        })
    }));
    let said = panicked.expect_err("the question goes on").downcast::<&str>().unwrap();
    assert_eq!(*said, "another lost its mind");
}

#[test]
fn a_question_that_is_stopped_does_not_wait_for_the_pieces_of_others() {
    let runtime = runtime(8);
    let _entered = runtime.enter();
    let context = context(2);
    let (caller, stop) = (this_thread(), context.stop.clone());
    let (begin, begun) = mpsc::sync_channel(1);
    let begun = Mutex::new(begun);
    let held = Arc::new(AtomicBool::new(true));
    let holds = Arc::clone(&held);
    let made = context.worked_off(vec![(); 2], move |()| {
        if this_thread() != caller {
            begin.send(()).unwrap();
            while holds.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            return Ok(());
        }
        begun.lock().unwrap().recv().unwrap();
        stop.ask();
        Ok(())
    });
    assert_eq!(made.unwrap_err().message(), "the query was stopped");
    held.store(false, Ordering::Relaxed);
}
