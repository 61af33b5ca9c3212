//! Strings that were made lately.

use super::Text;
use std::cell::RefCell;

/// How many are kept.
const KEPT: usize = 256;

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
    pub fn new() -> Recent {
        let texts = std::iter::repeat_with(|| None).take(KEPT).collect();
        Recent(RefCell::new(Shelf { asked: Vec::new(), texts }))
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
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = bytes.len() as u64;
    let mut add = |word: &[u8; 8]| {
        hash = (hash.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(SPREAD);
    };
    bytes.chunks_exact(8).filter_map(<[u8]>::first_chunk).for_each(&mut add);
    bytes.last_chunk().into_iter().for_each(add);
    hash >> 32
}
