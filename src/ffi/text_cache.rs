//! A cache of strings that were made recently.

use super::Text;
use hashbrown::DefaultHashBuilder;
use std::cell::RefCell;
use std::hash::BuildHasher;

/// The number of strings in the cache, enough for some hundred locks in constant use. They take
/// about 200 KB.
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
    asked: Vec<u8>,
    hasher: DefaultHashBuilder,
    texts: Vec<Option<Text>>,
}

impl TextCache {
    /// Frees all memory. A static is never dropped, not even when the server unloads the module.
    pub fn clear(&self) {
        *self.0.borrow_mut() = Shelf::default();
    }

    /// The string whose bytes `write` appends to an empty buffer, from the cache if it is there.
    pub fn text(&self, write: impl FnOnce(&mut Vec<u8>)) -> Text {
        let Shelf { asked, hasher, texts } = &mut *self.0.borrow_mut();
        asked.clear();
        write(asked);
        if asked.len() > LONGEST {
            let text = Text::new(asked);
            *asked = Vec::new();
            return text;
        }
        if texts.is_empty() {
            texts.resize_with(CAPACITY, || None);
        }
        let place = hasher.hash_one(&*asked) as usize % CAPACITY;
        match &texts[place] {
            Some(text) if text.bytes() == asked.as_slice() => text.clone(),
            _ => {
                let text = Text::new(asked);
                texts[place] = Some(text.clone());
                text
            }
        }
    }
}
