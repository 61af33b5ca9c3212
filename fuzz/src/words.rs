//! The arguments of commands, as an input chooses them.

use crate::input::Input;
use crate::keys::Bytes;

/// The commands, in an order that must stay: the inputs of the corpora name them by their place.
pub const COMMANDS: [&[u8]; 16] = [
    b"RWLOCK.RLOCK",
    b"RWLOCK.WLOCK",
    b"RWLOCK.UNLOCK",
    b"RWLOCK.RENEW",
    b"RWLOCK.UPGRADE",
    b"RWLOCK.DOWNGRADE",
    b"RWLOCK.MLOCK",
    b"RWLOCK.MUNLOCK",
    b"RWLOCK.MRENEW",
    b"RWLOCK.FORCEUNLOCK",
    b"RWLOCK.INSPECT",
    b"RWLOCK.LIST",
    b"RWLOCK.QUEUES",
    b"RWLOCK.LOG",
    b"RWLOCK.HOTLOCKS",
    b"RWLOCK.HELP",
];

/// Names of locks and of owners, some of which clash or are refused.
pub const NAMES: [&[u8]; 16] = [
    b"k",
    b"me",
    b"you",
    b"{k}",
    b"{k}:b",
    b"b:c",
    b"c",
    b"k2",
    b"mode",
    b"me:write",
    b"k:wait_write",
    b"{k}:me:rwlock_timeout:1",
    b"",
    b"read",
    b"\0\xff\r\n",
    b"a}b{",
];

/// All words that mean something, and numbers at the edges.
pub const WORDS: [&[u8]; 40] = [
    b"READ",
    b"WRITE",
    b"ALL",
    b"BLOCK",
    b"SESSION",
    b"ONCE",
    b"FENCE",
    b"RESERVE",
    b"COUNT",
    b"MATCH",
    b"HELD",
    b"RESET",
    b"read",
    b"Write",
    b"all",
    b"bLoCk",
    b"session",
    b"once",
    b"fence",
    b"reserve",
    b"count",
    b"match",
    b"held",
    b"reset",
    b"0",
    b"1",
    b"2",
    b"3",
    b"1000",
    b"50",
    b"-1",
    b"-0",
    b"+1",
    b"01",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"18446744073709551615",
    b"BLOC",
    b"*",
];

/// Reads an argument.
pub fn argument(input: &mut Input<'_>) -> Bytes {
    match input.byte() {
        first @ 0..=31 => NAMES[usize::from(first) % NAMES.len()].to_vec(),
        first @ 32..=151 => WORDS[usize::from(first - 32) % WORDS.len()].to_vec(),
        152..=191 => input.number().to_string().into_bytes(),
        first @ 192..=207 => first.saturating_sub(191).to_string().into_bytes(),
        _ => input.bytes().to_vec(),
    }
}

/// Reads a command with its arguments.
pub fn command(input: &mut Input<'_>) -> Vec<Bytes> {
    let first = input.byte();
    let name = COMMANDS[usize::from(first) % COMMANDS.len()].to_vec();
    let count = usize::from(input.byte()) % 16;
    std::iter::once(name).chain((0..count).map(|_| argument(input))).collect()
}
