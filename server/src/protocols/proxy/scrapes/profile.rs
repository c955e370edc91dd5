//! What a child says of jobs that went: their profiles, which have what was counted after the last poll.

use std::time::Duration;

use futures::{Stream, StreamExt};

use super::super::targets::TargetAddress;
use super::super::targets::fetch::{self, TargetAnswer, TargetReach};

/// Longest that a child is asked for the profiles of jobs that went since the last poll: a child that leaves has longer
/// for its last poll.
pub const PROFILES_MAX: Duration = Duration::from_secs(2);
/// Most bytes of these profiles together; one of them has at most [`fetch::PROFILE_BYTES_MAX`].
pub const PROFILES_BYTES_MAX: usize = fetch::PROXY_BYTES_MAX;
/// So many are asked for at once.
const AT_ONCE: usize = 4;
/// One of ours keeps a profile a moment after its job went: it is asked so often, with this pause.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

/// Where a child is asked.
#[derive(Clone, Debug)]
pub struct ChildPlace {
    pub address: TargetAddress,
    pub reach: TargetReach,
}

/// Whether a profile that is not there yet may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileHope {
    /// An original keeps it before its job goes; and a child that kept none before keeps none now.
    None,
    Soon,
}

/// The answers, as they come, each with its id. `gone` has ids and the begins of runs; an original, which has one profile
/// of an id, is asked for none.
pub fn answers(
    place: &ChildPlace,
    gone: Vec<(String, Option<u64>)>,
    hope: ProfileHope,
) -> impl Stream<Item = (String, Result<TargetAnswer, String>)> + Send + use<> {
    let asked: Vec<_> = gone.into_iter().map(|(id, start)| answer(place.clone(), id, start, hope)).collect();
    futures::stream::iter(asked).buffer_unordered(AT_ONCE)
}

async fn answer(
    place: ChildPlace,
    id: String,
    start: Option<u64>,
    hope: ProfileHope,
) -> (String, Result<TargetAnswer, String>) {
    let ask = async || fetch::profile(&place.address, place.reach, &id, start).await;
    let mut answer = ask().await;
    let more = if hope == ProfileHope::Soon { TRIES - 1 } else { 0 };
    for _ in 0..more {
        if answer.is_ok() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        answer = ask().await;
    }
    (id, answer)
}
