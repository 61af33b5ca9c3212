//! Tables that give memory back.

use crate::core::give_room_back;
use hashbrown::HashMap;

fn table(entries: u32) -> HashMap<u32, ()> {
    (0..entries).map(|entry| (entry, ())).collect()
}

#[test]
fn a_table_that_is_emptied_gives_its_memory_back() {
    let mut table = table(1_000);
    let (mut bytes, mut shrunk) = (table.allocation_size(), 0);
    for entry in 0..1_000 {
        table.remove(&entry);
        give_room_back(&mut table);
        assert!(table.capacity() < 8 * (table.len() + 2), "{table:?}");
        shrunk += u32::from(table.allocation_size() < bytes);
        bytes = table.allocation_size();
    }
    // Not at each removal, because each time copies the table.
    assert!((1..10).contains(&shrunk), "{shrunk} times");
}

/// So that the next entries do not make it grow at once.
#[test]
fn a_table_that_was_shrunk_has_room_for_as_many_entries_again() {
    let mut table = table(1_000);
    table.retain(|entry, ()| *entry < 100);
    give_room_back(&mut table);
    let bytes = table.allocation_size();
    table.extend((100..200).map(|entry| (entry, ())));
    assert_eq!(table.allocation_size(), bytes);
}

#[test]
fn a_table_is_shrunk_when_less_than_an_eighth_is_full() {
    let mut table = HashMap::with_capacity(1_000);
    let (capacity, bytes) = (table.capacity(), table.allocation_size());
    table.extend((1..capacity / 8).map(|entry| (entry, ())));
    let mut fuller = table.clone();
    fuller.insert(0, ());
    give_room_back(&mut fuller);
    assert_eq!((fuller.len(), fuller.allocation_size()), (capacity / 8, bytes));
    give_room_back(&mut table);
    assert!(table.allocation_size() <= bytes / 2);
}
