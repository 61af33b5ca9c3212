//! The keys of the commands that name several locks, as the server finds them: for cluster
//! clients and for the rights of users.

use std::collections::BTreeSet;

use redis::{Connection, RedisResult, Value};

use support::unchanged::assert_unchanged;
use support::{assert_error, assert_ok, call, list, send, text, Server};

fn run(con: &mut Connection, line: &str) -> RedisResult<Value> {
    send(con, line.split(' '))
}

#[test]
fn the_keys_of_a_call_are_told_exactly() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for (command, keys) in [
        ("MLOCK me 1000 READ 1 a", "a"),
        ("MLOCK me 1000 WRITE 2 b a READ 1 c", "b a c"),
        ("MLOCK me 1000 BLOCK 0 read 2 a b SESSION write 1 c FENCE", "a b c"),
        // Locks, an owner and options that have the name of a word.
        ("MLOCK me 1000 READ 1 READ", "READ"),
        ("MLOCK WRITE 1000 READ 2 WRITE 2 WRITE 1 READ", "WRITE 2 READ"),
        ("MLOCK READ 1000 ONCE WRITE 3 1 ONCE WRITE", "1 ONCE WRITE"),
        ("MUNLOCK me ALL 1 a READ 2 b ALL", "a b ALL"),
        ("MUNLOCK ALL WRITE 1 ALL", "ALL"),
        ("MRENEW me 1000 a b READ", "a b READ"),
    ] {
        let keyed = format!("COMMAND GETKEYS RWLOCK.{command}");
        let told: Vec<String> = list(run(&mut con, &keyed)).iter().map(text).collect();
        assert_eq!(told.join(" "), keys, "{command}");
        let flagged = format!("COMMAND GETKEYSANDFLAGS RWLOCK.{command}");
        for key in list(run(&mut con, &flagged)) {
            let flags: BTreeSet<String> = list(&list(&key)[1]).iter().map(text).collect();
            let change = if command.starts_with("MU") { "delete" } else { "update" };
            assert!(flags.contains("RW") && flags.contains(change), "{command}: {flags:?}");
        }
    }
    // What the command refuses has no keys.
    for command in
        ["MLOCK me 1000 WRITE 2 a", "MLOCK me 0x WRITE 1 a", "MLOCK me 1000 WRITE 1 a WRITE 1 b"]
    {
        let keyed = format!("COMMAND GETKEYS RWLOCK.{command}");
        assert!(run(&mut con, &keyed).is_err(), "{command}");
    }
}

#[test]
fn a_user_without_rights_to_one_of_the_locks_takes_none() {
    let server = Server::builder().start();
    let mut admin = server.connection();
    assert_ok(call!(
        admin,
        "ACL",
        "SETUSER",
        "ann",
        "on",
        ">pass",
        "~mine*",
        "~READ",
        "+rwlock.mlock",
        "+rwlock.munlock",
        "+rwlock.mrenew"
    ));
    let mut ann = server.connection();
    assert_ok(call!(ann, "AUTH", "ann", "pass"));
    assert_ok(run(&mut admin, "RWLOCK.MLOCK me 60000 WRITE 2 mine:held other:held"));
    for command in [
        "RWLOCK.MLOCK me 60000 WRITE 2 mine other",
        "RWLOCK.MLOCK me 60000 READ 1 mine WRITE 1 other",
        "RWLOCK.MLOCK me 60000 READ 2 READ WRITE",
        "RWLOCK.MLOCK me 60000 READ 1 other BLOCK 0",
        "RWLOCK.MUNLOCK me WRITE 2 mine:held other:held",
        "RWLOCK.MUNLOCK me ALL 1 mine:held WRITE 1 other:held",
        "RWLOCK.MRENEW me 60000 mine:held other:held",
    ] {
        assert_unchanged(&mut admin, |_| assert_error(run(&mut ann, command), "NOPERM"));
    }
    assert_ok(run(&mut ann, "RWLOCK.MLOCK me 60000 WRITE 2 mine mine:2 READ 1 READ"));
    let renewed = list(run(&mut ann, "RWLOCK.MRENEW me 90000 mine READ"));
    assert_eq!(renewed, [Value::Int(1), Value::Int(1)]);
    let released = list(run(&mut ann, "RWLOCK.MUNLOCK me ALL 3 mine mine:2 READ"));
    assert_eq!(released, [Value::Int(1), Value::Int(1), Value::Int(1)]);
}
