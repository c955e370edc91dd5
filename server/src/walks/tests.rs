//! Long work ends with its client, takes turns, and has a deadline.

use std::future::Future;
use std::pin::Pin;

use tokio::sync::{Notify, oneshot};

use super::*;
use crate::http::asker::Presence;

/// A client that leaves when it is told to.
#[derive(Debug, Default)]
struct Leaving(Notify);

impl Presence for Leaving {
    fn gone(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            self.0.notified().await;
            self.0.notify_one();
        })
    }
}

fn walks(change: impl FnOnce(&mut WalkLimits)) -> Walks {
    let mut limits = WalkLimits { running_max: 1, ..WalkLimits::default() };
    change(&mut limits);
    Walks::new(limits)
}

/// A walk that goes on until it is stopped; the first receiver hears that it runs, the second that it ended.
fn endless(walks: &Walks, asker: &Asker) -> (WalkTask, oneshot::Receiver<()>, oneshot::Receiver<()>) {
    let (entered, inside) = oneshot::channel();
    let (ended, end) = oneshot::channel();
    let (walks, asker) = (walks.clone(), asker.clone());
    let task = tokio::spawn(async move {
        let work = move |stop: &StopSign| -> Result<(), ApiError> {
            entered.send(()).unwrap();
            while stop.check().is_ok() {
                std::thread::yield_now();
            }
            ended.send(()).unwrap();
            Err(given_up())
        };
        walks.walk(&asker, work).await
    });
    (task, inside, end)
}

type WalkTask = tokio::task::JoinHandle<Result<(), ApiError>>;

async fn seven(walks: &Walks, asker: &Asker) -> Result<u32, ApiError> {
    walks.walk(asker, |_| Ok(7)).await
}

#[tokio::test]
async fn a_walk_ends_with_its_client_and_one_that_waits_never_begins() {
    let walks = walks(|_| ());
    let leaving = Arc::new(Leaving::default());
    let (task, inside, end) = endless(&walks, &Asker::new(Some(Arc::clone(&leaving) as Arc<dyn Presence>)));
    inside.await.unwrap();
    let (waiting, never, _end) = endless(&walks, &Asker::new(Some(Arc::clone(&leaving) as Arc<dyn Presence>)));
    leaving.0.notify_one();
    end.await.unwrap();
    assert!(task.await.unwrap().is_err() && waiting.await.unwrap().is_err());
    assert!(never.await.is_err());
    assert_eq!(seven(&walks, &Asker::new(None)).await.unwrap(), 7, "its place is free");
}

#[tokio::test]
async fn a_walk_ends_when_its_request_is_dropped() {
    let walks = walks(|_| ());
    let (task, inside, end) = endless(&walks, &Asker::new(None));
    inside.await.unwrap();
    task.abort();
    end.await.unwrap();
}

#[tokio::test]
async fn a_walk_ends_at_its_deadline_and_its_client_is_told() {
    let walks = walks(|limits| limits.deadline = Duration::from_millis(30));
    let (task, _inside, end) = endless(&walks, &Asker::new(None));
    let refused = task.await.unwrap().unwrap_err();
    assert_eq!(refused.status.as_u16(), 503);
    assert!(refused.message.contains("longer than 0.03 s"), "{refused}");
    end.await.unwrap();
}

#[tokio::test]
async fn one_walk_more_than_may_wait_is_refused_at_once_and_one_that_waits_too_long_then() {
    let walks = walks(|limits| (limits.waiting_max, limits.wait_max) = (1, Duration::from_millis(30)));
    let (task, inside, _end) = endless(&walks, &Asker::new(None));
    inside.await.unwrap();
    let (one, other) = (Asker::new(None), Asker::new(None));
    let refusals = tokio::join!(seven(&walks, &one), seven(&walks, &other));
    for refused in [refusals.0.unwrap_err(), refusals.1.unwrap_err()] {
        assert!(refused.status.as_u16() == 503 && refused.retry_after.is_some(), "{refused}");
    }
    task.abort();
}

#[tokio::test]
async fn a_connection_has_one_walk_at_a_time() {
    let walks = walks(|limits| (limits.running_max, limits.wait_max) = (2, Duration::from_millis(30)));
    let asker = Asker::new(None);
    let (task, inside, _end) = endless(&walks, &asker);
    inside.await.unwrap();
    assert!(seven(&walks, &asker).await.is_err(), "another stream of the same connection");
    assert_eq!(seven(&walks, &Asker::new(None)).await.unwrap(), 7, "another connection");
    task.abort();
}

#[tokio::test]
async fn a_walk_that_panics_costs_its_own_request_only() {
    let walks = walks(|_| ());
    let asker = Asker::new(None);
    let panics = |_: &StopSign| -> Result<(), ApiError> { panic!("of a test") };
    assert_eq!(walks.walk(&asker, panics).await.unwrap_err().status.as_u16(), 500);
    assert_eq!(seven(&walks, &asker).await.unwrap(), 7);
}
