use std::sync::mpsc;

use telem_engine::{Step, Value};
use tokio::runtime::Builder;

use super::*;
use crate::error::Error;
use crate::leaf::{LeafThread, SpareCores};
use crate::question::Aggregator;
use crate::question::tsq::{Downsample, Fill, Interval, TagFilter};
use crate::testing::{Asked, EPOCH_SECONDS, StandingClock};

fn question(metric: &str) -> TsQuery {
    let at = |seconds| telem_engine::Timestamp::from_seconds(EPOCH_SECONDS + seconds);
    TsQuery::new(metric, Aggregator::Sum, at(0), at(30_000))
}

/// The answers, where another thread helps with what takes so long.
async fn answers(asked: &Asked, questions: Vec<TsQuery>, shared_min: Duration) -> Vec<String> {
    let inner = Arc::clone(&asked.queries.inner);
    let context = LeafContext { thread: LeafThread::OfTheQuery, ..inner.leaf_context(asked.db.snapshot()) };
    let (due, threads) = (inner.workers.due(), inner.workers.threads());
    let _running = context.spare.begin();
    let together =
        QuestionList { shared_min, held_max: Duration::MAX, ..QuestionList::new(inner, context, due, questions) };
    let runtime = threads.clone();
    let answers = threads.spawn_blocking(move || runtime.block_on(together.answers())).await.unwrap();
    answers.into_iter().map(|timed| format!("{:?}", timed.answer)).collect()
}

#[tokio::test]
async fn two_threads_answer_what_one_does() {
    let asked = Asked::load("load{host=a} 0:1 5:7\nload{host=b} 0:2 3:0.5\nmem{host=a} 0:3");
    asked.put("long", &[("host", "a")], (0..30_000).map(|second| (second, Value::Int(second))));
    let few: Vec<TsQuery> = ["load", "mem"].repeat(15).into_iter().map(question).collect();
    let with = |at: usize, metric: &str| {
        let mut questions = few.clone();
        questions[at] = question(metric);
        questions
    };
    let too_many = ["load", "long", "long", "mem", "long", "load"].map(question).to_vec();
    for (questions, expected) in
        [(few.clone(), 30), (with(0, "disk"), 1), (with(17, "disk"), 18), (with(29, "disk"), 30), (too_many, 5)]
    {
        let alone = answers(&asked, questions.clone(), Duration::MAX).await;
        assert_eq!(alone.len(), expected);
        for _ in 0..20 {
            assert_eq!(answers(&asked, questions.clone(), Duration::ZERO).await, alone);
        }
    }
}

#[tokio::test]
async fn others_help_from_the_first_on_with_many_series_and_later_if_it_is_worth_it() {
    let many: String = (0..64).map(|host| format!("many{{host=h{host}}} 0:{host} 60:1\n")).collect();
    let asked = Asked::load(&format!("{many}few{{host=a}} 0:1"));
    let minutely = |metric: &str| TsQuery {
        downsample: Some(Downsample {
            interval: Interval::Fixed(Step::from_micros(60_000_000).unwrap()),
            function: Aggregator::Sum,
            fill: Fill::None,
        }),
        ..question(metric)
    };
    let together = |questions: Vec<TsQuery>| {
        let inner = Arc::clone(&asked.queries.inner);
        QuestionList::new(Arc::clone(&inner), inner.leaf_context(asked.db.snapshot()), inner.workers.due(), questions)
    };
    let by_host = |matcher: Matcher| {
        let filters = vec![TagFilter { key: "host".to_owned(), matcher, group_by: true }];
        TsQuery { filters, ..minutely("many") }
    };
    let of_many = ["many"; 5].map(minutely).to_vec();
    let of_few = ["many", "many", "few"].map(minutely).to_vec();
    assert_eq!(together(of_many.clone()).others_of_many(), 4);
    assert_eq!(together(of_few.clone()).others_of_many(), 0);
    assert_eq!(together(of_many[..1].to_vec()).others_of_many(), 0);
    // Samples as they are may be any number.
    assert_eq!(together(["many"; 5].map(question).to_vec()).others_of_many(), 0);
    // 500 minutes of 64 hosts: two such answers may wait, and a third may not.
    let star = || Matcher::Wildcard("*".to_owned());
    assert_eq!(together(vec![by_host(star()); 2]).others_of_many(), 1);
    assert_eq!(together(vec![by_host(star()); 3]).others_of_many(), 0);
    let some = Matcher::LiteralOr((0..64).map(|host| format!("h{host}")).collect());
    assert_eq!(together(vec![by_host(some); 2]).others_of_many(), 0);
    // None was taken yet: three are left.
    for (one, others) in [(SHARED_MIN / 4, 0), (SHARED_MIN / 3, 1), (SHARED_MIN, 2), (SHARED_MIN * 100, 2)] {
        assert_eq!(together(of_few.clone()).others_max(one), others, "{one:?}");
    }
    assert_eq!(together(["few"; 3].map(question).to_vec()).others_max(SHARED_MIN), 0);
    assert_eq!(answers(&asked, of_many.clone(), Duration::ZERO).await.len(), 5);
}

