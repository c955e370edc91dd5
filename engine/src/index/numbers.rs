//! A set of numbers, looked up by the hash of what they stand for; each takes 6 to 12 bytes.
//!
//! What a number stands for is stored elsewhere, once. The caller supplies the hash and the comparison.

/// Open addressing with linear probing; at most two slots of three are taken.
#[derive(Debug, Default)]
pub struct NumberTable {
    /// The number and one more; 0 in a free slot. As many as a power of two, or none.
    slots: Vec<u32>,
    len: usize,
}

impl NumberTable {
    /// The number with this hash that `is` the one.
    pub fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut at = hash as usize & mask;
        // There are free slots: the search ends.
        loop {
            let number = self.slots[at].checked_sub(1)?;
            if is(number) {
                return Some(number);
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a number that is not there, below `u32::MAX`. `hash_of` tells the hash of those that are.
    pub fn insert(&mut self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) {
        if (self.len + 1) * 3 > self.slots.len() * 2 {
            self.make_room(self.len + 1, hash_of);
        }
        put(&mut self.slots, hash, number);
        self.len += 1;
    }

    /// What it takes.
    pub fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u32>()
    }

    /// Makes room for `len` numbers together.
    pub fn make_room(&mut self, len: usize, hash_of: impl Fn(u32) -> u64) {
        let slots = (len * 3).div_ceil(2).next_power_of_two().max(8);
        if slots <= self.slots.len() {
            return;
        }
        let before = std::mem::replace(&mut self.slots, vec![0; slots]);
        for number in before.into_iter().filter_map(|slot| slot.checked_sub(1)) {
            put(&mut self.slots, hash_of(number), number);
        }
    }
}

fn put(slots: &mut [u32], hash: u64, number: u32) {
    let mask = slots.len() - 1;
    let mut at = hash as usize & mask;
    while slots[at] != 0 {
        at = (at + 1) & mask;
    }
    slots[at] = number + 1;
}
