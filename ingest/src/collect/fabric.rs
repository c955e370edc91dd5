//! Fabrics: what the cards of a cluster's network moved, lost and waited for. Each counter is a question to the card.

pub(crate) mod cxi;
pub(crate) mod infiniband;
