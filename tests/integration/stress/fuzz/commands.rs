//! Random commands with hostile arguments, and plain ones on the locks' keys.

use support::Random;

/// Mostly one of the first [`GOOD`].
pub(super) fn mostly<T: Copy>(random: &mut Random, choices: &[T]) -> T {
    let hostile = random.one_in(20);
    random.pick(if hostile { choices } else { &choices[..GOOD] })
}

/// Locks that share derived names, and names that are refused.
pub(super) const LOCKS: [&[u8]; 8] = [
    b"a",
    b"{a}",
    b"{a}:b",
    b"\0\r\n\xff",
    b"",
    b"{a}:wait_write",
    b"{a}:b:rwlock_timeout:1",
    b"x:rwlock_fence",
];

/// How many of [`LOCKS`], and of the lists below, are as they should be. They
/// come first, and are taken more often.
pub(super) const GOOD: usize = 5;

pub(super) const OWNERS: [&[u8]; 9] =
    [b"b", b"c", b"b:c", b"\xff\r\n\0", b"%s%n", b"mode", b"b:write", b"", b"mode:write"];

pub(super) const NUMBERS: [&str; 18] = [
    "60000",
    "1",
    "2",
    "20",
    "3",
    "300",
    "70000",
    "0",
    "-1",
    "",
    " 1",
    "1.5",
    "x",
    "01",
    "4611686018427387904",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
];

pub(super) const OPTIONS: [&str; 13] = [
    "ONCE", "RESERVE", "BLOCK", "SESSION", "FENCE", "READ", "WRITE", "ALL", "COUNT", "reserve",
    "block", "", "60000",
];

/// The longest that a client waits, in ms.
pub(super) const PATIENCE: i64 = 3;

pub(super) type Words = Vec<Vec<u8>>;

pub(super) fn words<const N: usize>(words: [&[u8]; N]) -> Words {
    words.map(<[u8]>::to_vec).into()
}

/// A command of ours, mostly one that could succeed.
pub(super) fn ours(random: &mut Random) -> Words {
    let (name, fixed) = random.pick(&[
        ("RWLOCK.RLOCK", 3),
        ("RWLOCK.RLOCK", 3),
        ("RWLOCK.WLOCK", 3),
        ("RWLOCK.WLOCK", 3),
        ("RWLOCK.UNLOCK", 2),
        ("RWLOCK.UNLOCK", 2),
        ("RWLOCK.RENEW", 3),
        ("RWLOCK.UPGRADE", 3),
        ("RWLOCK.DOWNGRADE", 3),
        ("rwlock.forceunlock", 1),
        ("RWLOCK.INSPECT", 1),
        ("RWLOCK.LIST", 1),
        ("RWLOCK.QUEUES", 0),
        ("RWLOCK.LOG", 0),
        ("RWLOCK.HOTLOCKS", 0),
        ("RWLOCK.HELP", 0),
    ]);
    let mut all = words([name.as_bytes()]);
    let fixed = if random.one_in(50) { random.below_len(5) } else { fixed };
    for at in 0..fixed {
        all.push(match at {
            0 if name == "RWLOCK.LIST" => mostly(random, &NUMBERS).as_bytes().to_vec(),
            0 => mostly(random, &LOCKS).to_vec(),
            1 => mostly(random, &OWNERS).to_vec(),
            _ => mostly(random, &NUMBERS).as_bytes().to_vec(),
        });
    }
    if fixed == 3 && random.one_in(8) {
        all.push(b"BLOCK".to_vec());
        all.push(mostly(random, &NUMBERS).as_bytes().to_vec());
    }
    if matches!(name, "RWLOCK.WLOCK" | "RWLOCK.UPGRADE") && random.one_in(4) {
        all.push(b"FENCE".to_vec());
    }
    while random.one_in(6) {
        all.push(random.pick(&OPTIONS).as_bytes().to_vec());
        if random.one_in(2) {
            all.push(mostly(random, &NUMBERS).as_bytes().to_vec());
        }
    }
    all
}

