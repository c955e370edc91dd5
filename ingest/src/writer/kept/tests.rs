use std::io;

use telem_engine::{SeriesId, Value};

use super::*;

/// Milliseconds that pass when the test says so.
#[derive(Debug, Default)]
struct Hand(AtomicU64);

impl Hand {
    fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as u64, Ordering::Relaxed);
    }
}

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp::from_seconds(0)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

fn full() -> Error {
    Error::Io { action: "append to", path: PathBuf::from("/x/wal"), source: io::ErrorKind::StorageFull.into() }
}

fn batch() -> SampleBatch {
    let mut batch = SampleBatch::with_capacity(1);
    batch.push(SeriesId(0), Timestamp::from_seconds(1), Value::Int(1));
    batch
}

/// A disk that is all but full takes every other batch, for minutes: one word at the beginning, and one at its end.
#[test]
fn samples_are_said_to_be_written_again_only_when_they_are() {
    let clock = Arc::new(Hand::default());
    let mut kept = Kept::new(Path::new("/"), Arc::clone(&clock) as Arc<dyn Clock>, 100, Arc::default());
    assert!(!kept.works(), "nothing was refused");
    assert!(kept.refused(&full()));
    for _ in 0..300 {
        clock.advance(Duration::from_millis(500));
        assert!(!kept.works());
        assert!(!kept.refused(&full()), "it was told");
    }
    clock.advance(STEADY);
    kept.keep(batch());
    assert!(!kept.works(), "some wait");
    assert_eq!(kept.drain(|_| Ok(())).0, 1);
    assert!(kept.works());
    assert!(!kept.works(), "it was told");
    assert!(kept.refused(&full()), "the next time is told at once");
    assert!(kept.works_at_last());
}
