//! The reservation of a writer that polls, and the last fencing token.

use super::hash::count;
use super::names::{check_owner, Name};
use super::{text, Error, Reserved, Store};
use crate::core::{End, Token};
use crate::ffi::{Access, Key, KeyType, Str, Text};
use crate::planted::{is_planted, Bug};

impl Store<'_> {
    /// The reservation, if there is one that has not lapsed. Its key is read once.
    pub fn reservation(&self) -> Result<Option<Reserved>, Error> {
        if let Some(known) = self.reserved.get() {
            return Ok(known.clone());
        }
        let reserved = self.find_reservation()?;
        Ok(self.reserved.get_or_init(|| reserved).clone())
    }

    fn find_reservation(&self) -> Result<Option<Reserved>, Error> {
        let wrong = Error::WrongType("the reservation key holds no owner");
        let Some(key) = self.string_key(&self.name.reservation(), &wrong)? else {
            return Ok(None);
        };
        let owner = key.string().to_vec();
        check_owner(&owner).map_err(|_| wrong)?;
        let end = key.expiry().map_or(End::Never, End::At);
        Ok((!self.is_past(end)).then_some(Reserved { owner, end }))
    }

    /// Writes the reservation of an owner, in place of any other.
    pub fn reserve(&mut self, owner: &Str, end: End) {
        self.reserved.take();
        self.set(&text(&self.name.reservation()), owner, end);
    }

    /// Deletes the reservation.
    pub fn consume_reservation(&mut self) {
        self.reserved.take();
        self.delete(None, [&text(&self.name.reservation())]);
    }

    /// The last fencing token; 0: there is none. [`Error::WrongType`]: the fence key is not a
    /// string, or not a number from 1 to 2^63 - 1.
    pub fn last_token(&self) -> Result<Token, Error> {
        let wrong = Error::WrongType("the fence key holds no token");
        let Some(key) = self.string_key(&self.name.fence(), &wrong)? else {
            return Ok(0);
        };
        count(key.string()).ok().and_then(|token| i64::try_from(token).ok()).ok_or(wrong)
    }

    /// Writes the last fencing token, which is kept until `end`.
    pub fn set_last_token(&self, token: Token, end: End) {
        let name = text(&self.name.fence());
        if is_planted(Bug::RepeatedToken) {
            if let Some(mut key) = self.open_derived(&name, Access::Write) {
                key.string_set(&Text::number(token), None);
            }
            return;
        }
        self.set(&name, &Text::number(token), end);
    }

    /// Opens a string key; None: it does not exist. A key of another type is the error `wrong`.
    fn string_key(&self, name: &Name<'_>, wrong: &Error) -> Result<Option<Key<'_>>, Error> {
        // A handle for reading costs less, and is used where it leaves no trace.
        let access = if self.db.ctx().reads_leave_no_trace() { Access::Read } else { self.access };
        let Some(key) = self.open_derived(&text(name), access) else {
            return Ok(None);
        };
        match key.kind() {
            KeyType::Empty => Ok(None),
            KeyType::String => Ok(Some(key)),
            KeyType::Hash | KeyType::Other => Err(wrong.clone()),
        }
    }
}