/// Makes a command wait for no longer than [`PATIENCE`].
pub(super) fn hurried(command: &Words) -> Words {
    let mut hurried = command.clone();
    for at in 1..hurried.len() {
        if hurried[at - 1].eq_ignore_ascii_case(b"BLOCK") {
            let number = String::from_utf8_lossy(&hurried[at]).parse::<i64>();
            if number.is_ok_and(|ms| ms == 0 || ms > PATIENCE) {
                hurried[at] = PATIENCE.to_string().into_bytes();
            }
        }
    }
    hurried
}

/// A key made from the name of a lock and that of an owner.
pub(super) fn derived_key(random: &mut Random) -> Vec<u8> {
    let lock = mostly(random, &LOCKS);
    let prefix = if lock.contains(&b'{') { lock.to_vec() } else { [b"{", lock, b"}"].concat() };
    match random.below(6) {
        0 => [&prefix[..], b":wait_write"].concat(),
        1 => [&prefix[..], b":rwlock_fence"].concat(),
        _ => {
            let number = random.pick(&["1", "2", "3"]);
            let owner = mostly(random, &OWNERS);
            [&prefix[..], b":", owner, b":rwlock_timeout:", number.as_bytes()].concat()
        }
    }
}

pub(super) fn any_key(random: &mut Random) -> Vec<u8> {
    if random.one_in(2) {
        mostly(random, &LOCKS).to_vec()
    } else {
        derived_key(random)
    }
}

/// A field of a lock's hash with a value that mostly could be right.
pub(super) fn field(random: &mut Random) -> (Vec<u8>, Vec<u8>) {
    let owner = mostly(random, &OWNERS);
    let mode = random.pick(&[&b"read"[..], b"write"]).to_vec();
    let count = random.pick(&[&b"1"[..], b"2", b"3", b"9223372036854775807"]).to_vec();
    match random.below(12) {
        0 => (b"mode".to_vec(), mostly(random, &NUMBERS).as_bytes().to_vec()),
        1 => (owner.to_vec(), mode),
        2 => (owner.to_vec(), mostly(random, &NUMBERS).as_bytes().to_vec()),
        3..6 => (b"mode".to_vec(), mode),
        6..9 => (owner.to_vec(), count),
        _ => ([owner, b":write"].concat(), count),
    }
}

/// A plain command on a lock's keys.
pub(super) fn plain(random: &mut Random, has_field_expiry: bool) -> Words {
    let lock = mostly(random, &LOCKS);
    let derived = derived_key(random);
    let any = any_key(random);
    let (field, value) = field(random);
    let owner = mostly(random, &OWNERS);
    match random.below(40) {
        0..4 => words([b"HSET", lock, &field, &value]),
        4 => words([b"HDEL", lock, &field]),
        5 => words([b"HINCRBY", lock, &field, mostly(random, &NUMBERS).as_bytes()]),
        6 if has_field_expiry => words([b"HPEXPIRE", lock, b"5", b"FIELDS", b"1", &field]),
        6..9 => words([b"SET", &derived, random.pick(&LOCKS), b"PX", b"30"]),
        9 => words([b"SET", &derived, owner]),
        10 => words([b"SET", &derived, &value]),
        11 => words([b"SET", &any, &value]),
        12 => words([b"LPUSH", &any, &value]),
        13 => words([b"ZADD", &any, b"1", &value]),
        14 => words([b"HSET", &derived, &field, &value]),
        15..18 => words([b"PEXPIRE", &any, b"3"]),
        18 => words([b"PEXPIRE", &any, mostly(random, &NUMBERS).as_bytes()]),
        19 => words([b"PERSIST", &any]),
        20 => words([b"RENAME", &any, &any_key(random)]),
        21 => words([b"COPY", &any, &any_key(random), b"REPLACE"]),
        22 => words([b"DEBUG", b"SET-ACTIVE-EXPIRE", random.pick(&[b"0", b"1"])]),
        23 => words([b"FLUSHALL"]),
        24..28 => words([b"DEL", &derived]),
        28..36 => words([b"DEL", lock]),
        _ => words([b"UNLINK", &any]),
    }
}
