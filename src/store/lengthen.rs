//! Making one hold last, whatever there is of the rest of its lock.

use super::change::Opened;
use super::hash::{end_of, mode_of};
use super::numbering::{ReadHold, Step};
use super::{Error, Owner, Store};
use crate::core::{End, Mode};

impl Store<'_> {
    /// Makes an owner's read hold of this number, or its write holds, last until
    /// `end` at least. Only where all keys that make the hold are here. It removes
    /// nothing, for a key that is missing may be at another node.
    pub fn lengthen(
        &mut self,
        owner: &Owner<'_>,
        number: Option<u64>,
        end: End,
    ) -> Result<(), Error> {
        let Some(hash) = self.hash()? else {
            return Ok(());
        };
        let field = match number {
            Some(_) => owner.read_field(),
            None if mode_of(hash)? == Mode::Write => owner.write_field(),
            None => return Ok(()),
        };
        if hash.hash_get(field).is_none() {
            return Ok(());
        }
        if let Some(number) = number {
            let ReadHold::Live(before) = self.read_hold(owner.bytes(), number)? else {
                return Ok(());
            };
            if before < end {
                let step = Step::Expire(number, end);
                self.write_timeouts(owner.bytes(), &[step], Opened::new());
            }
        }
        if let Some(hash) = self.hash.as_mut().filter(|hash| end_of(hash) < end) {
            self.out.expire(hash, self.key, end);
            self.db.signal_modified(self.key);
        }
        Ok(())
    }
}
