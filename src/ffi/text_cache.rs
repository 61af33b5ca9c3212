//! Strings that were made lately.

use super::Text;
use hashbrown::DefaultHashBuilder;
use std::cell::RefCell;
use std::hash::BuildHasher;

/// How many are kept: enough for some hundred locks that are in use all the time.
/// They take some 100 KB.
const KEPT: usize = 1024;

/// Longer ones are made anew each time: these are names that clients choose.
const LONGEST: usize = 128;

/// Strings to be used again. A lock is taken and given back by the same owners
/// over and over, and most of what a string costs is that the server allocates
/// and frees it.
#[derive(Default)]
pub struct TextCache(RefCell<Shelf>);

#[derive(Default)]
struct Shelf {
    /// The string that is asked for.
    asked: Vec<u8>,
    hasher: DefaultHashBuilder,
    texts: Vec<Option<Text>>,
}

impl TextCache {
    /// Gives all memory back. A static is never dropped, also not when the server
    /// unloads the module.
    pub fn clear(&self) {
        *self.0.borrow_mut() = Shelf::default();
    }

    /// The string that is written.
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
            texts.resize_with(KEPT, || None);
        }
        let place = hasher.hash_one(&*asked) as usize % KEPT;
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
