//! The layout of names: what is made of the names of locks and owners, and what is read from the
//! names of keys. An input is two locks and two owners with the numbers of their read holds, or a
//! key of any name.
//!
//! - The names follow the docs (`docs/keys.md`), which the target writes down a second time.
//! - In a cluster all names of a lock that is allowed are in its slot.
//! - Two names are the same only where the docs say so.
//! - A made name gives back its parts.
//! - A pattern of LIST matches a name that is written out.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rwlock::fuzzing::layout::{
    fields, hold_of_key, is_owner, locks_of_key, matches, owner_of_field, slot_of, Layout,
};
use rwlock_fuzz::grammar;
use rwlock_fuzz::input::Input;
use rwlock_fuzz::keys::Bytes;

/// Parts of names that mean something.
const PARTS: [&[u8]; 16] = [
    b"{",
    b"}",
    b":",
    b"a",
    b"b",
    b"mode",
    b":write",
    b":wait_write",
    b":rwlock_fence",
    b":rwlock_timeout:",
    b"1",
    b"0",
    b"redisson_rwlock:",
    b":channel",
    b"rwlock_probe:",
    b"{a}",
];

/// A name of some parts, or of any bytes.
fn name(input: &mut Input<'_>) -> Bytes {
    let count = input.below(10);
    let mut name = Vec::new();
    for _ in 0..count {
        match input.byte() {
            part @ 0..=239 => name.extend(PARTS[usize::from(part) % PARTS.len()]),
            240..=247 => name.push(input.byte()),
            _ => name.extend(input.bytes()),
        }
    }
    name
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input::new(input);
    let mut one = || (name(&mut input), name(&mut input), number(&mut input));
    let (first, second) = (one(), one());
    for (lock, owner, number) in [&first, &second] {
        of_one(lock, owner, *number);
    }
    of_two(&first, &second);
    of_any_key(&first.0);
    of_any_key(&[first.0.as_slice(), &first.1].concat());
});

fn number(input: &mut Input<'_>) -> u64 {
    input.number().unsigned_abs().max(1)
}

/// The slot of a key as the docs of a cluster tell it, with the table-less CRC16.
fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    let mut crc: u32 = 0;
    for byte in tag.unwrap_or(key) {
        for bit in (0..8).rev() {
            let top = crc >> 15 & 1 ^ u32::from(byte >> bit) & 1;
            crc = crc << 1 & 0xffff ^ if top == 1 { 0x1021 } else { 0 };
        }
    }
    (crc % 16384) as u16
}

fn of_one(lock: &[u8], owner: &[u8], number: u64) {
    let layout = Layout::of(lock, false);
    assert_eq!(layout.is_some(), grammar::is_lock_name(lock), "{}", lock.escape_ascii());
    assert_eq!(is_owner(owner), grammar::is_owner(owner), "{}", owner.escape_ascii());
    assert_eq!(slot_of(lock), slot(lock), "{}", lock.escape_ascii());
    let Some(layout) = layout else {
        return;
    };
    let prefix = grammar::prefix(lock);
    let timeout = layout.timeout(owner, number);
    assert_eq!(timeout, grammar::timeout_key(lock, owner, number));
    assert_eq!(layout.reservation(), [&prefix, b":wait_write".as_slice()].concat());
    assert_eq!(layout.fence(), [&prefix, b":rwlock_fence".as_slice()].concat());
    assert_eq!(layout.channel(), [b"redisson_rwlock:".as_slice(), &prefix].concat());
    assert_eq!(layout.owner_channel(), [&prefix, b":channel".as_slice()].concat());

    // The keys of one lock differ from each other and from the lock.
    if is_owner(owner) {
        let keys = [lock.to_vec(), timeout.clone(), layout.reservation(), layout.fence()];
        let [reads, writes] = fields(owner);
        assert_eq!(owner_of_field(&reads), Some((owner, false)));
        assert_eq!(owner_of_field(&writes), Some((owner, true)));
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key), "{}", key.escape_ascii());
            // No other lock has a name that is one of these keys.
            assert_eq!(Layout::of(key, false).is_some(), at == 0, "{}", key.escape_ascii());
        }
    }

    // A made name gives back its parts.
    assert_eq!(hold_of_key(&timeout, lock), Some((owner, number)));
    for other in [layout.reservation(), layout.fence()] {
        assert_eq!(hold_of_key(&other, lock), None, "{}", other.escape_ascii());
    }
    let colons = lock.iter().chain(owner).filter(|byte| **byte == b':').count();
    // With more colons the module stops guessing.
    if colons < 6 {
        for key in [&timeout, &layout.reservation()] {
            let found = locks_of_key(key).any(|found| found == lock);
            assert!(found, "{} of {}", key.escape_ascii(), lock.escape_ascii());
        }
    }

    let in_cluster = Layout::of(lock, true);
    let tag = lock.iter().position(|byte| *byte == b'{').map(|open| &lock[open + 1..]);
    let is_allowed = match tag {
        None => !lock.is_empty() && !lock.contains(&b'}'),
        Some(rest) => rest.iter().position(|byte| *byte == b'}').is_some_and(|at| at > 0),
    };
    assert_eq!(in_cluster.is_some(), is_allowed, "{}", lock.escape_ascii());
    if let Some(layout) = in_cluster {
        let keys = [timeout, layout.reservation(), layout.fence(), layout.probe(number)];
        for key in keys {
            assert_eq!(slot(&key), slot(lock), "{}", key.escape_ascii());
        }
        assert_eq!(slot(&layout.owner_channel()), slot(lock));
        assert_eq!(slot(&layout.channel()), slot(lock));
    }
}

