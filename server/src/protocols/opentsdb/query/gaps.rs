//! How gaps that a fill policy filled are shown: as in OpenTSDB, or in a way that Grafana recognises as gaps.
//!
//! Grafana up to 12.3 queries from the browser, which draws a `null` as a gap and cannot draw a `"NaN"`. Grafana 13
//! queries from its server, which fails on a `"NaN"` and turns a `null` into 0; for it only a missing point is a gap.
//! The two are distinguished by `msResolution`, which browsers always send and the server never does.

use telem_engine::Value;
use telem_query::TsGroup;

use super::parse::Asked;
use crate::protocols::opentsdb::call::Call;
use crate::protocols::opentsdb::errors::OpenTsdbError;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gaps {
    /// As the fill policy says: `"NaN"` or null.
    #[default]
    AsFilled,
    /// Each is null.
    Null,
    /// Each is a point less.
    LeftOut,
}

impl Gaps {
    /// What `call` wants by its parameter `gaps`, or else by its path.
    ///
    /// # Errors
    /// 400 for an unknown word.
    pub fn requested(call: &Call, asked: &Asked) -> Result<Gaps, OpenTsdbError> {
        match call.params.get("gaps") {
            Some("fill") => Ok(Gaps::AsFilled),
            Some("null") => Ok(Gaps::Null),
            Some("none") => Ok(Gaps::LeftOut),
            Some(other) => Err(OpenTsdbError::bad_request(format!("gaps '{other}' does not exist"))
                .details("there are fill, as the fill policy says, null, and none, for a point less")),
            None if !call.of_grafana => Ok(Gaps::AsFilled),
            None if asked.by_browser => Ok(Gaps::Null),
            None => Ok(Gaps::LeftOut),
        }
    }

    /// Takes gaps out of `group` that are not to be shown.
    pub fn take_out(self, group: &mut TsGroup) {
        if self == Gaps::LeftOut {
            group.points.retain(|(_, value)| !matches!(value, Value::Float(float) if float.is_nan()));
        }
    }

    /// Whether a gap is null where the fill policy says so (`null_filled`) or does not.
    pub fn are_null(self, null_filled: bool) -> bool {
        self == Gaps::Null || (self == Gaps::AsFilled && null_filled)
    }
}
