//! The rows of a damaged file, page by page, as SQLite's documentation of its file format describes them.
//!
//! A table is a tree: inner pages say which rows lie below which page, leaves hold the rows. What of the tree can be
//! read is followed. Where a page of it is gone, leaves that nothing leads to are looked for among all pages: a file
//! that was cut off has most of its leaves, but hardly an inner page. Such a leaf counts if its rows are of those that
//! are gone. Only one table of a file may have lost its leaves: nothing in them says which table they are of.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rusqlite::types::ValueRef;

use super::{DragonRow, MAGIC};
use crate::cli::CliFailure;
use crate::info::grouped;

/// Largest text or row. Dragon's have some 50 bytes.
pub const ROW_BYTES_MAX: u64 = 16 << 20;
/// The header of the file, at the start of its first page.
const HEADER_BYTES: usize = 100;
const INNER: u8 = 0x05;
const LEAF: u8 = 0x0d;
/// Where the cells of a page are listed.
const INNER_HEAD: usize = 12;
const LEAF_HEAD: usize = 8;
const UTF_8: u32 = 1;

/// The file, as pages.
#[derive(Debug)]
pub struct DragonPages {
    file: File,
    page_bytes: usize,
    /// Of a page, without what is reserved at its end.
    usable: usize,
    count: u32,
    freed: Option<u32>,
}

/// A leaf, with its first and last row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RowLeaf {
    first: i64,
    last: i64,
    page: u32,
}

/// Rows that are not there, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostRows {
    pub first: i64,
    pub last: i64,
}

/// The tree of a table, as far as it can be read.
#[derive(Debug, Default)]
struct TableTree {
    leaves: Vec<RowLeaf>,
    /// Rows below pages that cannot be read, in their order.
    lost: Vec<LostRows>,
}

/// What is left of a table behind some row.
#[derive(Debug)]
pub struct LeftRows {
    pages: DragonPages,
    columns: [Option<usize>; 4],
    tree: TableTree,
    /// The leaf that is next.
    at: usize,
    /// The last row so far.
    after: i64,
    /// Found before the leaf that is next.
    waiting: Vec<LostRows>,
}

/// What came of one leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftEnd {
    More,
    Lost(LostRows),
    End,
}

impl fmt::Display for LostRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |row: i64| grouped(row.unsigned_abs());
        match self.last {
            i64::MAX => {
                write!(f, "the rows from {} on are not there: the file is cut off or damaged", number(self.first))
            }
            last if last == self.first => write!(f, "this row cannot be read: the file is damaged there"),
            last => write!(
                f,
                "the rows {} to {} cannot be read: the file is damaged there",
                number(self.first),
                number(last)
            ),
        }
    }
}

