//! Questions in SQL from inside the job.

use std::sync::Arc;
use std::time::Duration;

use crate::ffi;
use crate::session::{ClientError, c_text, c_timeout};
use crate::value::Value;

/// The answer to a question: an iterator over its rows.
#[derive(Clone, Debug)]
pub struct Answer {
    columns: Arc<[String]>,
    rows: std::vec::IntoIter<Vec<Value>>,
}

impl Answer {
    /// The names of its columns; none where it has no rows.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }
}

impl Iterator for Answer {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        let values = self.rows.next()?;
        Some(Row { columns: self.columns.clone(), values })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rows.size_hint()
    }
}

impl ExactSizeIterator for Answer {}

/// A row of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    columns: Arc<[String]>,
    values: Vec<Value>,
}

impl Row {
    /// The value in the column of that name.
    pub fn get(&self, column: &str) -> Option<&Value> {
        let at = self.columns.iter().position(|name| name == column)?;
        self.values.get(at)
    }

    /// All values, in the order of the columns.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// The names of the columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }
}

/// Asks the service in SQL, after a flush of what this process logged.
///
/// ```
/// use std::time::Duration;
///
/// let question = "SELECT tags['rank'] AS rank, avg(value) AS mean FROM loss GROUP BY 1";
/// match telem_client::sql(question, Duration::from_secs(10)) {
///     Ok(answer) => {
///         for row in answer {
///             println!("{:?}: {:?}", row.get("rank"), row.get("mean").and_then(|mean| mean.as_f64()));
///         }
///     }
///     Err(error) => eprintln!("{error}"),
/// }
/// ```
///
/// # Errors
/// There is no answer in that time; the reason says why, nodes that did not answer included.
pub fn sql(question: &str, timeout: Duration) -> Result<Answer, ClientError> {
    let taken = ffi::sql(&c_text(question, "the question")?, c_timeout(timeout)).ok_or_else(ClientError::last)?;
    Ok(Answer { columns: taken.columns.into(), rows: taken.rows.into_iter() })
}

/// One number, such as the average of the last minute: the first column of the first row.
///
/// # Errors
/// As of [`sql`], and where there is no row, or no number in it.
pub fn sql_number(question: &str, timeout: Duration) -> Result<f64, ClientError> {
    ffi::sql_number(&c_text(question, "the question")?, c_timeout(timeout)).ok_or_else(ClientError::last)
}
