//! Rows of texts in columns, for a terminal.

/// Between columns.
const GAP: &str = "  ";

/// Text that a terminal shows as it is.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Where the columns behind the first are aligned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ColumnSide {
    Left,
    Right,
}

fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.first().map_or(0, Vec::len);
    (0..columns).map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect()
}

/// Characters of the longest line.
pub fn widest(rows: &[Vec<String>]) -> usize {
    let widths = widths(rows);
    widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1)
}

/// Lines that are cut where the terminal ends.
pub fn lines(rows: &[Vec<String>], side: ColumnSide, width: Option<usize>) -> String {
    let widths = widths(rows);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match (at, side) {
            (0, _) | (_, ColumnSide::Left) => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        let line = cells.collect::<Vec<_>>().join(GAP);
        let line = line.trim_end();
        match width {
            Some(width) if line.chars().count() > width => {
                text.extend(line.chars().take(width.saturating_sub(1)));
                text.push('…');
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}
