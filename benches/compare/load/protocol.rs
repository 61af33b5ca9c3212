//! Where one reply ends, in the protocols that contenders speak.

use support::wire::reply_length;

/// A protocol.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Redis and Valkey.
    Resp,
    Postgres,
    /// HTTP/1.1 with JSON.
    Http,
}

impl Protocol {
    /// How long the first reply in these bytes is, if it is there as a whole.
    pub fn reply(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::Resp => reply_length(bytes),
            Self::Postgres => postgres(bytes),
            Self::Http => http(bytes),
        }
    }
}

/// Messages of a kind, a length and a body; the answer to a request ends with
/// one of the kind `Z`.
fn postgres(bytes: &[u8]) -> Option<usize> {
    let mut end = 0;
    loop {
        let length = bytes.get(end + 1..end + 5)?;
        let length = u32::from_be_bytes(length.try_into().ok()?);
        let kind = bytes[end];
        end += 1 + usize::try_from(length).ok()?;
        if kind == b'Z' {
            return (bytes.len() >= end).then_some(end);
        }
    }
}

/// Either it tells its length, or it comes in chunks.
fn http(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let length = std::str::from_utf8(&bytes[..head]).ok()?.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().ok())?
    });
    if let Some(length) = length {
        return (bytes.len() >= head + length).then_some(head + length);
    }
    let mut end = head;
    loop {
        let chunk = bytes.get(end..)?;
        let line = line(chunk)?;
        let length = usize::from_str_radix(std::str::from_utf8(&chunk[..line]).ok()?, 16).ok()?;
        end += line + 2 + length + 2;
        if length == 0 {
            return (bytes.len() >= end).then_some(end);
        }
    }
}

/// Where the first line ends.
fn line(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|window| window == b"\r\n")
}
