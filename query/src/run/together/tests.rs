use telem_engine::Value;

use super::*;
use crate::error::Error;
use crate::leaf::LeafThread;
use crate::question::Aggregator;
use crate::testing::{Asked, EPOCH_SECONDS};

fn question(metric: &str) -> TsQuery {
    let at = |seconds| telem_engine::Timestamp::from_seconds(EPOCH_SECONDS + seconds);
    TsQuery::new(metric, Aggregator::Sum, at(0), at(10_000))
}

/// The answers, where another thread helps with what takes so long.
async fn answers(asked: &Asked, questions: Vec<TsQuery>, shared_min: Duration) -> Vec<String> {
    let inner = Arc::clone(&asked.queries.inner);
    let context = LeafContext { thread: LeafThread::OfTheQuery, ..inner.leaf_context(asked.db.snapshot()) };
    let (due, threads) = (inner.workers.due(), inner.workers.threads());
    let _running = context.spare.begin();
    let together = Together { shared_min, ..Together::new(inner, context, due, questions) };
    let runtime = threads.clone();
    let answers = threads.spawn_blocking(move || runtime.block_on(together.answers())).await.unwrap();
    answers.into_iter().map(|timed| format!("{:?}", timed.answer)).collect()
}

#[tokio::test]
async fn two_threads_answer_what_one_does() {
    let asked = Asked::load("load{host=a} 0:1 5:7\nload{host=b} 0:2 3:0.5\nmem{host=a} 0:3");
    asked.put("long", &[("host", "a")], (0..4_000).map(|second| (second, Value::Int(second))));
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
