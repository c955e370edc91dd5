//! How gaps that a fill policy filled are shown: as in OpenTSDB, or in a way that Grafana recognises as gaps.
//!
//! Grafana up to 12.3 queries from the browser, which draws a `null` as a gap and cannot draw a `"NaN"`. Grafana 13
//! queries from its server, which fails on a `"NaN"` and turns a `null` into 0; for it only a missing point is a gap.
//! The two are distinguished by `msResolution`, which browsers always send and the server never does.

use telem_engine::Value;
use telem_query::TsGroup;

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

/// What the fill policy of a sub-query writes into gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GapFilling {
    Null,
    /// `"NaN"`, a number, or nothing.
    #[default]
    Other,
}

impl Gaps {
    /// Takes gaps out of `group` that are not to be shown.
    pub fn take_out(self, group: &mut TsGroup) {
        if self == Gaps::LeftOut {
            group.points.retain(|(_, value)| !matches!(value, Value::Float(float) if float.is_nan()));
        }
    }

    /// Whether each is null, where the fill policy says so or does not.
    pub fn are_null(self, filling: GapFilling) -> bool {
        match self {
            Gaps::Null => true,
            Gaps::AsFilled => filling == GapFilling::Null,
            Gaps::LeftOut => false,
        }
    }
}
