//! Commands with any arguments, on a server without keys and on what the commands before left.
//!
//! - No panic, no half reply, no key left open, and a replica without the module has the same
//!   keys (`Server`).
//! - Arguments of the wrong form get the error that the docs name, and others do not
//!   (`rwlock_fuzz::grammar`).
//! - An error and a command that only reads change no key.
//! - On a free lock a request makes the keys that its words say.
//! - The keys are those of the docs (`rwlock_fuzz::shape`). So no lock has two writers.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rwlock_fuzz::grammar::{self, is_lock_name, is_owner, Parsed};
use rwlock_fuzz::input::Input;
use rwlock_fuzz::keys::Bytes;
use rwlock_fuzz::server::{with_server, Reply, Server};
use rwlock_fuzz::{shape, words};
use std::collections::BTreeSet;

const READ_ONLY: [&str; 6] = [
    "RWLOCK.INSPECT",
    "RWLOCK.LIST",
    "RWLOCK.QUEUES",
    "RWLOCK.LOG",
    "RWLOCK.HOTLOCKS",
    "RWLOCK.HELP",
];

/// More steps than this say nothing new, and take the fuzzer's time.
const MAX_STEPS: usize = 24;

fuzz_target!(|input: &[u8]| {
    let mut input = Input::new(input);
    with_server(|server| {
        let settings = input.byte();
        server.set("policy", i64::from(settings % 3));
        if settings & 0x80 != 0 {
            server.notify();
        }
        for _ in 0..MAX_STEPS {
            step(server, &mut input);
            if input.is_empty() {
                break;
            }
        }
    });
});

fn step(server: &mut Server, input: &mut Input<'_>) {
    let who = input.byte();
    let client = u64::from(1 + who % 4);
    match who >> 2 {
        0..=2 => server.elapse(i64::from(input.byte()) * 8),
        3 => server.disconnect(client),
        4 => drop(server.unblock(client)),
        5 => server.settle().clear(),
        6..=8 => {}
        _ => {
            let args = words::command(input);
            let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            command(server, client, who & 0x80 != 0, &args);
        }
    }
    // What has lapsed goes, and answers come.
    for (_, reply) in server.settle() {
        assert!(reply != Reply::Blocked, "{reply:?}");
    }
    shape::check(&server.keys());
}

fn command(server: &mut Server, client: u64, in_transaction: bool, args: &[&[u8]]) {
    if server.is_blocked(client) {
        return;
    }
    let before = server.keys();
    let reply = server.call(client, in_transaction, args);
    let after = server.keys();
    let shown =
        || -> Vec<String> { args.iter().map(|arg| arg.escape_ascii().to_string()).collect() };
    let parsed = match grammar::parse(args) {
        Ok(parsed) => parsed,
        Err(wrong) => {
            assert!(reply.is_error_of(wrong), "{:?}: {reply:?}, not {wrong}", shown());
            assert_eq!(before, after, "{:?}: {reply:?} has changed keys", shown());
            return;
        }
    };
    assert!(!is_of_form(&reply), "{:?}: {reply:?}, but the form is right", shown());
    if reply.is_error() || READ_ONLY.contains(&parsed.name) || reply == Reply::Blocked {
        assert_eq!(before, after, "{:?}: {reply:?} has changed keys", shown());
    }
    if reply == Reply::Blocked {
        assert!(parsed.has("BLOCK") && !in_transaction, "{:?} waits", shown());
    }
    if ["RWLOCK.MLOCK", "RWLOCK.MUNLOCK"].contains(&parsed.name) {
        assert_eq!(server.key_positions(args), parsed.positions, "{:?}", shown());
    }
    if before.0.is_empty() && server.blocked() == 0 {
        on_nothing(server, &parsed, &reply, &shown);
    }
}

/// Whether it is an error about the form of the arguments, and not about their meaning.
fn is_of_form(reply: &Reply) -> bool {
    [
        "ERR syntax error",
        "ERR wrong number",
        "ERR timeout is negative",
        "ERR value is",
        "ERR numkeys",
    ]
    .iter()
    .any(|text| reply.is_error_of(text))
        || reply.is_error_of("ERR invalid cursor")
}

