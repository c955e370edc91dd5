//! Whose threads give way to whose.

use datafusion::execution::memory_pool::UnboundedMemoryPool;

use super::*;

fn lanes() -> Lanes {
    Lanes::new(&QueryOptions { threads: 2, ..crate::testing::options() }, Arc::new(UnboundedMemoryPool::default()))
}

fn own_niceness() -> i32 {
    rustix::process::getpriority_process(None).unwrap()
}

/// Of a thread of the lane that may already run, and of one that begins for it.
async fn niceness(lane: &Lane) -> [i32; 2] {
    let worker = lane.handle().spawn(async { own_niceness() }).await.unwrap();
    [worker, lane.handle().spawn_blocking(own_niceness).await.unwrap()]
}

#[tokio::test]
async fn a_question_that_works_for_long_gives_way_and_the_next_one_does_not_inherit_that() {
    let lanes = lanes();
    let short = lanes.take().unwrap();
    assert_eq!(niceness(&short).await, [NICENESS; 2]);
    let long = lanes.take().unwrap();
    long.give_way();
    assert_eq!(niceness(&long).await, [LONG_NICENESS; 2]);
    assert_eq!(niceness(&short).await, [NICENESS; 2]);

    lanes.give_back(long).await;
    assert_eq!(lanes.idle.lock().unwrap().len(), 0);
    lanes.give_back(short).await;
    assert_eq!(lanes.idle.lock().unwrap().len(), 1);
    assert_eq!(niceness(&lanes.take().unwrap()).await, [NICENESS; 2]);
}

#[tokio::test]
async fn what_outlives_its_question_is_counted_at_the_lowest_priority_until_it_ends() {
    let lanes = lanes();
    let lane = lanes.take().unwrap();
    let (begun, working) = tokio::sync::oneshot::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let (found, priority) = tokio::sync::oneshot::channel();
    lane.handle().spawn(async move {
        begun.send(()).unwrap();
        // Holds its thread as code does that does not yield.
        ended.recv().unwrap();
        found.send(own_niceness()).unwrap();
    });
    working.await.unwrap();
    lanes.give_back(lane).await;
    assert_eq!(lanes.left_behind(), 1);
    end.send(()).unwrap();
    assert_eq!(priority.await.unwrap(), LOWEST_PRIORITY);
}

#[tokio::test]
async fn what_threads_of_a_lane_took_is_known_when_they_have_ended() {
    let lanes = lanes();
    let lane = lanes.take().unwrap();
    let before = ended_lane_threads();
    let works = Duration::from_millis(20);
    lane.handle()
        .spawn(async move {
            let spent = || std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
            let nanoseconds = |text: String| text.split(' ').next().unwrap().parse::<u64>().unwrap();
            let begun = nanoseconds(spent());
            while nanoseconds(spent()) < begun + works.as_nanos() as u64 {}
        })
        .await
        .unwrap();
    lane.give_way();
    lanes.give_back(lane).await;
    while ended_lane_threads() < before + works {
        tokio::task::yield_now().await;
    }
}
