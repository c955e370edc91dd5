//! How a view of the API reads questions and answers them, where that is not OpenTSDB's own way.

use telem_query::tsq::Fidelity;

use super::filters::{Filter, FilterReader};
use super::request::{LineOrder, QueryRequest};
use super::resolve::ResolvedQuery;

/// What a view does in its own way.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// `None`: as the request says, or else the server.
    pub fidelity: Option<Fidelity>,
    pub filter: FilterReader,
    /// Whether each sub-query has a place of its own, also one that is the same as another, and `showQuery` shows the
    /// words in which it came.
    pub as_sent: bool,
    /// Whether a question in which nothing is wrong but that there is nothing to tell is answered with nothing: names
    /// that nobody carries, an end before the start. Else it is an error.
    pub nothing_is_an_answer: bool,
    pub order: LineOrder,
    /// Changes what was read.
    pub times: fn(&mut QueryRequest),
    /// Changes which series make a line.
    pub lines: fn(&QueryRequest, &mut [ResolvedQuery]),
}

/// OpenTSDB's own.
pub const OPENTSDB: Manner = Manner {
    fidelity: None,
    filter: Filter::of_kind,
    as_sent: false,
    nothing_is_an_answer: false,
    order: LineOrder::FirstSeen,
    times: |_| (),
    lines: |_, _| (),
};

/// How one request is read.
#[derive(Clone, Copy, Debug)]
pub struct QueryReading {
    pub fidelity: Fidelity,
    pub manner: Manner,
}

impl From<Fidelity> for QueryReading {
    fn from(fidelity: Fidelity) -> Self {
        QueryReading { fidelity, manner: OPENTSDB }
    }
}
