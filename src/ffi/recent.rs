//! Strings that were made lately.

use super::Text;
use hashbrown::DefaultHashBuilder;
use std::cell::RefCell;
use std::hash::BuildHasher;

/// How many are kept.
const KEPT: usize = 256;

/// Longer ones are made anew each time: these are names that clients choose.
const LONGEST: usize = 128;

/// Strings to be used again. A lock is taken and given back by the same owners
/// over and over, and most of what a string costs is that the server allocates
/// and frees it. Only for `static`s of the module, which are used on the main
/// thread.
pub struct Recent {
    hasher: DefaultHashBuilder,
    texts: RefCell<Vec<Option<Text>>>,
}

impl Recent {
    /// None yet.
    pub fn new() -> Recent {
        let texts = std::iter::repeat_with(|| None).take(KEPT).collect();
        Recent { hasher: DefaultHashBuilder::default(), texts: RefCell::new(texts) }
    }

    /// A string with these bytes.
    pub fn text(&self, bytes: &[u8]) -> Text {
        if bytes.len() > LONGEST {
            return Text::new(bytes);
        }
        let place = self.hasher.hash_one(bytes) as usize % KEPT;
        let mut texts = self.texts.borrow_mut();
        match &texts[place] {
            Some(text) if text.bytes() == bytes => text.clone(),
            _ => {
                let text = Text::new(bytes);
                texts[place] = Some(text.clone());
                text
            }
        }
    }
}

// SAFETY: main thread: every use goes through code that got a `Ctx`.
unsafe impl Sync for Recent {}
// SAFETY: as above.
unsafe impl Send for Recent {}
