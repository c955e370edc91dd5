//! Tables of things that are many and are there for long: they grow page by page, so nothing is moved when they do, and
//! less than a page is spare. A vector that doubles has a third of its room spare on average, and leaves behind as much
//! as it takes.

use std::iter::Flatten;
use std::ops::{Index, IndexMut};

/// Items of a page: a power of two, so that places are found by shifts.
const PAGE_BITS: u32 = 9;
const PAGE: usize = 1 << PAGE_BITS;

/// Items by their numbers, in pages of [`PAGE`] items.
#[derive(Clone, Debug)]
pub struct PagedTable<T> {
    /// All but the last are full. The first one grows as any vector: many have few items.
    pages: Vec<Vec<T>>,
}

impl<T> Default for PagedTable<T> {
    fn default() -> Self {
        Self { pages: Vec::new() }
    }
}

impl<T> PagedTable<T> {
    pub fn len(&self) -> usize {
        self.pages.last().map_or(0, |last| (self.pages.len() - 1) * PAGE + last.len())
    }

    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    #[inline]
    pub fn get(&self, at: usize) -> Option<&T> {
        self.pages.get(at >> PAGE_BITS)?.get(at & (PAGE - 1))
    }

    #[inline]
    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.pages.get_mut(at >> PAGE_BITS)?.get_mut(at & (PAGE - 1))
    }

    pub fn push(&mut self, item: T) {
        match self.pages.last_mut() {
            Some(last) if last.len() < PAGE => last.push(item),
            Some(_) => {
                let mut page = Vec::with_capacity(PAGE);
                page.push(item);
                self.pages.push(page);
            }
            None => self.pages.push(vec![item]),
        }
    }

    pub fn iter(&self) -> Flatten<std::slice::Iter<'_, Vec<T>>> {
        self.pages.iter().flatten()
    }

    /// The items from a place on.
    pub fn iter_from(&self, at: usize) -> impl Iterator<Item = &T> {
        let (page, item) = (at >> PAGE_BITS, at & (PAGE - 1));
        let first = self.pages.get(page).and_then(|page| page.get(item..)).unwrap_or_default();
        first.iter().chain(self.pages.iter().skip(page + 1).flatten())
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pages.iter_mut().flatten()
    }

    /// What the pages take, with room for more.
    pub fn bytes(&self) -> usize {
        let pages = self.pages.capacity() * size_of::<Vec<T>>();
        pages + self.pages.iter().map(|page| page.capacity() * size_of::<T>()).sum::<usize>()
    }

    /// Gives back room without items.
    pub fn shrink(&mut self) {
        if let Some(last) = self.pages.last_mut() {
            last.shrink_to_fit();
        }
        self.pages.shrink_to_fit();
    }
}

impl<T: Default> PagedTable<T> {
    /// Makes it this long with defaults, if it is shorter.
    pub fn grow_to(&mut self, len: usize) {
        for _ in self.len()..len {
            self.push(T::default());
        }
    }
}

impl<T> Index<usize> for PagedTable<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        &self.pages[at >> PAGE_BITS][at & (PAGE - 1)]
    }
}

impl<T> IndexMut<usize> for PagedTable<T> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.pages[at >> PAGE_BITS][at & (PAGE - 1)]
    }
}

impl<T> IntoIterator for PagedTable<T> {
    type Item = T;
    type IntoIter = Flatten<std::vec::IntoIter<Vec<T>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.pages.into_iter().flatten()
    }
}

impl<'a, T> IntoIterator for &'a PagedTable<T> {
    type Item = &'a T;
    type IntoIter = Flatten<std::slice::Iter<'a, Vec<T>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests;
