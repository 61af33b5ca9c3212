//! Reservations that somebody else changes in a way that no event tells of.

use std::time::Duration;

use support::{assert_prompt, local_clock, Crowd, Server};

/// Gives the reservation to the one that waits. Its TTL stays, or goes.
const GIFTS: [&str; 4] = [
    "SET {k}:wait_write b KEEPTTL",
    "SET {k}:wait_write b",
    "GETSET {k}:wait_write b",
    "SETRANGE {k}:wait_write 0 b",
];

#[test]
fn a_reservation_that_is_given_to_a_waiter_is_noticed_at_once() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    for gift in GIFTS {
        let mut late = Vec::new();
        for round in 0..8 {
            crowd.ok("WLOCK k h 60000");
            crowd.refused("WLOCK k a 60000 RESERVE 60000");
            crowd.gives("UNLOCK k h", 1);
            let mut waiter = crowd.waits("WLOCK k b 60000 BLOCK 0");
            // A new waiter's lock is looked at soon in any case; also later?
            std::thread::sleep(Duration::from_millis(round % 2 * 100));
            let before = local_clock();
            crowd.plain(gift);
            waiter.granted();
            late.push(local_clock() - before);
            crowd.gives("UNLOCK k b", 1);
        }
        assert_prompt(gift, 10, &late);
    }
}