impl DragonPages {
    /// `None` where the header is no good, or texts are not UTF-8.
    pub fn open(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0).ok()?;
        let page_bytes = match u16::from_be_bytes([header[16], header[17]]) {
            1 => 65_536,
            size if size >= 512 && size.is_power_of_two() => usize::from(size),
            _ => return None,
        };
        let usable = page_bytes - usize::from(header[20]);
        let is_good = header.starts_with(MAGIC) && usable >= 480 && four(&header, 56)? == UTF_8;
        let count = file.metadata().ok()?.len() / page_bytes as u64;
        let freed = four(&header, 32).filter(|page| *page > 0);
        is_good.then_some(Self { file, page_bytes, usable, count: u32::try_from(count).ok()?, freed })
    }

    fn page(&self, number: u32) -> Option<Vec<u8>> {
        if number == 0 || number > self.count {
            return None;
        }
        let mut page = vec![0; self.page_bytes];
        self.file.read_exact_at(&mut page, u64::from(number - 1) * self.page_bytes as u64).ok()?;
        Some(page)
    }

    /// Follows the tree that begins at a page; which pages belong to it is noted in `seen`.
    fn tree(&self, root: u32, seen: &mut [bool]) -> TableTree {
        let mut tree = TableTree::default();
        // Pages to look at, with the rows that may be below them; the first comes last.
        let mut waiting = vec![(root, LostRows { first: i64::MIN, last: i64::MAX })];
        while let Some((number, rows)) = waiting.pop() {
            let is_new = seen.get_mut(number as usize).is_some_and(|seen| !std::mem::replace(seen, true));
            let page = if is_new { self.page(number) } else { None };
            let below = match page.as_deref().map(|page| (page, page[start(number)])) {
                Some((page, INNER)) => self.children(number, page, rows),
                Some((page, LEAF)) => self.leaf(number, page, rows).map(|leaf| {
                    tree.leaves.extend(leaf);
                    Vec::new()
                }),
                _ => None,
            };
            match below {
                Some(below) => waiting.extend(below.into_iter().rev()),
                None => tree.lose(rows),
            }
        }
        tree
    }

    /// The pages below an inner page, with the rows of each; `None` of a page that cannot be one.
    fn children(&self, number: u32, page: &[u8], rows: LostRows) -> Option<Vec<(u32, LostRows)>> {
        let head = start(number);
        let mut children = Vec::new();
        let mut first = rows.first;
        for cell in cells(page, head, INNER_HEAD)? {
            let child = four(page, cell)?;
            let (last, _) = varint(page.get(cell + 4..)?)?;
            if last < first || last > rows.last {
                return None;
            }
            children.push((child, LostRows { first, last }));
            first = last.checked_add(1)?;
        }
        children.push((four(page, head + 8)?, LostRows { first, last: rows.last }));
        Some(children)
    }

    /// The first and the last row of a leaf, if it has any; `None` of a page that cannot be a leaf with these rows.
    fn leaf(&self, number: u32, page: &[u8], rows: LostRows) -> Option<Option<RowLeaf>> {
        let mut leaf: Option<RowLeaf> = None;
        for cell in cells(page, start(number), LEAF_HEAD)? {
            let (bytes, length) = varint(page.get(cell..)?)?;
            let (rowid, _) = varint(page.get(cell + length..)?)?;
            let is_behind = leaf.is_none_or(|leaf| rowid > leaf.last);
            if !is_behind || rowid < rows.first || rowid > rows.last || u64::try_from(bytes).ok()? > ROW_BYTES_MAX {
                return None;
            }
            leaf = Some(RowLeaf { first: leaf.map_or(rowid, |leaf| leaf.first), last: rowid, page: number });
        }
        Some(leaf)
    }

    /// Leaves that nothing leads to, with rows of the `lost` ones.
    fn orphans(&self, lost: &[LostRows], columns: &[Option<usize>; 4], seen: &mut [bool]) -> Vec<RowLeaf> {
        self.see_freed(seen);
        let whole = LostRows { first: i64::MIN, last: i64::MAX };
        let mut found = Vec::new();
        for number in (2..=self.count).filter(|number| !seen[*number as usize]) {
            let Some(page) = self.page(number) else { continue };
            if page[0] != LEAF {
                continue;
            }
            let Some(Some(leaf)) = self.leaf(number, &page, whole) else { continue };
            let is_lost = lost.iter().any(|lost| lost.first <= leaf.first && leaf.last <= lost.last);
            let mut is_dragon = true;
            self.rows(&page, number, i64::MIN, columns, |row| {
                is_dragon &= matches!((row.metric, row.time), (ValueRef::Text(_), ValueRef::Text(_)));
                Ok::<(), ()>(())
            })
            .unwrap_or_default();
            if is_lost && is_dragon {
                found.push(leaf);
            }
        }
        found
    }

    /// Notes the pages that SQLite has no use for.
    fn see_freed(&self, seen: &mut [bool]) {
        let mut next = self.freed;
        while let Some(page) = next.and_then(|number| {
            let is_new = seen.get_mut(number as usize).is_some_and(|seen| !std::mem::replace(seen, true));
            if is_new { self.page(number) } else { None }
        }) {
            let listed = four(&page, 4).unwrap_or(0) as usize;
            for number in page[8..].chunks_exact(4).take(listed).filter_map(|four_bytes| four(four_bytes, 0)) {
                if let Some(seen) = seen.get_mut(number as usize) {
                    *seen = true;
                }
            }
            next = four(&page, 0).filter(|number| *number > 0);
        }
    }

    /// Gives the rows of a leaf behind the row `after` to `take`; those that cannot be read are returned.
    fn rows<E>(
        &self,
        page: &[u8],
        number: u32,
        after: i64,
        columns: &[Option<usize>; 4],
        mut take: impl FnMut(&DragonRow<'_>) -> Result<(), E>,
    ) -> Result<Vec<i64>, E> {
        let mut broken = Vec::new();
        for cell in cells(page, start(number), LEAF_HEAD).unwrap_or_default() {
            let Some((rowid, content)) = self.cell(page, cell) else { continue };
            if rowid <= after {
                continue;
            }
            let content = content.as_deref().and_then(record);
            match content {
                Some(values) => {
                    let value =
                        |at: usize| columns[at].and_then(|at| values.get(at)).copied().unwrap_or(ValueRef::Null);
                    // The column is one of floats, of which SQLite keeps whole ones as integers.
                    let float = |value| match value {
                        ValueRef::Integer(int) => ValueRef::Real(int as f64),
                        other => other,
                    };
                    take(&DragonRow {
                        rowid,
                        metric: value(0),
                        time: value(1),
                        value: float(value(2)),
                        tags: value(3),
                    })?;
                }
                None => broken.push(rowid),
            }
        }
        Ok(broken)
    }

    /// A cell of a leaf: the number of its row, and what is stored, unless that cannot be read.
    fn cell(&self, page: &[u8], at: usize) -> Option<(i64, Option<Vec<u8>>)> {
        let (bytes, length) = varint(page.get(at..)?)?;
        let (rowid, more) = varint(page.get(at + length..)?)?;
        let bytes = usize::try_from(bytes).ok()?;
        let from = at + length + more;
        Some((rowid, self.content(page, from, bytes)))
    }

    /// What is stored in a cell; a long one goes on in other pages.
    fn content(&self, page: &[u8], from: usize, bytes: usize) -> Option<Vec<u8>> {
        let most = self.usable - 35;
        if bytes <= most {
            return page.get(from..from + bytes).map(<[u8]>::to_vec);
        }
        let least = (self.usable - 12) * 32 / 255 - 23;
        let fitting = least + (bytes - least) % (self.usable - 4);
        let here = if fitting <= most { fitting } else { least };
        let mut content = page.get(from..from + here)?.to_vec();
        let mut next = four(page, from + here)?;
        // Each page adds to it, so a circle ends too.
        while content.len() < bytes && content.len() as u64 <= ROW_BYTES_MAX {
            let page = self.page(next)?;
            next = four(&page, 0)?;
            let rest = (bytes - content.len()).min(self.usable - 4);
            content.extend_from_slice(&page[4..4 + rest]);
        }
        (content.len() == bytes).then_some(content)
    }
}

