//! The name of an owner, and the two fields that count its holds.

use super::names::{check_owner, write_field};
use super::{text, Error};
use crate::ffi::{Str, Text};
use std::cell::OnceCell;

/// An owner whose name is checked.
pub struct Owner<'a> {
    name: &'a Str,
    bytes: &'a [u8],
    write_field: OnceCell<Text>,
}

impl<'a> Owner<'a> {
    /// Checks the name. [`Error::BadOwner`]: an owner cannot have this name.
    pub fn new(name: &'a Str) -> Result<Owner<'a>, Error> {
        let bytes = name.bytes();
        check_owner(bytes)?;
        Ok(Owner { name, bytes, write_field: OnceCell::new() })
    }

    /// An owner with an empty name, which cannot have holds. In a snapshot for it all holders are
    /// other owners.
    pub fn nobody() -> Owner<'static> {
        Owner { name: &super::WORDS.empty, bytes: b"", write_field: OnceCell::new() }
    }

    /// The name as a string of the server.
    pub fn name(&self) -> &'a Str {
        self.name
    }

    /// The bytes of the name.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The field that counts the read holds: the name itself.
    pub(super) fn read_field(&self) -> &'a Str {
        self.name
    }

    /// The field that counts the write holds.
    pub(super) fn write_field(&self) -> &Str {
        self.write_field.get_or_init(|| text(&write_field(self.bytes)))
    }
}
