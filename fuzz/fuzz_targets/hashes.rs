//! Locks as Redisson, a script or a stranger may have written them: any fields and values in the
//! hash, any timeout keys, reservations and fence keys beside it. Then commands use the lock.
//!
//! - No panic, no half reply, no key left open, and a replica without the module has the same
//!   keys (`Server`).
//! - INSPECT says what the docs say of these keys, or refuses them (`rwlock_fuzz::foreign`).
//! - What is no lock, and the timeout keys of other locks, are never touched.
//! - A command changes the holds of its owner alone, and by as much as its reply says. An error
//!   and the timer change no live hold.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rwlock_fuzz::foreign::{self, Seen, Wrong};
use rwlock_fuzz::grammar::{is_owner, prefix, timeout_key};
use rwlock_fuzz::input::Input;
use rwlock_fuzz::keys::{Bytes, Key, Keys, Value};
use rwlock_fuzz::server::{with_server, Reply, Server};

const LOCKS: [&[u8]; 4] = [b"k", b"{k}", b"{k}:b", b"x{y}"];

const OWNERS: [&[u8]; 10] =
    [b"me", b"you", b"b:c", b"c", b"b:me", b"\0\xff", b"mode:write", b"", b":", b"me:write"];

const COUNTS: [&[u8]; 20] = [
    b"1",
    b"2",
    b"3",
    b"1",
    b"4",
    b"1",
    b"2",
    b"0",
    b"-1",
    b"01",
    b"+1",
    b" 1",
    b"1.0",
    b"9223372036854775807",
    b"9223372036854775808",
    b"65536",
    b"read",
    b"",
    b"1",
    b"7",
];

fn owner(input: &mut Input<'_>) -> Bytes {
    match input.byte() {
        place @ 0..=239 => OWNERS[usize::from(place) % OWNERS.len()].to_vec(),
        _ => input.bytes().to_vec(),
    }
}

/// A field and its value.
fn field(input: &mut Input<'_>) -> (Bytes, Bytes) {
    let kind = input.byte();
    let field = match kind % 8 {
        0 => {
            return (
                b"mode".to_vec(),
                input.pick(&[b"read".as_slice(), b"write", b"READ"]).to_vec(),
            )
        }
        1..=4 => owner(input),
        5 | 6 => [&owner(input), b":write".as_slice()].concat(),
        // Redisson's transactions name a writer so.
        _ => [&owner(input), b":tx:write_lock".as_slice()].concat(),
    };
    let count = match input.byte() {
        place @ 0..=247 => COUNTS[usize::from(place) % COUNTS.len()].to_vec(),
        // Few bytes: the module reads each hold that a hash counts.
        _ => input.bytes().iter().take(3).copied().collect(),
    };
    (field, count)
}

/// When a key ends.
fn end(input: &mut Input<'_>, now: i64) -> Option<i64> {
    match input.byte() {
        0..=63 => None,
        64..=191 => Some(now + 10_000),
        short => Some(now + i64::from(short - 192) * 4),
    }
}