/// Checks a command on a server without keys: its words say all.
fn on_nothing(server: &Server, parsed: &Parsed, reply: &Reply, shown: &dyn Fn() -> Vec<String>) {
    let now = server.now();
    let first = |at: usize| parsed.first[at].as_slice();
    let is_lease = |text: &[u8]| grammar::integer(text).is_some_and(|ms| fits(now, ms));
    let times_fit = ["BLOCK", "RESERVE"].iter().all(|option| {
        parsed.number(option).is_none_or(|ms| fits(now, ms) || *option == "BLOCK" && ms == 0)
    });
    let is_right = |lock: &[u8], owner: &[u8]| is_lock_name(lock) && is_owner(owner);
    match parsed.name {
        name @ ("RWLOCK.RLOCK" | "RWLOCK.WLOCK") => {
            if !is_right(first(0), first(1)) || !is_lease(first(2)) || !times_fit {
                assert!(reply.is_error(), "{:?}: {reply:?}", shown());
                return;
            }
            let is_write = name == "RWLOCK.WLOCK";
            let places = [(parsed.first[0].clone(), is_write)];
            granted(server, parsed, &places, first(1), first(2), reply, shown);
        }
        "RWLOCK.MLOCK" => {
            let reads = parsed.keys_of("READ").iter().map(|key| (key.clone(), false));
            let writes = parsed.keys_of("WRITE").iter().map(|key| (key.clone(), true));
            let places: Vec<(Bytes, bool)> = reads.chain(writes).collect();
            let names: BTreeSet<Bytes> =
                places.iter().map(|(name, _)| grammar::prefix(name)).collect();
            let are_right = places.iter().all(|(lock, _)| is_right(lock, first(0)));
            if !are_right || names.len() < places.len() || !is_lease(first(1)) || !times_fit {
                assert!(reply.is_error(), "{:?}: {reply:?}", shown());
                return;
            }
            // Names of several locks can also clash through the owner's name.
            if !reply.is_error_of("ERR key clash with lock ") {
                granted(server, parsed, &places, first(0), first(1), reply, shown);
            }
        }
        "RWLOCK.UNLOCK" | "RWLOCK.UPGRADE" | "RWLOCK.RENEW" | "RWLOCK.DOWNGRADE" => {
            assert!(reply.is_error(), "{:?}: {reply:?}", shown());
            let lease_is_right = parsed.first.get(2).is_none_or(|lease| is_lease(lease));
            if is_right(first(0), first(1)) && lease_is_right && times_fit {
                assert!(reply.is_error_of("NOTHELD"), "{:?}: {reply:?}", shown());
            }
        }
        "RWLOCK.MUNLOCK" | "RWLOCK.MRENEW" => {
            let (keys, none) = match parsed.name {
                "RWLOCK.MUNLOCK" => (parsed.positions.len(), -1),
                _ => (parsed.keys.len(), 0),
            };
            if !reply.is_error() {
                assert_eq!(reply.items(), vec![Reply::Integer(none); keys], "{:?}", shown());
            }
        }
        "RWLOCK.FORCEUNLOCK" if is_lock_name(first(0)) => {
            assert_eq!(*reply, Reply::Integer(0), "{:?}", shown());
        }
        "RWLOCK.INSPECT" if is_lock_name(first(0)) => {
            assert_eq!(reply.field("mode").bytes(), b"free", "{:?}", shown());
        }
        _ => {}
    }
}

/// Checks the reply and the keys of a request that was granted on a server without keys.
fn granted(
    server: &Server,
    parsed: &Parsed,
    places: &[(Bytes, bool)],
    owner: &[u8],
    lease: &[u8],
    reply: &Reply,
    shown: &dyn Fn() -> Vec<String>,
) {
    let writes = places.iter().filter(|(_, is_write)| *is_write).count();
    let ok = Reply::Status("OK".into());
    match parsed.has("FENCE") {
        false => assert_eq!(*reply, ok, "{:?}", shown()),
        true => {
            assert_eq!(
                (reply.items().len(), &reply.items()[0]),
                (1 + writes, &ok),
                "{:?}",
                shown()
            );
        }
    }
    let end = server.now() + grammar::integer(lease).expect("a lease");
    let mut expected = rwlock_fuzz::keys::Keys::default();
    for (lock, is_write) in places {
        shape::grant(&mut expected, lock, owner, end, *is_write);
    }
    let mut keys = server.keys();
    if parsed.has("FENCE") {
        for ((lock, _), token) in places.iter().filter(|(_, w)| *w).zip(&reply.items()[1..]) {
            let fence = [&grammar::prefix(lock), b":rwlock_fence".as_slice()].concat();
            let key = keys.remove(0, &fence).expect("a fence key");
            let token = rwlock_fuzz::keys::Value::String(token.integer().to_string().into_bytes());
            assert_eq!(key.value, token, "{:?}", shown());
        }
    }
    assert_eq!(keys, expected, "{:?}", shown());
}

/// Whether now and a time after it fit into 64 bits, and the time is 1 or more.
fn fits(now: i64, ms: i64) -> bool {
    ms > 0 && now.checked_add(ms).is_some()
}
