//! A cache of strings that were made recently.

use super::Text;
use hashbrown::DefaultHashBuilder;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::hash::BuildHasher;

/// The number of places in the cache, enough for some hundred locks in constant use. They take
/// about 300 KB, and the strings 200 KB.
const CAPACITY: usize = 2048;

/// The length in bytes of the longest string in the cache. Clients choose the names, so a limit
/// keeps the cache small.
const LONGEST: usize = 128;

/// A cache of strings. The same owners acquire and release the same locks repeatedly, and most of
/// the cost of a string is that the server allocates and frees it.
#[derive(Default)]
pub struct TextCache(RefCell<Shelf>);

#[derive(Default)]
struct Shelf {
    /// The bytes of the wanted string. The buffer is used again for each string.
    wanted: Vec<u8>,
    hasher: DefaultHashBuilder,
    places: Vec<Option<Cached>>,
}

/// A string, with a copy of its bytes: to ask the server for them would cost a call each time.
struct Cached {
    text: Text,
    bytes: SmallVec<[u8; LONGEST]>,
}

impl TextCache {
    /// Frees all memory. A static is never dropped, not even when the server unloads the module.
    pub fn clear(&self) {
        *self.0.borrow_mut() = Shelf::default();
    }

    /// The string whose bytes `write` appends to an empty buffer, from the cache if it is there.
    pub fn text(&self, write: impl FnOnce(&mut Vec<u8>)) -> Text {
        let Shelf { wanted, hasher, places } = &mut *self.0.borrow_mut();
        wanted.clear();
        write(wanted);
        if wanted.len() > LONGEST {
            let text = Text::new(wanted);
            *wanted = Vec::new();
            return text;
        }
        if places.is_empty() {
            places.resize_with(CAPACITY, || None);
        }
        let place = &mut places[hasher.hash_one(&*wanted) as usize % CAPACITY];
        match place {
            Some(cached) if cached.bytes.as_slice() == wanted.as_slice() => cached.text.clone(),
            _ => {
                let text = Text::new(wanted);
                *place = Some(Cached { text: text.clone(), bytes: SmallVec::from_slice(wanted) });
                text
            }
        }
    }
}
