//! Tables that give memory back.

use hashbrown::HashMap;
use std::hash::Hash;

/// Shrinks a table that is less than 1/8 full, after entries were removed from it.
pub fn give_room_back<K: Eq + Hash, V>(table: &mut HashMap<K, V>) {
    if table.len() < table.capacity() / 8 {
        table.shrink_to(2 * table.len());
    }
}
