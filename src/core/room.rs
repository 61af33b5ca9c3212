//! Tables that give their room back.

use hashbrown::HashMap;
use std::hash::Hash;

/// Makes a table smaller that is nearly empty: many may have left it.
pub fn give_room_back<K: Eq + Hash, V>(table: &mut HashMap<K, V>) {
    if table.len() < table.capacity() / 8 {
        table.shrink_to(2 * table.len());
    }
}
