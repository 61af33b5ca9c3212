//! Reads the mode, the end and the counts of a lock's hash.

use super::names::write_field;
use super::{text, Error, WORDS};
use crate::core::{End, Mode};
use crate::ffi::{Key, Str};

/// Refuses a hash in write mode that has no writer. Such a hash is not a lock that the module can
/// use: a Redisson transaction writes one, and names its writer in another way.
pub(super) fn check_writer(mode: Mode, has_writer: bool) -> Result<(), Error> {
    if mode == Mode::Write && !has_writer {
        return Err(Error::WrongType("the hash is in write mode and has no writer"));
    }
    Ok(())
}

/// The mode in the hash.
pub(super) fn mode_of(hash: &Key<'_>) -> Result<Mode, Error> {
    match hash.hash_get(&WORDS.mode).as_deref().map(Str::bytes) {
        Some(b"read") => Ok(Mode::Read),
        Some(b"write") => Ok(Mode::Write),
        Some(_) => Err(Error::WrongType("the hash has an unknown mode")),
        None => Err(Error::WrongType("the hash has no mode")),
    }
}

/// The number of write holds of an owner in the hash.
pub(super) fn write_count(hash: &Key<'_>, owner: &[u8]) -> Result<u64, Error> {
    hash.hash_get(&text(&write_field(owner))).map_or(Ok(0), |value| count(value.bytes()))
}

/// The expiry of the hash, as an end.
pub(super) fn end_of(hash: &Key<'_>) -> End {
    hash.expiry().map_or(End::Never, End::At)
}

/// Parses a count in the hash: 1 to 2^63 - 1, decimal, without a sign, leading zeros or spaces.
pub(super) fn count(text: &[u8]) -> Result<u64, Error> {
    if text == b"1" {
        return Ok(1);
    }
    let plain = matches!(text.first(), Some(b'1'..=b'9')) && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text)
        .ok()
        .filter(|_| plain)
        .and_then(|text| text.parse::<i64>().ok())
        .and_then(|number| u64::try_from(number).ok())
        .ok_or(Error::WrongType("a field of the hash is no count of holds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_plain_positive_integers() {
        assert_eq!(count(b"1"), Ok(1));
        assert_eq!(count(b"9223372036854775807"), Ok(i64::MAX as u64));
        for text in ["", "0", "-1", "+1", "01", "1 ", " 1", "1.0", "x", "9223372036854775808"] {
            assert!(count(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
