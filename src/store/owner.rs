//! An owner, with the two fields that count its holds.

use super::names::{check_owner, write_field};
use super::{text, Error};
use crate::ffi::{Str, Text};
use std::cell::OnceCell;

/// Who asks.
pub struct Owner<'a> {
    name: &'a Str,
    bytes: &'a [u8],
    write_field: OnceCell<Text>,
}

impl<'a> Owner<'a> {
    /// Checks the name.
    pub fn new(name: &'a Str) -> Result<Owner<'a>, Error> {
        let bytes = name.bytes();
        check_owner(bytes)?;
        Ok(Owner { name, bytes, write_field: OnceCell::new() })
    }

    /// The owner with the empty name, who can hold nothing: for looking at a
    /// lock in nobody's name.
    pub fn nobody() -> Owner<'static> {
        Owner { name: &super::WORDS.empty, bytes: b"", write_field: OnceCell::new() }
    }

    /// The name, as the server keeps it.
    pub fn name(&self) -> &'a Str {
        self.name
    }

    /// The name itself.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The field that counts the read holds: the name as it is.
    pub(super) fn read_field(&self) -> &'a Str {
        self.name
    }

    /// The field that counts the write holds.
    pub(super) fn write_field(&self) -> &Str {
        self.write_field.get_or_init(|| text(&write_field(self.bytes)))
    }
}
