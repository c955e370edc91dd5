//! A table for people: numbers aligned on the right with the digits that matter, short times, and no line longer than
//! the terminal is wide.
//!
//! Output for programs is written by [`super::output`], which neither rounds nor cuts anything.

mod cells;
mod layout;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

use cells::Cells;
use layout::TableLayout;

/// Rows that are laid out together: the widths of columns are theirs, and what follows keeps to them.
const BLOCK_ROWS: usize = 1_000;
/// Default number of rows of a table on a terminal: about a screen.
pub(crate) const TERMINAL_ROWS: usize = 40;
/// Width of a terminal that does not tell its own.
const TERMINAL_WIDTH: usize = 80;

/// How much of an answer a table shows.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    pub rows_max: usize,
    /// The longest that a line may be; `None` where lines have no end, as in a file.
    pub width: Option<usize>,
    pub columns: TableColumns,
}

/// What is known of columns where a line has no room for all of them.
#[derive(Clone, Copy, Debug)]
pub struct TableColumns {
    /// Texts that are shown whole, as those that are given to other commands.
    pub whole: &'static [&'static str],
    /// Columns that go before all others, in this order.
    pub first_to_go: &'static [&'static str],
    /// Columns that go after all others, in this order.
    pub last_to_go: &'static [&'static str],
    /// How columns are seen that have no room.
    pub hint: &'static str,
}

impl TableColumns {
    /// Of a query, of whose columns nothing is known but what those of samples are called: the value is what is looked
    /// for, and means little without its time.
    pub const OF_A_QUERY: TableColumns = TableColumns {
        whole: &[],
        first_to_go: &[],
        last_to_go: &["ts", "value"],
        hint: "name the columns that you want, or --format csv",
    };
}

impl TableOptions {
    /// What stdout can show: on a terminal a screen, elsewhere everything.
    pub fn of_stdout(rows_max: Option<usize>) -> Self {
        let width = terminal_width();
        let rows = if width.is_some() { TERMINAL_ROWS } else { usize::MAX };
        Self { rows_max: rows_max.unwrap_or(rows), width, columns: TableColumns::OF_A_QUERY }
    }

    /// Of a file, which has room for everything.
    pub fn of_file(rows_max: Option<usize>) -> Self {
        Self { rows_max: rows_max.unwrap_or(usize::MAX), width: None, columns: TableColumns::OF_A_QUERY }
    }
}

/// The width of the terminal at stdout; `None` if stdout is not a terminal.
pub fn terminal_width() -> Option<usize> {
    use std::io::IsTerminal;
    let out = io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let columns = rustix::termios::tcgetwinsize(&out).map_or(0, |size| usize::from(size.ws_col));
    Some(if columns == 0 { TERMINAL_WIDTH } else { columns })
}

/// Takes the batches of an answer and writes them as a table.
pub struct TextTable {
    options: TableOptions,
    out: Box<dyn Write + Send>,
    schema: SchemaRef,
    /// Rows that are not written yet.
    waiting: Vec<RecordBatch>,
    rows_waiting: usize,
    rows_written: usize,
    /// Set when the first rows are written.
    layout: Option<TableLayout>,
    /// Rows beyond those that are shown, as far as they were counted.
    more: u64,
}

/// Whether the rows beyond a table were all counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    All,
    AtLeast,
}

impl TextTable {
    pub fn new(schema: &SchemaRef, options: TableOptions, out: Box<dyn Write + Send>) -> Self {
        let schema = SchemaRef::clone(schema);
        Self { options, out, schema, waiting: Vec::new(), rows_waiting: 0, rows_written: 0, layout: None, more: 0 }
    }

    /// Rows that came and are not shown.
    pub fn more(&self) -> u64 {
        self.more
    }

    /// # Errors
    /// Of the writer; and where a value cannot be written as text.
    pub fn batch(&mut self, batch: &RecordBatch) -> Result<(), TableError> {
        let room = self.options.rows_max.saturating_sub(self.rows_written + self.rows_waiting);
        let shown = batch.num_rows().min(room);
        if shown > 0 {
            self.waiting.push(batch.slice(0, shown));
            self.rows_waiting += shown;
        }
        let more = batch.num_rows() - shown;
        if more > 0 && self.more == 0 {
            self.end()?;
        }
        self.more += more as u64;
        if self.rows_waiting >= BLOCK_ROWS {
            self.write_waiting()?;
        }
        Ok(())
    }

    /// Writes what is left and closes the table; says on stderr what is not shown.
    ///
    /// # Errors
    /// As [`TextTable::batch`].
    pub fn finish(mut self, counted: Counted) -> Result<(), TableError> {
        if self.more == 0 {
            self.end()?;
        }
        for note in self.notes(counted) {
            // There is nowhere to say that stderr is closed.
            writeln!(io::stderr(), "{note}").unwrap_or_default();
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), TableError> {
        self.write_waiting()?;
        if let Some(layout) = &self.layout {
            self.out.write_all(layout.rule().as_bytes())?;
        }
        Ok(self.out.flush()?)
    }

    fn write_waiting(&mut self) -> Result<(), TableError> {
        let waiting = std::mem::take(&mut self.waiting);
        self.rows_written += std::mem::take(&mut self.rows_waiting);
        let cells = Cells::of(&self.schema, &waiting)?;
        let layout = match &self.layout {
            Some(layout) => layout,
            None => {
                let layout = TableLayout::new(&cells, self.options.width, &self.options.columns);
                self.out.write_all(layout.head(&cells).as_bytes())?;
                &*self.layout.insert(layout)
            }
        };
        for row in 0..cells.rows() {
            self.out.write_all(layout.row(&cells, row).as_bytes())?;
        }
        Ok(())
    }

    /// What the table does not show, and how it is seen.
    fn notes(&self, counted: Counted) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(layout) = &self.layout
            && !layout.hidden.is_empty()
        {
            let names: Vec<&str> = layout.hidden.iter().map(|at| self.schema.field(*at).name().as_str()).collect();
            notes.push(format!(
                "the terminal has no room for {}: {}; {}",
                if let [_] = *names { "this column" } else { "these columns" },
                names.join(", "),
                self.options.columns.hint
            ));
        }
        if self.more > 0 {
            let all = crate::info::grouped(self.rows_written as u64 + self.more);
            let (shown, all) = (
                crate::info::grouped(self.rows_written as u64),
                match counted {
                    Counted::All => all,
                    Counted::AtLeast => format!("more than {all}"),
                },
            );
            notes.push(format!("the first {shown} of {all} rows; --rows-max N shows more, --format csv all"));
        }
        notes
    }
}

/// Why a table cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error(transparent)]
    Write(#[from] io::Error),
    #[error(transparent)]
    Value(#[from] ArrowError),
}
