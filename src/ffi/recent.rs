//! Strings that were made lately.

use super::Text;
use std::cell::RefCell;

/// How many are kept: enough for some hundred locks that are in use all the time.
/// They take some 100 KB.
const KEPT: usize = 1024;

/// Longer ones are made anew each time: these are names that clients choose.
const LONGEST: usize = 128;

/// Strings to be used again. A lock is taken and given back by the same owners
/// over and over, and most of what a string costs is that the server allocates
/// and frees it.
pub struct Recent(RefCell<Shelf>);

struct Shelf {
    /// The string that is asked for.
    asked: Vec<u8>,
    texts: Vec<Option<Text>>,
}

impl Recent {
    /// None yet.
    pub const fn new() -> Recent {
        Recent(RefCell::new(Shelf { asked: Vec::new(), texts: Vec::new() }))
    }

    /// Gives all memory back. A static is never dropped, also not when the server
    /// unloads the module.
    pub fn clear(&self) {
        *self.0.borrow_mut() = Shelf { asked: Vec::new(), texts: Vec::new() };
    }

    /// The string that is written.
    pub fn text(&self, write: impl FnOnce(&mut Vec<u8>)) -> Text {
        let Shelf { asked, texts } = &mut *self.0.borrow_mut();
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
        let place = hash(asked) as usize % KEPT;
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

/// A quick one. Whoever chooses names that share a place gains nothing: they
/// are made anew each time, as others are at first.
fn hash(bytes: &[u8]) -> u64 {
    const BLOCK: usize = 16;
    let mix = |hash: u64, block: [u8; BLOCK]| {
        let word = u128::from_le_bytes(block);
        let (low, high) = (word as u64 ^ hash, (word >> 64) as u64 ^ 0x9e37_79b9_7f4a_7c15);
        let product = u128::from(low) * u128::from(high);
        product as u64 ^ (product >> 64) as u64
    };
    let mut hash = bytes.len() as u64;
    let Some(last) = bytes.last_chunk() else {
        let mut block = [0; BLOCK];
        block[..bytes.len()].copy_from_slice(bytes);
        return mix(hash, block);
    };
    let mut rest = bytes;
    while let Some((block, behind)) = rest.split_first_chunk() {
        hash = mix(hash, *block);
        rest = behind;
    }
    mix(hash, *last)
}
