//! A cursor over a command's arguments.

use super::Error;
use crate::core::Millis;
use crate::ffi::Str;
use smallvec::SmallVec;

/// An option word. Those that there are need no allocation.
pub type Word = SmallVec<[u8; 16]>;

/// A cursor over the arguments of a command.
pub struct Args<'a> {
    /// The arguments that are not yet read.
    rest: &'a [&'a Str],
    /// The argument that was read last.
    last: Option<&'a Str>,
    /// The number of arguments of the command, its name included.
    count: usize,
}

impl<'a> Args<'a> {
    /// A cursor over `args`, whose first element is the command's name.
    pub fn new(args: &'a [&'a Str]) -> Args<'a> {
        Args { rest: args.get(1..).unwrap_or_default(), last: None, count: args.len() }
    }

    /// The next argument; a syntax error when there is none.
    pub fn next(&mut self) -> Result<&'a Str, Error> {
        self.take().ok_or_else(|| self.syntax())
    }

    /// The next argument, a lease or another duration in ms: any integer. The engine checks
    /// the range, because the range depends on the present time. A text that is no integer
    /// gives the same error as a number out of range.
    pub fn millis(&mut self) -> Result<Millis, Error> {
        integer(self.next()?.bytes()).ok_or(Error::InvalidExpire)
    }

    /// The next argument, a timeout in ms: 0 or more; 0: without end. The engine checks the
    /// upper limit.
    pub fn timeout(&mut self) -> Result<Millis, Error> {
        let timeout = integer(self.next()?.bytes()).ok_or(Error::BadTimeout)?;
        if timeout < 0 {
            Err(Error::NegativeTimeout)
        } else {
            Ok(timeout)
        }
    }

    /// The next argument, a time in ms by which is searched: 0 or more.
    pub fn elapsed(&mut self) -> Result<Millis, Error> {
        integer(self.next()?.bytes()).filter(|ms| *ms >= 0).ok_or(Error::NotAnInteger)
    }

    /// The next argument, a cursor: any unsigned integer.
    pub fn cursor(&mut self) -> Result<u64, Error> {
        let text = self.next()?.bytes();
        let digits = std::str::from_utf8(text).ok().filter(|_| text.iter().all(u8::is_ascii_digit));
        digits.and_then(|digits| digits.parse().ok()).ok_or(Error::BadCursor)
    }

    /// The next argument, a count: 1 or more.
    pub fn count(&mut self) -> Result<usize, Error> {
        let number = integer(self.next()?.bytes()).ok_or(Error::NotAnInteger)?;
        usize::try_from(number).ok().filter(|count| *count > 0).ok_or(Error::NotPositive)
    }

    /// The next arguments, a number and as many keys. Also the position of the first of them in
    /// the command.
    pub fn keys(&mut self) -> Result<(usize, &'a [&'a Str]), Error> {
        let number = integer(self.next()?.bytes()).ok_or(Error::BadNumkeys)?;
        let number = usize::try_from(number).ok().filter(|number| *number > 0);
        let number = number.ok_or(Error::BadNumkeys)?;
        let position = self.position();
        let (keys, rest) = self.rest.split_at_checked(number).ok_or(Error::TooFewKeys)?;
        (self.rest, self.last) = (rest, keys.last().copied());
        Ok((position, keys))
    }

    /// All arguments that remain, one at least.
    pub fn rest(&mut self) -> Result<&'a [&'a Str], Error> {
        self.last = self.rest.last().copied();
        match std::mem::take(&mut self.rest) {
            [] => Err(self.syntax()),
            rest => Ok(rest),
        }
    }

    /// The position of the next argument in the command; its name has position 0.
    fn position(&self) -> usize {
        self.count - self.rest.len()
    }

    /// The next argument, an option word, in upper case; None at the end.
    pub fn word(&mut self) -> Option<Word> {
        let mut word = Word::from_slice(self.take()?.bytes());
        word.make_ascii_uppercase();
        Some(word)
    }

    /// Refuses arguments that remain.
    pub fn finish(self) -> Result<(), Error> {
        match self.rest.first() {
            None => Ok(()),
            Some(word) => Err(Error::Syntax(word.bytes().into())),
        }
    }

    /// The error for the argument that was read last: it is unknown, given twice, lacks its
    /// value, or excludes another option.
    pub fn syntax(&self) -> Error {
        Error::Syntax(self.last.map_or(b"".as_slice(), Str::bytes).into())
    }

    fn take(&mut self) -> Option<&'a Str> {
        let (&first, rest) = self.rest.split_first()?;
        (self.rest, self.last) = (rest, Some(first));
        Some(first)
    }
}

/// Reads an integer by the rules of the server: decimal, no `+`, no leading zero, no `-0`.
fn integer(text: &[u8]) -> Option<i64> {
    let (digits, sign) = match text.strip_prefix(b"-") {
        Some(digits) => (digits, -1),
        None => (text, 1),
    };
    match digits {
        [b'0'] if sign == 1 => Some(0),
        // The usual case. 17 digits cannot overflow, so no check is needed.
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
    fn integers_are_read_like_the_server_does() {
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