/// Writes one of the keys of a lock.
fn write(server: &mut Server, input: &mut Input<'_>, lock: &[u8]) {
    let now = server.now();
    match input.byte() % 16 {
        0 => server.put(lock, Key { value: Value::Other, expiry: end(input, now) }),
        1 => server.put(lock, Key::string(input.bytes()).until(end(input, now))),
        2..=5 => {
            let mode: &[u8] = input.pick(&[b"read", b"write"]);
            let mut fields = vec![(b"mode".to_vec(), mode.to_vec())];
            fields.extend((0..input.below(6)).map(|_| field(input)));
            let fields = fields.iter().map(|(field, value)| (field.as_slice(), value.as_slice()));
            server.put(lock, Key::hash(fields).until(end(input, now)));
        }
        6 => {
            let (name, value) = field(input);
            server.put_field(lock, &name, Some(&value));
        }
        7 => server.put_field(lock, &field(input).0, None),
        8..=11 => {
            let (owner, number) = (owner(input), 1 + input.below(5) as u64);
            let name = timeout_key(lock, &owner, number);
            let value = match input.byte() % 8 {
                0..=3 => lock.to_vec(),
                4 | 5 => b"1".to_vec(),
                6 => LOCKS[input.below(LOCKS.len())].to_vec(),
                _ => input.bytes().to_vec(),
            };
            server.put(&name, Key::string(&value).until(end(input, now)));
        }
        12 => {
            let owner = owner(input);
            let name = timeout_key(lock, &owner, 1);
            server.put(&name, Key { value: Value::Other, expiry: None });
        }
        13 => {
            let name = [&prefix(lock), b":wait_write".as_slice()].concat();
            server.put(&name, Key::string(&owner(input)).until(end(input, now)));
        }
        14 => {
            let name = [&prefix(lock), b":rwlock_fence".as_slice()].concat();
            server.put(&name, Key::string(input.pick(&COUNTS)).until(end(input, now)));
        }
        _ => {
            let at = end(input, now);
            server.expire_at(lock, at);
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input::new(input);
    with_server(|server| {
        let first = input.byte();
        server.set("policy", i64::from(first % 3));
        let lock = LOCKS[usize::from(first / 3) % LOCKS.len()];
        let other = LOCKS[usize::from(first / 12) % LOCKS.len()];
        for _ in 0..input.below(12) {
            write(server, &mut input, lock);
        }
        if input.one_in(2) {
            server.load();
        }
        for _ in 0..20 {
            inspect(server, lock);
            step(server, &mut input, lock, other);
            if input.is_empty() {
                break;
            }
        }
        inspect(server, lock);
    });
});

/// Compares INSPECT with the docs.
fn inspect(server: &mut Server, lock: &[u8]) {
    let keys = server.keys();
    let reply = server.call(9, false, &[b"RWLOCK.INSPECT", lock, b"COUNT", b"1000"]);
    assert_eq!(keys, server.keys(), "INSPECT has changed keys");
    let seen = foreign::read(&keys, lock);
    let beside =
        foreign::reserved(&keys, lock).and_then(|by| Ok((by, foreign::fence(&keys, lock)?)));
    let (Ok(seen), Ok((reserved, fence))) = (&seen, beside) else {
        assert!(reply.is_error(), "{keys:?}: {reply:?}");
        return;
    };
    assert!(!reply.is_error(), "{keys:?}: {reply:?}");
    let mode: &[u8] = match (seen.is_free(), seen.writes.is_empty()) {
        (true, _) => b"free",
        (_, true) => b"read",
        (_, false) => b"write",
    };
    assert_eq!(reply.field("mode").bytes(), mode, "{keys:?}");
    assert_eq!(reply.field("fence").integer(), fence);
    match (reserved, reply.field("reserved_by")) {
        (None, Reply::Null) => {}
        (Some(by), Reply::Bulk(shown)) => assert_eq!(by, *shown),
        (by, shown) => panic!("reserved by {by:?}: {shown:?}"),
    }
    let mut shown = Seen::default();
    for holder in reply.field("holders").items() {
        let (owner, holds) =
            (holder.field("owner").bytes().to_vec(), holder.field("holds").integer());
        assert!(holds > 0, "{holder:?}");
        match holder.field("kind").bytes() {
            b"read" => {
                let ends = seen.reads.get(&owner).filter(|ends| ends.len() as i64 == holds);
                shown.reads.insert(owner, ends.cloned().unwrap_or_default());
            }
            _ => drop(shown.writes.insert(owner, holds)),
        }
    }
    assert_eq!(shown, *seen, "{keys:?}: {reply:?}");
}

/// All that must stay as it is: what is no lock, and timeout keys of other locks.
fn untouchable(keys: &Keys, lock: &[u8]) -> Keys {
    let is_no_lock = foreign::read(keys, lock) == Err(Wrong::NoLock);
    let is_timeout = |name: &[u8]| {
        let mark = b":rwlock_timeout:";
        name.starts_with(&prefix(lock)) && name.windows(mark.len()).any(|part| part == mark)
    };
    let is_others = |name: &[u8], key: &Key| match &key.value {
        Value::String(of) => is_timeout(name) && of != lock && of != b"1",
        Value::Hash(_) | Value::Other => name != lock,
    };
    let keep = |(_, name): &(i32, Bytes), key: &Key| {
        is_others(name, key) || is_no_lock && (name == lock || is_timeout(name))
    };
    Keys(
        keys.0
            .iter()
            .filter(|(name, key)| keep(name, key))
            .map(|(n, k)| (n.clone(), k.clone()))
            .collect(),
    )
}

/// The keys among `kept` that still live at `now`.
fn assert_untouched(kept: &Keys, server: &Server) {
    let keys = server.keys();
    for (name, key) in &kept.live(server.now()).0 {
        assert_eq!(
            keys.0.get(name),
            Some(key),
            "{:?} was touched",
            name.1.escape_ascii().to_string()
        );
    }
}

fn step(server: &mut Server, input: &mut Input<'_>, lock: &[u8], other: &[u8]) {
    match input.byte() % 16 {
        0 => write(server, input, lock),
        1 => {
            server.elapse(i64::from(input.byte()) * 8);
            settle(server, lock);
        }
        2 => settle(server, lock),
        3 => {
            // What the connection held is given back.
            server.disconnect(1 + u64::from(input.byte() % 2));
            server.settle();
        }
        _ => command(server, input, lock, other),
    }
}

/// The timer may remove what has lapsed, and nothing else.
fn settle(server: &mut Server, lock: &[u8]) {
    let before = server.keys();
    let (kept, waiters) = (untouchable(&before, lock), server.blocked());
    server.settle();
    assert_untouched(&kept, server);
    // Waiters may get in.
    if waiters == 0 {
        let seen = foreign::read(&before, lock);
        if let Ok(seen) = &seen {
            // With the hash all is gone that it counted.
            let after = foreign::read(&server.keys(), lock);
            let after = after.map(|after| after.counts());
            assert_eq!(Ok(seen.counts()), after, "the timer has changed holds: {before:?}");
        }
    }
}

fn command(server: &mut Server, input: &mut Input<'_>, lock: &[u8], other: &[u8]) {
    let client = 1 + u64::from(input.byte() % 2);
    if server.is_blocked(client) {
        return;
    }
    let owner: &[u8] = input.pick(&[b"me", b"you", b"b:c", b"c", b"b:me", b"\0\xff"]);
    let lease: &[u8] = input.pick(&[b"20000", b"100", b"1"]);
    let kind = input.byte();
    let options = input.byte();
    let (name, mut args): (&[u8], Vec<&[u8]>) = match kind % 16 {
        0..=2 => (b"RWLOCK.RLOCK", vec![lock, owner, lease]),
        3 | 4 => (b"RWLOCK.WLOCK", vec![lock, owner, lease]),
        5 => (b"RWLOCK.UPGRADE", vec![lock, owner, lease]),
        6 => (b"RWLOCK.DOWNGRADE", vec![lock, owner, lease]),
        7 => (b"RWLOCK.RENEW", vec![lock, owner, lease]),
        8..=10 => (b"RWLOCK.UNLOCK", vec![lock, owner]),
        11 => (b"RWLOCK.FORCEUNLOCK", vec![lock]),
        12 => (b"RWLOCK.LIST", vec![b"0"]),
        13 => (b"RWLOCK.MLOCK", vec![owner, lease, b"READ", b"1", lock, b"WRITE", b"1", other]),
        14 => (b"RWLOCK.MUNLOCK", vec![owner, b"ALL", b"2", lock, other]),
        _ => (b"RWLOCK.MRENEW", vec![owner, lease, lock, other]),
    };
    let takes = matches!(name, b"RWLOCK.RLOCK" | b"RWLOCK.WLOCK" | b"RWLOCK.UPGRADE");
    if takes {
        for (bit, word) in [(1, b"ONCE".as_slice()), (2, b"SESSION")] {
            if options & bit != 0 && options & 128 != 0 {
                args.push(word);
            }
        }
        match options >> 2 & 7 {
            1 => args.extend([b"BLOCK".as_slice(), b"0"]),
            2 if name == b"RWLOCK.WLOCK" => args.extend([b"RESERVE".as_slice(), b"500"]),
            3 if name != b"RWLOCK.RLOCK" => args.push(b"FENCE"),
            _ => {}
        }
    }
    if name == b"RWLOCK.UNLOCK" {
        let which = [b"".as_slice(), b"READ", b"WRITE", b"ALL"][usize::from(options % 4)];
        args.extend(Some(which).filter(|which| !which.is_empty()));
    }
    args.insert(0, name);

    let before = server.keys();
    let kept = untouchable(&before, lock);
    let waiters = server.blocked();
    let reply = server.call(client, options & 64 != 0, &args);
    let shown: Vec<String> = args.iter().map(|arg| arg.escape_ascii().to_string()).collect();
    let after = server.keys();
    // Two locks may share keys; then a command on the other may change those of this one.
    if lock == other || kind % 16 < 12 {
        assert_untouched(&kept, server);
    }
    let seen = (foreign::read(&before, lock), foreign::read(&after, lock));
    if seen.0 == Err(Wrong::NoLock) && kind % 16 < 12 {
        assert!(reply.is_error(), "{shown:?} on what is no lock: {reply:?}, {before:?}");
    }
    if !is_owner(owner) {
        assert!(reply.is_error(), "{shown:?}: {reply:?}");
    }
    let (Ok(was), Ok(is)) = &seen else {
        return;
    };
    // With waiters a command can do more.
    if waiters > 0 {
        return;
    }
    if reply.is_error() || reply == Reply::Blocked || name == b"RWLOCK.LIST" {
        let counts = (was.counts(), is.counts());
        assert_eq!(counts.0, counts.1, "{shown:?}: {reply:?} has changed holds of {before:?}");
        return;
    }
    // MLOCK and MUNLOCK name two locks, which may clash.
    if kind % 16 < 12 {
        changed(&args, &reply, was, is, &shown, &before);
    }
}

/// Checks what a command that had no error has changed.
fn changed(args: &[&[u8]], reply: &Reply, was: &Seen, is: &Seen, shown: &[String], keys: &Keys) {
    if args[0] == b"RWLOCK.FORCEUNLOCK" {
        assert!(is.is_free() || *reply == Reply::Integer(0), "{shown:?}: {reply:?} {keys:?}");
        return;
    }
    let owner = args[2];
    let is_once = args.contains(&b"ONCE".as_slice());
    let others = (was.without(owner).counts(), is.without(owner).counts());
    assert_eq!(others.0, others.1, "{shown:?}: other owners, {keys:?}");
    let before = (was.reads_of(owner), was.writes_of(owner));
    let after = (is.reads_of(owner), is.writes_of(owner));
    let is_granted = !matches!(reply, Reply::Integer(_));
    let expected = match args[0] {
        b"RWLOCK.RLOCK" | b"RWLOCK.WLOCK" | b"RWLOCK.UPGRADE" if !is_granted => before,
        b"RWLOCK.RLOCK" if is_once && before.0 > 0 => before,
        b"RWLOCK.RLOCK" => (before.0 + 1, before.1),
        b"RWLOCK.WLOCK" | b"RWLOCK.UPGRADE" if is_once && before.1 > 0 => before,
        b"RWLOCK.WLOCK" | b"RWLOCK.UPGRADE" => (before.0, before.1 + 1),
        b"RWLOCK.DOWNGRADE" => (before.0.max(1), 0),
        b"RWLOCK.RENEW" => before,
        _ => match args.get(3) {
            Some(&b"ALL") => (0, 0),
            Some(&b"READ") => (before.0.wrapping_sub(1), before.1),
            Some(&b"WRITE") => (before.0, before.1 - 1),
            _ if before.0 > 0 => (before.0 - 1, before.1),
            _ => (before.0, before.1 - 1),
        },
    };
    assert_eq!(after, expected, "{shown:?}: {reply:?}, holds of {keys:?}");
    // An owner that gets a write hold writes alone, unless a stranger has written it otherwise.
    if is_granted && was.is_free() {
        assert!(is.without(owner).is_free(), "{shown:?}");
    }
}
