//! Several locks in one step in a cluster: all in one slot, which this node serves.

use support::unchanged::assert_unchanged;
use support::{
    assert_error, assert_ok, begin_to_move, call, int, list, wait_until, Client, Cluster,
};

#[test]
fn locks_of_one_slot_are_taken_together_and_others_are_refused() {
    let cluster = Cluster::start(2, 0);
    let node = cluster.primary_for(b"{x}");
    let mut con = node.connection();
    assert_ok(call!(con, "RWLOCK.MLOCK", "me", 60_000, "WRITE", 2, "{x}a", "{x}b", "READ", 1, "x"));
    let renewed = list(call!(con, "RWLOCK.MRENEW", "me", 60_000, "{x}a", "x"));
    assert_eq!(renewed.iter().map(int).collect::<Vec<_>>(), [1, 1]);
    assert_unchanged(&mut con, |con| {
        let two_slots = call!(con, "RWLOCK.MLOCK", "me", 60_000, "WRITE", 2, "{x}c", "{y}c");
        assert_error(two_slots, "CROSSSLOT");
        let clauses =
            call!(con, "RWLOCK.MLOCK", "me", 60_000, "READ", 1, "{x}c", "WRITE", 1, "{y}c");
        assert_error(clauses, "CROSSSLOT");
        assert_error(call!(con, "RWLOCK.MRENEW", "me", 60_000, "{x}a", "{y}c"), "CROSSSLOT");
        let released = call!(con, "RWLOCK.MUNLOCK", "me", "WRITE", 1, "{x}a", "ALL", 1, "{y}c");
        assert_error(released, "CROSSSLOT");
    });
    let other = cluster.nodes().iter().find(|other| other.port() != node.port());
    let mut other = other.expect("two nodes").connection();
    let elsewhere = call!(other, "RWLOCK.MLOCK", "me", 60_000, "WRITE", 2, "{x}c", "{x}d");
    assert_error(elsewhere, "MOVED");
}

#[test]
fn while_the_slot_moves_nothing_is_taken_and_waiters_are_told() {
    let cluster = Cluster::start(2, 0);
    let from = cluster.primary_for(b"{x}");
    let to = cluster.nodes().iter().find(|node| node.port() != from.port()).expect("two nodes");
    let mut con = from.connection();
    assert_ok(call!(con, "RWLOCK.MLOCK", "x", 600_000, "WRITE", 2, "{x}a", "{x}b"));
    let mut waiter = Client::waits(from, "MLOCK me 60000 WRITE 2 {x}b {x}c BLOCK 0");
    begin_to_move(b"{x}", from, to);
    for command in [["{x}a", "{x}b"], ["{x}a", "{x}c"]] {
        assert_unchanged(&mut con, |con| {
            let [one, other] = command;
            let taken = call!(con, "RWLOCK.MLOCK", "x", 60_000, "WRITE", 2, one, other);
            assert_error(taken, "TRYAGAIN");
        });
    }
    assert_error(waiter.reply(), "TRYAGAIN");
    wait_until("nobody waits", || list(call!(con, "RWLOCK.QUEUES")).is_empty());
}
