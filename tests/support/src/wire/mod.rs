//! Commands and replies as bytes, for tests that need more than a [`Connection`]: many
//! commands at once, a connection that is cut, what a replica receives.
//!
//! [`Connection`]: redis::Connection

mod batch;
mod connection;
mod replication;

pub use batch::{Batch, Replies};
pub use connection::{readable, Cut, Received, Wire};
pub use replication::{append_only_file, assert_plain, ReplicationStream, Words};

/// A command as a client sends it.
pub fn packed<A: AsRef<[u8]>>(words: impl IntoIterator<Item = A>) -> Vec<u8> {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word.as_ref());
    }
    command.get_packed_command()
}

/// [`packed`] for words between single spaces.
pub fn packed_line(line: &str) -> Vec<u8> {
    packed(line.split(' '))
}

/// How long the first RESP2 reply in these bytes is, if it is there as a whole.
pub fn reply_length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|two| two == b"\r\n")?;
    let head = line + 2;
    let count = || std::str::from_utf8(&bytes[1..line]).ok()?.parse::<i64>().ok();
    match bytes[0] {
        b'$' => match count()? {
            length if length < 0 => Some(head),
            length => {
                let end = head + usize::try_from(length).ok()? + 2;
                (bytes.len() >= end).then_some(end)
            }
        },
        b'*' => (0..count()?).try_fold(head, |end, _| Some(end + reply_length(bytes.get(end..)?)?)),
        _ => Some(head),
    }
}