#[tokio::test]
async fn no_question_is_taken_once_others_have_waited_long_enough() {
    let asked = Asked::load("load{host=a} 0:1");
    let inner = Arc::clone(&asked.queries.inner);
    let context = inner.leaf_context(asked.db.snapshot());
    let due = inner.workers.due();
    let all =
        QuestionList { held_max: Duration::ZERO, ..QuestionList::new(inner, context, due, vec![question("load"); 3]) };
    assert_eq!(all.answers().await.len(), 1);
}

#[test]
fn a_thread_that_has_not_begun_is_not_waited_for_and_takes_no_question() {
    let runtime = Builder::new_multi_thread().worker_threads(1).max_blocking_threads(1).build().unwrap();
    let _entered = runtime.enter();
    let asked = Asked::load("load{host=a} 0:1");
    let inner = Arc::clone(&asked.queries.inner);
    let spare = SpareCores::of(2, Arc::new(StandingClock));
    let context = LeafContext { spare, thread: LeafThread::OfTheQuery, ..inner.leaf_context(asked.db.snapshot()) };
    let due = inner.workers.due();
    let all = Arc::new(QuestionList::new(inner, context, due, vec![question("load"); 3]));
    let (release, released) = mpsc::channel::<()>();
    let busy = runtime.spawn_blocking(move || released.recv());
    let late = QuestionThread::begin(Arc::clone(&all), all.context.lend().unwrap());
    assert!(!late.has_begun());
    release.send(()).unwrap();
    runtime.block_on(busy).unwrap().unwrap();
    assert!(runtime.block_on(late.thread).unwrap().is_empty());
    assert_eq!(all.taken.load(Ordering::Relaxed), 0);
    // And one that has begun is.
    let thread = QuestionThread::begin(Arc::clone(&all), all.context.lend().unwrap());
    while !thread.decided.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    assert!(thread.has_begun());
    assert_eq!(runtime.block_on(thread.thread).unwrap().len(), 3);
}

#[test]
fn answers_come_in_order_up_to_the_first_error() {
    let timed = |answer| TimedAnswer { answer, took: Duration::ZERO };
    let good = || timed(Ok(TsAnswer { groups: Vec::new(), missing: Vec::new() }));
    let wrong = || timed(Err(Error::Stopped));
    let kept = |answers: Vec<(usize, TimedAnswer)>| {
        in_order(answers).iter().map(|timed| timed.answer.is_ok()).collect::<Vec<_>>()
    };
    assert_eq!(kept(vec![(0, good()), (2, good()), (1, good())]), [true, true, true]);
    assert_eq!(kept(vec![(0, good()), (2, wrong()), (3, good()), (1, wrong())]), [true, false]);
    assert!(kept(Vec::new()).is_empty());
}
