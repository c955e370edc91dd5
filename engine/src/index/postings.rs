//! Which series have a name: most names are of few, and these need no memory of their own.

use crate::series::SeriesId;

/// Most series that stand in the list itself.
const FEW: usize = 3;

/// Series in the order of their ids, every one once.
#[derive(Debug)]
pub enum Postings {
    Few { count: u8, ids: [SeriesId; FEW] },
    Many(Vec<SeriesId>),
}

impl Default for Postings {
    fn default() -> Self {
        Self::Few { count: 0, ids: [SeriesId(0); FEW] }
    }
}

impl Postings {
    pub fn as_slice(&self) -> &[SeriesId] {
        match self {
            Self::Few { count, ids } => &ids[..usize::from(*count)],
            Self::Many(ids) => ids,
        }
    }

    /// What a list takes beside itself, with room for more.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Few { .. } => 0,
            Self::Many(ids) => ids.capacity() * size_of::<SeriesId>(),
        }
    }

    /// Adds one whose id is larger than those that are there.
    pub fn push(&mut self, id: SeriesId) {
        match self {
            Self::Few { count, ids } if usize::from(*count) < FEW => {
                ids[usize::from(*count)] = id;
                *count += 1;
            }
            Self::Few { ids, .. } => {
                let mut many = Vec::with_capacity(2 * FEW);
                many.extend_from_slice(ids);
                many.push(id);
                *self = Self::Many(many);
            }
            Self::Many(ids) => {
                if ids.len() == ids.capacity() {
                    // By a quarter: many of these lists are long, and stay as they are.
                    ids.reserve_exact(ids.len() / 4 + 1);
                }
                ids.push(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_what_was_pushed_in_its_order_and_few_take_no_memory_of_their_own() {
        let mut list = Postings::default();
        for count in 0..3 * FEW {
            assert_eq!(list.as_slice(), (0..count as u32).map(SeriesId).collect::<Vec<_>>());
            assert_eq!(matches!(list, Postings::Few { .. }), count <= FEW);
            list.push(SeriesId(count as u32));
        }
        assert!(size_of::<Postings>() <= size_of::<Vec<SeriesId>>());
    }
}
