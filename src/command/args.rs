//! A cursor over a command's arguments.

use super::Error;
use crate::core::Millis;
use crate::ffi::Str;

/// The arguments that are not yet read.
pub struct Args<'a> {
    rest: &'a [&'a Str],
    /// The one that was read last.
    last: Option<&'a Str>,
}

impl<'a> Args<'a> {
    /// The arguments behind the command's own name.
    pub fn new(args: &'a [&'a Str]) -> Args<'a> {
        Args { rest: args.get(1..).unwrap_or_default(), last: None }
    }

    /// The next argument.
    pub fn next(&mut self) -> Result<&'a Str, Error> {
        self.take().ok_or_else(|| self.syntax())
    }

    /// The next argument, a time in ms. Whether it is in range is for the
    /// engine to say, who knows what time it is; what is no integer is as
    /// little a time as 0 is.
    pub fn millis(&mut self) -> Result<Millis, Error> {
        integer(self.next()?.bytes()).ok_or(Error::InvalidExpire)
    }

    /// The next argument, the most that somebody will wait, in ms; 0: without
    /// end.
    pub fn timeout(&mut self) -> Result<Millis, Error> {
        let timeout = integer(self.next()?.bytes()).ok_or(Error::BadTimeout)?;
        if timeout < 0 {
            Err(Error::NegativeTimeout)
        } else {
            Ok(timeout)
        }
    }

    /// The next argument, a number of things: 1 or more.
    pub fn count(&mut self) -> Result<usize, Error> {
        let number = integer(self.next()?.bytes()).ok_or(Error::NotAnInteger)?;
        usize::try_from(number).ok().filter(|count| *count > 0).ok_or(Error::NotPositive)
    }

    /// The next argument, an option word, in upper case; None at the end.
    pub fn word(&mut self) -> Option<Vec<u8>> {
        self.take().map(|word| word.bytes().to_ascii_uppercase())
    }

    /// Refuses what is left over.
    pub fn finish(self) -> Result<(), Error> {
        match self.rest.first() {
            None => Ok(()),
            Some(word) => Err(Error::Syntax(word.bytes().into())),
        }
    }

    /// What was read last is unknown, given twice, lacks its value or goes with
    /// nothing that is there.
    pub fn syntax(&self) -> Error {
        Error::Syntax(self.last.map_or(b"".as_slice(), Str::bytes).into())
    }

    fn take(&mut self) -> Option<&'a Str> {
        let (&first, rest) = self.rest.split_first()?;
        (self.rest, self.last) = (rest, Some(first));
        Some(first)
    }
}

/// An integer as the server reads it: plain decimal, no sign but `-`.
fn integer(text: &[u8]) -> Option<i64> {
    let (digits, sign) = match text.strip_prefix(b"-") {
        Some(digits) => (digits, -1),
        None => (text, 1),
    };
    match digits {
        [b'0'] if sign == 1 => Some(0),
        // As most are, and too short to be too large.
        [b'1'..=b'9', ..] if digits.len() < 18 => digits
            .iter()
            .try_fold(0i64, |number, byte| {
                byte.is_ascii_digit().then(|| number.wrapping_mul(10) + i64::from(byte - b'0'))
            })
            .map(|number| sign * number),
        [b'1'..=b'9', ..] => digits.iter().try_fold(0i64, |number, byte| {
            let digit = byte.is_ascii_digit().then(|| sign * i64::from(byte - b'0'))?;
            number.checked_mul(10)?.checked_add(digit)
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::integer;

    #[test]
    fn integers_are_the_servers() {
        for (text, number) in [
            ("0", 0),
            ("7", 7),
            ("-7", -7),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(integer(text.as_bytes()), Some(number));
        }
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            "1.5",
            " 1",
            "1 ",
            "x",
            "9223372036854775808",
            "-9223372036854775809",
        ] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
    }
}
