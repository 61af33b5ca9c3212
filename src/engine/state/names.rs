//! Maps the names of locks to indexes.

use hashbrown::HashTable;

/// The number of tables for names. Each grows and shrinks by itself, so no command waits until all
/// names have moved.
const TABLES: usize = 256;

/// Maps a name to an index in the list.
pub struct Names([HashTable<NameEntry>; TABLES]);

/// An index in the list, with the hash of the lock's name. With the hash a table can grow without
/// reading the names.
#[derive(Clone, Copy, Debug)]
pub struct NameEntry {
    pub hash: u32,
    pub number: u32,
}

impl Default for Names {
    fn default() -> Names {
        Names(std::array::from_fn(|_| HashTable::new()))
    }
}

impl Names {
    /// The entry with this hash for which `is_it` is true.
    pub fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let is_found = |entry: &NameEntry| entry.hash == hash && is_it(entry.number);
        let table = &self.0[hash as usize % TABLES];
        table.find(spread(hash), is_found).map(|entry| entry.number)
    }

    fn table_mut(&mut self, hash: u32) -> &mut HashTable<NameEntry> {
        &mut self.0[hash as usize % TABLES]
    }

    /// Adds an entry.
    pub fn add(&mut self, entry: NameEntry) {
        let table = self.table_mut(entry.hash);
        table.insert_unique(spread(entry.hash), entry, |entry| spread(entry.hash));
    }

    /// Removes an entry.
    pub fn remove(&mut self, entry: NameEntry) {
        let table = self.table_mut(entry.hash);
        let is_same = |other: &NameEntry| other.number == entry.number;
        if let Ok(entry) = table.find_entry(spread(entry.hash), is_same) {
            entry.remove();
        }
        if table.len() < table.capacity() / 8 {
            table.shrink_to(2 * table.len(), |entry| spread(entry.hash));
        }
    }

    /// Frees one table. False if all are freed.
    pub fn drop_table(&mut self) -> bool {
        let table = self.0.iter_mut().find(|table| table.capacity() > 0);
        table.map(|table| *table = HashTable::new()).is_some()
    }

    /// The lock of this entry is at the index `to` now.
    pub fn set_number(&mut self, entry: NameEntry, to: u32) {
        let is_same = |other: &NameEntry| other.number == entry.number;
        if let Some(entry) = self.table_mut(entry.hash).find_mut(spread(entry.hash), is_same) {
            entry.number = to;
        }
    }
}

/// Spreads the 32 bits over 64: the table uses the high bits, too.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
