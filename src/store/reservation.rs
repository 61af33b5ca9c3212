//! A polling writer's place, and the last fencing token.

use super::hash::count;
use super::names::{check_owner, Name};
use super::{text, Error, Reserved, Store};
use crate::core::{End, Token};
use crate::ffi::{Access, Key, KeyType, Str, Text};

impl Store<'_> {
    /// The reservation that stands, if any. It is looked for once.
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

    /// Leaves or refreshes an owner's reservation.
    pub fn reserve(&mut self, owner: &Str, end: End) {
        self.reserved.take();
        self.set(&text(&self.name.reservation()), owner, end);
    }

    /// Takes the reservation away.
    pub fn consume_reservation(&mut self) {
        self.reserved.take();
        self.delete(None, [&text(&self.name.reservation())]);
    }

    /// The last fencing token, or 0.
    pub fn last_token(&self) -> Result<Token, Error> {
        let wrong = Error::WrongType("the fence key holds no token");
        let Some(key) = self.string_key(&self.name.fence(), &wrong)? else {
            return Ok(0);
        };
        count(key.string()).ok().and_then(|token| i64::try_from(token).ok()).ok_or(wrong)
    }

    /// Remembers the last fencing token until `end`.
    pub fn set_last_token(&self, token: Token, end: End) {
        self.set(&text(&self.name.fence()), &Text::number(token), end);
    }

    /// A key that is a string or not there.
    fn string_key(&self, name: &Name<'_>, wrong: &Error) -> Result<Option<Key<'_>>, Error> {
        // A handle for reading is less to make, where nobody would notice.
        let access = if self.db.ctx().looks_unseen() { Access::Read } else { self.access };
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
