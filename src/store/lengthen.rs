//! Lengthens one hold of a lock of which some keys may be on another node.

use super::change::Opened;
use super::hash::{end_of, mode_of};
use super::numbering::{ReadHold, Step};
use super::{Error, Owner, Store};
use crate::core::{End, Mode};

impl Store<'_> {
    /// Makes a hold of the owner last until `end` at least. `number`: the number of the read hold;
    /// None: the write holds. Does nothing if a key of the hold is not on this node. Removes
    /// nothing, because a key that is missing here may be on another node.
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
