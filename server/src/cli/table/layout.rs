//! The widths of columns, which of them are shown, and the lines that they form.

use super::TableColumns;
use super::cells::{CellColumn, CellSide, Cells};

/// A text is not cut shorter than this.
const TEXT_MIN: usize = 8;
/// Nor a column's name.
const NAME_MIN: usize = 5;
/// Before a column, and behind the last.
const EDGE: usize = 2;
/// Stands for what is cut off, and for columns that are not shown.
const CUT: char = '…';

/// The widths of columns.
#[derive(Debug)]
pub struct TableLayout {
    shown: Vec<ShownColumn>,
    /// Columns that have no room, by their places.
    pub hidden: Vec<usize>,
    /// Of text.
    cut: CellCut,
}

/// What becomes of text that is longer than its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellCut {
    /// It ends at the column's: in one line, or wrapped where it has several, as a plan has.
    There,
    /// It is whole, and its line longer.
    Nowhere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShownColumn {
    Column {
        at: usize,
        width: usize,
        side: CellSide,
    },
    /// In place of the hidden ones.
    Gap,
}

impl ShownColumn {
    fn width(self) -> usize {
        match self {
            ShownColumn::Column { width, .. } => width,
            ShownColumn::Gap => 1,
        }
    }
}

/// The least that a column can be, and what it would like to be.
#[derive(Clone, Copy, Debug)]
struct ColumnWish {
    least: usize,
    whole: usize,
}

impl TableLayout {
    /// The layout of these rows in lines of at most `width`; without a limit every column has its full width.
    pub fn new(cells: &Cells, width: Option<usize>, known: &TableColumns) -> Self {
        let side = |at: usize| match &cells.columns[at] {
            column if known.whole.contains(&column.name.as_str()) => CellSide::Left,
            column => column.side,
        };
        let wishes: Vec<ColumnWish> =
            cells.columns.iter().enumerate().map(|(at, column)| wish(column, side(at))).collect();
        let line = |widths: &mut dyn Iterator<Item = usize>| widths.map(|width| width + EDGE + 1).sum::<usize>() + 1;
        let room = width.unwrap_or(usize::MAX);
        let mut kept: Vec<usize> = (0..wishes.len()).collect();
        let mut hidden = Vec::new();
        let gap = |hidden: &[usize]| if hidden.is_empty() { 0 } else { 1 + EDGE + 1 };
        // The first and the last columns say most, and times and numbers more than text.
        while kept.len() > 1 && line(&mut kept.iter().map(|at| wishes[*at].least)) + gap(&hidden) > room {
            let middle = kept.len() / 2;
            let is_text = |at: &usize| side(kept[*at]) == CellSide::LeftCut;
            let may_go = |at: &usize| !known.last_to_go.contains(&cells.columns[kept[*at]].name.as_str());
            let inner = |at: &usize| at.abs_diff(middle);
            let of_text = || (1..kept.len() - 1).filter(is_text).filter(may_go).min_by_key(inner);
            let any = || (0..kept.len()).filter(may_go).min_by_key(inner);
            let place = |name: &&str| kept.iter().position(|at| cells.columns[*at].name == *name);
            let first = known.first_to_go.iter().find_map(place);
            let last = || known.last_to_go.iter().find_map(place);
            let goes = first.or_else(of_text).or_else(any).or_else(last).unwrap_or(middle);
            hidden.push(kept.remove(goes));
        }
        hidden.sort_unstable();
        let fits = |most: usize| {
            let width = |at: &usize| most.clamp(wishes[*at].least, wishes[*at].whole);
            line(&mut kept.iter().map(width)).saturating_add(gap(&hidden)) <= room
        };
        let widest = kept.iter().map(|at| wishes[*at].whole).max().unwrap_or(0);
        let most = (0..=widest).rev().find(|most| fits(*most)).unwrap_or(0);
        let mut shown: Vec<ShownColumn> = Vec::with_capacity(kept.len() + 1);
        for at in &kept {
            if hidden.first().is_some_and(|hidden| hidden < at) && !shown.contains(&ShownColumn::Gap) {
                shown.push(ShownColumn::Gap);
            }
            let width = most.clamp(wishes[*at].least, wishes[*at].whole);
            shown.push(ShownColumn::Column { at: *at, width, side: side(*at) });
        }
        if !hidden.is_empty() && !shown.contains(&ShownColumn::Gap) {
            shown.push(ShownColumn::Gap);
        }
        let cut = if width.is_some() { CellCut::There } else { CellCut::Nowhere };
        Self { shown, hidden, cut }
    }

    /// The rule, the names, the rule.
    pub fn head(&self, cells: &Cells) -> String {
        let names = self.line(|at, _| (cells.columns[at].name.as_str(), self.cut));
        format!("{rule}{names}{rule}", rule = self.rule())
    }

    pub fn row(&self, cells: &Cells, row: usize) -> String {
        let cut = |side| if side == CellSide::LeftCut { self.cut } else { CellCut::Nowhere };
        self.line(|at, side| (cells.columns[at].cells[row].as_str(), cut(side)))
    }

    pub fn rule(&self) -> String {
        let dashes = self.shown.iter().map(|shown| "-".repeat(shown.width() + EDGE));
        format!("+{}+\n", dashes.collect::<Vec<_>>().join("+"))
    }

    /// One row, in as many lines as its text has.
    fn line<'a>(&self, text: impl Fn(usize, CellSide) -> (&'a str, CellCut)) -> String {
        let cells: Vec<Vec<String>> = self
            .shown
            .iter()
            .map(|shown| match *shown {
                ShownColumn::Column { at, width, side } => {
                    let (text, cut) = text(at, side);
                    lines(text, width.max(1), cut)
                }
                ShownColumn::Gap => vec![CUT.to_string()],
            })
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(1);
        let mut written = String::new();
        for line in 0..height {
            for (shown, lines) in self.shown.iter().zip(&cells) {
                let (width, part) = (shown.width(), lines.get(line).map_or("", String::as_str));
                match shown {
                    ShownColumn::Column { side: CellSide::Right, .. } => {
                        written.push_str(&format!("| {part:>width$} "))
                    }
                    _ => written.push_str(&format!("| {part:<width$} ")),
                }
            }
            written.push_str("|\n");
        }
        written
    }
}

fn wish(column: &CellColumn, side: CellSide) -> ColumnWish {
    let name = length(&column.name);
    let widest = column.cells.iter().flat_map(|cell| cell.split('\n')).map(length).max().unwrap_or(0);
    let least = match side {
        CellSide::LeftCut => widest.min(TEXT_MIN),
        CellSide::Right | CellSide::Left => widest,
    };
    ColumnWish { least: least.max(name.min(NAME_MIN)), whole: widest.max(name).max(1) }
}

fn lines(text: &str, width: usize, cut: CellCut) -> Vec<String> {
    match (cut, text.contains('\n')) {
        (CellCut::Nowhere, _) => text.split('\n').map(str::to_owned).collect(),
        (CellCut::There, true) => text.split('\n').flat_map(|line| wrapped(line, width)).collect(),
        (CellCut::There, false) if length(text) > width => vec![text.chars().take(width - 1).chain([CUT]).collect()],
        (CellCut::There, false) => vec![text.to_owned()],
    }
}

fn wrapped(line: &str, width: usize) -> Vec<String> {
    let all: Vec<char> = line.chars().collect();
    if all.is_empty() {
        return vec![String::new()];
    }
    all.chunks(width).map(|part| part.iter().collect()).collect()
}

fn length(text: &str) -> usize {
    text.chars().count()
}