/// Two holds have the same key only if locks share a prefix, or a colon may belong to either name.
fn of_two(first: &(Bytes, Bytes, u64), second: &(Bytes, Bytes, u64)) {
    let ((lock, owner, number), (other_lock, other_owner, other_number)) = (first, second);
    let layouts = (Layout::of(lock, false), Layout::of(other_lock, false));
    let (Some(one), Some(other)) = layouts else {
        return;
    };
    let shares_prefix = grammar::prefix(lock) == grammar::prefix(other_lock);
    assert_eq!(one.reservation() == other.reservation(), shares_prefix);
    assert_eq!(one.fence() == other.fence(), shares_prefix);
    if shares_prefix && lock != other_lock {
        // `a` and `{a}`.
        let braces = |plain: &[u8], tagged: &[u8]| [b"{", plain, b"}"].concat() == tagged;
        assert!(braces(lock, other_lock) || braces(other_lock, lock));
    }
    if !is_owner(owner) || !is_owner(other_owner) {
        return;
    }
    let is_same = one.timeout(owner, *number) == other.timeout(other_owner, *other_number);
    let joined =
        |lock: &[u8], owner: &[u8]| [&grammar::prefix(lock), b":".as_slice(), owner].concat();
    let may_be_same =
        number == other_number && joined(lock, owner) == joined(other_lock, other_owner);
    assert_eq!(is_same, may_be_same);
    if is_same && !shares_prefix {
        // One lock's prefix goes on in the other with a colon: `a` with `b:c`, `{a}:b` with `c`.
        let (short, long) = match grammar::prefix(lock).len() < grammar::prefix(other_lock).len() {
            true => (lock, other_lock),
            false => (other_lock, lock),
        };
        let start = [&grammar::prefix(short), b":".as_slice()].concat();
        assert!(grammar::prefix(long).starts_with(&start));
    }
    for key in [one.reservation(), one.fence()] {
        assert_ne!(key, other.timeout(other_owner, *other_number));
    }
    if lock == other_lock {
        // Fields of one hash.
        let is_same_owner = owner == other_owner;
        for field in fields(owner) {
            assert_eq!(fields(other_owner).contains(&field), is_same_owner);
            assert_ne!(field, b"mode");
        }
    }
}

/// What is read from any name of a key.
fn of_any_key(key: &[u8]) {
    let locks: Vec<Bytes> = locks_of_key(key).collect();
    assert!(locks.len() <= 16);
    for lock in &locks {
        let prefix = grammar::prefix(lock);
        assert!(key.starts_with(&prefix), "{} of {}", key.escape_ascii(), lock.escape_ascii());
        if let Some((owner, number)) = hold_of_key(key, lock) {
            // Redisson writes no leading zero, and the module reads none.
            assert_eq!(grammar::timeout_key(lock, owner, number), key);
        }
    }
    // Each byte of the name is written out.
    let pattern: Bytes = key.iter().flat_map(|byte| [b'\\', *byte]).collect();
    assert!(matches(&pattern, key) && matches(b"*", key));
    let half = key.len() / 2;
    let stars = [b"*".as_slice(), &pattern[2 * half..], b"*"].concat();
    assert!(matches(&stars, key) || key.is_empty());
    matches(key, &key[half..]);
}
