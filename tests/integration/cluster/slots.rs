//! Locks in a cluster: all keys of one share its slot, and a
//! slot that is on its way between nodes serves none.

use redis::Connection;

use support::unchanged::{assert_unchanged, snapshot};
use support::{assert_error, assert_ok, call, every_command, int, map, slot, text, Cluster};

#[test]
fn every_derived_key_shares_the_slot_or_the_name_is_refused() {
    let cluster = Cluster::start(1, 0);
    let mut con = cluster.node(0).connection();
    let refused: [&[u8]; 12] =
        [b"", b"{", b"}", b"a{b", b"a}b", b"{}", b"a{}b", b"{}{a}", b"}{", b"{}a}", b"a}", b"{a"];
    for name in refused {
        for command in every_command::all() {
            command.refused(&mut con, name, b"me", "CROSSSLOT");
        }
    }
    let owners: [&[u8]; 3] = [b"me", b"{me}", b"}{\xff"];
    let accepted: [&[u8]; 8] =
        [b"a", b"{a}", b"x{a}y", b"a}b{c}", b"{a}{", b"{{a}", b"{a}}", b"\xff\0\r\n"];
    for name in accepted {
        for owner in owners {
            assert_ok(call!(con, "RWLOCK.RLOCK", name, owner, 60_000));
        }
        int(call!(con, "RWLOCK.WLOCK", name, "you", 60_000, "RESERVE", 60_000));
        let keys: Vec<_> = snapshot(&mut con).into_keys().collect();
        assert_eq!(keys.len(), 2 + owners.len());
        assert!(keys.iter().all(|key| slot(key) == slot(name)), "{keys:?}");
        assert_eq!(int(call!(con, "RWLOCK.FORCEUNLOCK", name)), 1);
    }
}

fn set_slot(con: &mut Connection, how: &str, node: &str) {
    let number = slot(b"k");
    assert_ok(match node {
        "" => call!(con, "CLUSTER", "SETSLOT", number, how),
        node => call!(con, "CLUSTER", "SETSLOT", number, how, node),
    });
}

#[test]
fn a_lock_whose_slot_is_on_its_way_is_neither_changed_nor_told() {
    let cluster = Cluster::start(2, 0);
    let from = cluster.primary_for(b"k");
    let to = cluster.nodes().iter().find(|node| node.port() != from.port()).expect("two nodes");
    let (mut source, mut target) = (from.connection(), to.connection());
    assert_ok(call!(source, "RWLOCK.RLOCK", "k", "me", 600_000));
    assert_error(call!(target, "RWLOCK.RLOCK", "k", "me", 600_000), "MOVED");
    let source_id = text(call!(source, "CLUSTER", "MYID"));
    let target_id = text(call!(target, "CLUSTER", "MYID"));
    set_slot(&mut source, "MIGRATING", &target_id);
    set_slot(&mut target, "IMPORTING", &source_id);
    for command in every_command::all() {
        command.refused(&mut source, b"k", b"me", "TRYAGAIN");
        // The other node is asked for what has gone ahead.
        assert_unchanged(&mut target, |target| {
            assert_ok(call!(target, "ASKING"));
            assert_error(command.call(target, b"k", b"me"), "TRYAGAIN");
        });
    }
    set_slot(&mut source, "STABLE", "");
    set_slot(&mut target, "STABLE", "");
    assert_eq!(text(&map(call!(source, "RWLOCK.INSPECT", "k"))["mode"]), "read");
    assert_eq!(int(call!(source, "RWLOCK.UNLOCK", "k", "me")), 1);
}
