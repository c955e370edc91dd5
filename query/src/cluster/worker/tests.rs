//! Threads that work for heads, and what becomes of them where something does not come to an end.

use datafusion::execution::memory_pool::UnboundedMemoryPool;

use super::*;
use crate::options::QueryOptions;

const DEADLINE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn threads_that_are_busy_for_too_long_are_replaced_and_counted_until_they_end() {
    let options = QueryOptions { threads: 1, ..crate::testing::options() };
    let lanes = Arc::new(Lanes::new(&options, Arc::new(UnboundedMemoryPool::default())));
    // A thread that has nothing to do may be slower than that on a busy machine: then more than one is replaced.
    let soon = Duration::from_millis(10);
    let lane = WorkerLane {
        lanes: Arc::clone(&lanes),
        home: Handle::current(),
        look_every: soon,
        busy_max: soon,
        current: Mutex::default(),
    };
    let lane = Arc::new(lane);

    let (end, ended) = std::sync::mpsc::channel::<()>();
    // As code does that does not yield.
    let stuck = lane.handle().unwrap().spawn(async move { ended.recv() });
    let answered =
        async { while !matches!(timeout(soon, lane.handle().unwrap().spawn(async {})).await, Ok(Ok(()))) {} };
    timeout(DEADLINE, answered).await.expect("others take the place of the thread that is busy");
    assert!(lanes.left_behind() >= 1);

    end.send(()).unwrap();
    let ended = async {
        while lanes.left_behind() > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, ended).await.expect("a thread whose work is done ends");
    drop(stuck);
}
