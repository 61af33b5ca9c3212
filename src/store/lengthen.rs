//! Making one hold last, whatever there is of the rest of its lock.

use super::change::Opened;
use super::hash::{end_of, mode_of};
use super::numbering::{Slot, Step};
use super::{Error, Owner, Store};
use crate::core::{End, Mode};

impl Store<'_> {
    /// Makes an owner's read hold of this number, or its write holds, last until
    /// `end` at least. Only where all keys that make the hold are here. It removes
    /// nothing, for a key that is missing may be at another node. False when it has
    /// changed nothing, because the hold is not here.
    pub fn lengthen(
        &self,
        owner: &Owner<'_>,
        number: Option<u64>,
        end: End,
    ) -> Result<bool, Error> {
        let Some(hash) = self.hash()? else {
            return Ok(false);
        };
        let field = match number {
            Some(_) => owner.read_field(),
            None if mode_of(hash)? == Mode::Write => owner.write_field(),
            None => return Ok(false),
        };
        if hash.hash_get(field).is_none() {
            return Ok(false);
        }
        if let Some(number) = number {
            let Slot::Live(before) = self.slot(owner.bytes(), number)? else {
                return Ok(false);
            };
            if before < end {
                let step = Step::Expire(number, end);
                self.write_timeouts(owner.bytes(), &[step], Opened::new());
            }
        }
        let before = end_of(hash);
        if before < end {
            self.write_end(hash, Some(before), end);
            self.db.signal_modified(self.key);
        }
        Ok(true)
    }
}
