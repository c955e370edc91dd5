//! What readers of tables make of a field, before anything is decided about its column.

/// One field of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    Null,
    Text(&'a str),
    Int(i64),
    Float(f64),
    /// Microseconds since 1970.
    Time(i64),
    /// An integer beyond 64 bits.
    TooLarge,
    /// What no sample is made of: a list, bytes.
    Other,
}