impl TableTree {
    /// Rows that follow on others are lost as one part.
    fn lose(&mut self, rows: LostRows) {
        match self.lost.last_mut() {
            Some(before) if before.last.checked_add(1) == Some(rows.first) => before.last = rows.last,
            _ => self.lost.push(rows),
        }
    }
}

impl LeftRows {
    /// Looks for the rows behind `after` of the table that begins at page `root`. `roots` are those of all tables and
    /// indexes, where this is the only table that leaves may be of.
    pub fn of(
        pages: DragonPages,
        root: u32,
        columns: [Option<usize>; 4],
        after: i64,
        roots: Option<&Vec<u32>>,
    ) -> Self {
        let mut seen = vec![false; pages.count as usize + 1];
        let mut tree = pages.tree(root, &mut seen);
        if let Some(roots) = roots.filter(|_| !tree.lost.is_empty()) {
            for other in roots.iter().filter(|other| **other != root) {
                pages.tree(*other, &mut seen);
            }
            let orphans = pages.orphans(&tree.lost, &columns, &mut seen);
            tree.leaves.extend(orphans);
            tree.leaves.sort_unstable();
        }
        Self { pages, columns, tree, at: 0, after, waiting: Vec::new() }
    }

    /// Gives the rows of the next leaf to `take`; or tells which rows before it are not there.
    ///
    /// # Errors
    /// What `take` failed with.
    pub fn next_page(
        &mut self,
        take: impl FnMut(&DragonRow<'_>) -> Result<(), CliFailure>,
    ) -> Result<LeftEnd, CliFailure> {
        if let Some(lost) = self.waiting.pop() {
            return Ok(LeftEnd::Lost(lost));
        }
        let Some(leaf) = self.tree.leaves.get(self.at).copied() else {
            let lost = self.lost_between(self.after, None);
            self.after = lost.map_or(self.after, |lost| lost.last);
            return Ok(lost.map_or(LeftEnd::End, LeftEnd::Lost));
        };
        if let Some(lost) = self.lost_between(self.after, Some(leaf.first)) {
            self.after = lost.last;
            return Ok(LeftEnd::Lost(lost));
        }
        self.at += 1;
        if leaf.last > self.after
            && let Some(page) = self.pages.page(leaf.page)
        {
            let broken = self.pages.rows(&page, leaf.page, self.after, &self.columns, take)?;
            self.waiting.extend(broken.into_iter().rev().map(|row| LostRows { first: row, last: row }));
            self.after = leaf.last;
        }
        Ok(LeftEnd::More)
    }

    /// The first rows behind `after` and before `before` that lie below a page that cannot be read.
    fn lost_between(&self, after: i64, before: Option<i64>) -> Option<LostRows> {
        // Numbers of rows begin at 1.
        let from = after.checked_add(1)?.max(1);
        let to = before.map_or(Some(i64::MAX), |before| before.checked_sub(1))?;
        let between = |lost: &LostRows| LostRows { first: lost.first.max(from), last: lost.last.min(to) };
        self.tree.lost.iter().map(between).find(|lost| lost.first <= lost.last)
    }
}

fn start(page: u32) -> usize {
    if page == 1 { HEADER_BYTES } else { 0 }
}

fn four(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

fn two(bytes: &[u8], at: usize) -> Option<usize> {
    bytes.get(at..at + 2)?.try_into().ok().map(|two| usize::from(u16::from_be_bytes(two)))
}

/// Where the cells of a page are; `None` where one is not on it.
fn cells(page: &[u8], start: usize, head: usize) -> Option<Vec<usize>> {
    let count = two(page, start + 3)?;
    let list = start + head;
    let cells: Option<Vec<usize>> = (0..count).map(|cell| two(page, list + 2 * cell)).collect();
    cells.filter(|cells| cells.iter().all(|cell| (list + 2 * count..page.len()).contains(cell)))
}

/// A number of one to nine bytes, and how many there are.
fn varint(bytes: &[u8]) -> Option<(i64, usize)> {
    let mut number = 0_u64;
    for (at, byte) in bytes.iter().take(9).enumerate() {
        if at == 8 {
            return Some(((number << 8 | u64::from(*byte)).cast_signed(), 9));
        }
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((number.cast_signed(), at + 1));
        }
    }
    None
}

/// The values of a row; `None` where it is none.
fn record(content: &[u8]) -> Option<Vec<ValueRef<'_>>> {
    let (head, mut at) = varint(content)?;
    let head = usize::try_from(head).ok().filter(|head| *head <= content.len())?;
    let mut body = head;
    let mut values = Vec::new();
    while at < head {
        let (kind, length) = varint(&content[at..head])?;
        at += length;
        let bytes = match kind {
            0 | 8 | 9 => 0,
            1..=4 => kind as usize,
            5 => 6,
            6 | 7 => 8,
            12.. => usize::try_from((kind - 12) / 2).ok()?,
            _ => return None,
        };
        let field = content.get(body..body.checked_add(bytes)?)?;
        body += bytes;
        values.push(match kind {
            0 => ValueRef::Null,
            8 => ValueRef::Integer(0),
            9 => ValueRef::Integer(1),
            7 => ValueRef::Real(f64::from_bits(u64::from_be_bytes(field.try_into().ok()?))),
            1..=6 => {
                let unused = 64 - 8 * bytes;
                let bits = field.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
                ValueRef::Integer((bits << unused).cast_signed() >> unused)
            }
            text if text % 2 == 1 => ValueRef::Text(field),
            _ => ValueRef::Blob(field),
        });
    }
    Some(values)
}

/// What the garbage of tests is given to.
#[cfg(test)]
pub fn looked_at(content: &[u8]) -> usize {
    record(content).map_or(0, |values| values.len())
}
