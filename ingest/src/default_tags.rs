//! Default tags, which samples get from the connection they came over unless they have their own: the `host` and `rank`
//! of a process on this node, if the connection identifies the process, and the slot of its job where jobs share a
//! database.

use std::sync::Arc;

use telem_engine::{JOB_SLOT_TAG, Result, TagSet};

pub const HOST: &str = "host";
pub const RANK: &str = "rank";

/// The tags that samples of one sender get which lack them. By default none: what was sent is what is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DefaultTags {
    host: Option<Arc<str>>,
    rank: Option<u32>,
    slot: Option<u32>,
}

impl DefaultTags {
    /// Those of a process of the node `host`; of a rank, where its launcher said one.
    pub fn of_process(host: Arc<str>, rank: Option<u32>) -> Self {
        Self { host: Some(host), rank, slot: None }
    }

    /// The same, of a job that has this slot.
    #[must_use]
    pub fn in_slot(self, slot: Option<u32>) -> Self {
        Self { slot, ..self }
    }

    /// The same with this host, unless they have one.
    #[must_use]
    pub fn with_host(self, host: Arc<str>) -> Self {
        Self { host: self.host.or(Some(host)), ..self }
    }

    /// Those without `host` and `rank`, which the sender says itself.
    #[must_use]
    pub fn of_slot_alone(self) -> Self {
        Self { slot: self.slot, ..Self::default() }
    }

    /// Whether samples stay as they were sent.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The tags that were sent, and those of these that are missing among them. What was sent comes first: beyond
    /// `tags_max` nothing is added; the slot comes before `host`, and `host` before `rank`.
    ///
    /// # Errors
    /// As [`TagSet::new`].
    pub fn complete<K: AsRef<str>, V: AsRef<str>>(&self, sent: &[(K, V)], tags_max: usize) -> Result<TagSet> {
        let rank = self.rank.map(|rank| rank.to_string());
        let slot = self.slot.map(|slot| slot.to_string());
        let own = [(JOB_SLOT_TAG, slot.as_deref()), (HOST, self.host.as_deref()), (RANK, rank.as_deref())];
        let missing = own.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let missing =
            missing.filter(|(key, _)| *key == JOB_SLOT_TAG || !sent.iter().any(|(sent, _)| sent.as_ref() == *key));
        // Whose a sample is, its sender does not choose by a number.
        let is_slot = |key: &str| slot.is_some() && key == JOB_SLOT_TAG;
        let sent_tags = sent.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).filter(|(key, _)| !is_slot(key));
        TagSet::new(sent_tags.chain(missing.take(tags_max.saturating_sub(sent.len()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(rank: Option<u32>, sent: &[(&str, &str)], tags_max: usize) -> String {
        let tags = DefaultTags::of_process("n7".into(), rank).complete(sent, tags_max).unwrap();
        tags.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn what_is_missing_is_added_and_what_was_sent_stays() {
        assert_eq!(completed(Some(3), &[("a", "b")], 64), "a=b,host=n7,rank=3");
        assert_eq!(completed(None, &[("a", "b")], 64), "a=b,host=n7");
        assert_eq!(completed(Some(3), &[("host", "mine")], 64), "host=mine,rank=3");
        assert_eq!(completed(Some(3), &[("rank", "x"), ("host", "y")], 64), "host=y,rank=x");
        assert_eq!(DefaultTags::default().complete(&[("a", "b")], 64).unwrap().len(), 1);
    }

    #[test]
    fn what_a_job_among_several_sends_is_marked_with_its_slot() {
        let tags = DefaultTags::of_process("n7".into(), Some(3)).in_slot(Some(2));
        let completed = |tags_max| tags.complete(&[("a", "b")], tags_max).unwrap();
        assert_eq!(completed(64).get(JOB_SLOT_TAG), Some("2"));
        assert_eq!((completed(2).get(JOB_SLOT_TAG), completed(2).get(HOST)), (Some("2"), None));
        let claimed = tags.complete(&[(JOB_SLOT_TAG, "7")], 64).unwrap();
        assert_eq!(claimed.get(JOB_SLOT_TAG), Some("2"), "nobody claims the place of another job");
    }

    #[test]
    fn a_sample_with_as_many_tags_as_may_be_stays_as_it_was_sent() {
        assert_eq!(completed(Some(3), &[("a", "b"), ("c", "d")], 2), "a=b,c=d");
        assert_eq!(completed(Some(3), &[("a", "b"), ("c", "d")], 3), "a=b,c=d,host=n7");
        let many: Vec<(String, &str)> = (0..telem_engine::series::TAGS_MAX).map(|at| (format!("k{at}"), "v")).collect();
        let tags = DefaultTags::of_process("n7".into(), Some(1)).complete(&many, many.len()).unwrap();
        assert_eq!(tags.len(), many.len());
    }
}
