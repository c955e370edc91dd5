#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

mod ffi;
mod metric;
mod options;
mod question;
mod session;
mod span;
mod value;

pub use metric::{Counter, Gauge, Histogram, Metric, Tags};
pub use options::{ClientOptions, ProcessTags};
pub use question::{Answer, Row, sql, sql_number};
pub use session::{ClientError, Connection, Counts, connection, counts, flush, level, note, setting, stop};
pub use span::{Span, Timer};
pub use value::{Micros, Number, Value};
