//! Panels.

/// Most panels of a request.
pub(crate) const PANELS_MAX: usize = 64;
/// Most columns of a panel.
pub(crate) const COLUMNS_MAX: usize = 2_000;
/// Most lines of a panel.
pub(crate) const LINES_MAX: usize = 256;
/// Most rows of a heat map.
pub(crate) const ROWS_MAX: usize = 2_000;
