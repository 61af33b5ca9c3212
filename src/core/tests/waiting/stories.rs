//! Short histories that once went wrong, each with the right end.

use super::circles;
use super::rules::check;
use super::step::{Reply, Request, Step};
use super::world::{Client, Place, World};
use crate::core::wait;
use crate::core::{Policy, Want, Which};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// A request that waits without end.
fn request(client: Client, place: Place, want: Want) -> Step {
    let (once, lease, block, reserve) = (false, None, Some(0), None);
    let second = None;
    Step::Acquire(Request { client, place, want, second, once, lease, block, reserve })
}

#[test]
fn a_writer_that_closes_a_circle_by_overtaking_readers_gets_the_error() {
    // Owners: 0 is a, with three clients, 1 is b, 2 is e.
    let mut world = World::new(Policy::PreferWriters, 2, &[2, 1, 0, 0, 0, 1]);
    for (client, place, want, reply) in [
        (0, 0, Want::Write, Reply::Held),
        (1, 1, Want::Read, Reply::Held),
        (2, 1, Want::Write, Reply::Waiting),
        (5, 0, Want::Read, Reply::Waiting),
        (3, 0, Want::Read, Reply::Waiting),
        // Before this b would read together with a. Now b would read after a has written.
        (4, 0, Want::Write, Reply::Deadlock),
    ] {
        assert_eq!(world.step(request(client, place, want)), Some(reply), "{client}");
    }
    assert_eq!(world.violations, [""; 0]);
    assert_eq!(check(&world), Ok(()));
    assert_eq!(world.answers, []);
    assert_eq!(world.waits.len(), 3);
}

#[test]
fn a_waiter_that_leaves_may_close_a_circle_of_others() {
    for end in [Step::Leave(4), Step::TimeOut(4)] {
        // Owners 1 and 2 have two clients each.
        let mut world = World::new(Policy::Fifo, 2, &[0, 1, 2, 3, 1, 2]);
        assert_eq!(world.step(request(0, 0, Want::Write)), Some(Reply::Held));
        assert_eq!(world.step(request(3, 1, Want::Write)), Some(Reply::Held));
        assert_eq!(world.step(request(5, 1, Want::Read)), Some(Reply::Waiting));
        // Both writers of 1 are served first, together. Then 2 and 3 read together.
        for (client, want) in [(4, Want::Write), (2, Want::Read), (1, Want::Write), (3, Want::Read)]
        {
            assert_eq!(world.step(request(client, 0, want)), Some(Reply::Waiting));
        }
        assert!(!circles::exist(&world));
        // Now 1 writes between 2 and 3. So 3 waits for 2, and 2 waits for 3.
        world.step(end);
        world.step(Step::FireTimers);
        assert_eq!(world.violations, [""; 0]);
        assert_eq!(check(&world), Ok(()));
        assert_eq!(world.waits(3), None);
        assert_eq!(world.answers.last(), Some(&(5, Reply::Deadlock)));
        assert_eq!(world.waits.len(), 3);
    }
}

#[test]
fn a_reader_joins_readers_when_the_writer_ahead_gets_the_error() {
    // Owners: 0 is a, 1 is b, 2 is c.
    let mut world = World::new(Policy::Fifo, 2, &[0, 1, 1, 2, 1, 2, 2]);
    for (client, place, want, reply) in [
        (0, 0, Want::Write, Reply::Held),
        (1, 1, Want::Read, Reply::Held),
        (2, 0, Want::Write, Reply::Waiting),
        (3, 0, Want::Write, Reply::Waiting),
        (4, 0, Want::Write, Reply::Waiting),
        (5, 1, Want::Write, Reply::Waiting),
        (6, 1, Want::Read, Reply::Waiting),
    ] {
        assert_eq!(world.step(request(client, place, want)), Some(reply), "{client}");
    }
    assert!(!circles::exist(&world));
    // Now b waits for c, and the writer of c waits for b to stop reading.
    world.step(Step::Leave(2));
    world.step(Step::FireTimers);
    assert_eq!(world.violations, [""; 0]);
    assert_eq!(check(&world), Ok(()));
    let answers = [(1, Reply::Removed), (4, Reply::Deadlock), (5, Reply::Held)];
    assert_eq!(world.answers, answers);
}

#[test]
fn a_waiter_behind_a_reservation_waits_for_the_holders() {
    // Owners: 0 reads lock 0, 1 writes lock 1, 2 has reserved lock 0.
    for policy in [Policy::Fifo, Policy::PreferWriters] {
        let mut world = World::new(policy, 2, &[0, 1, 2]);
        let (once, lease, block, reserve) = (false, None, None, Some(1));
        let reserving = Request {
            client: 2,
            place: 0,
            want: Want::Write,
            second: None,
            once,
            lease,
            block,
            reserve,
        };
        assert_eq!(world.step(request(0, 0, Want::Read)), Some(Reply::Held));
        assert_eq!(world.step(request(1, 1, Want::Write)), Some(Reply::Held));
        assert_eq!(world.step(Step::Acquire(reserving)), Some(Reply::Refused));
        assert_eq!(world.step(request(1, 0, Want::Read)), Some(Reply::Waiting));
        assert_eq!(world.step(request(0, 1, Want::Write)), Some(Reply::Deadlock));
        assert_eq!(world.violations, [""; 0]);
    }
}

#[test]
fn a_reader_that_may_join_waits_for_no_writer_ahead() {
    // Owners: 0 and 1 read lock 0, 2 writes lock 1, 3 wants both.
    let mut world = World::new(Policy::PreferReaders, 2, &[0, 1, 2, 3, 2, 3]);
    for (client, place, want, reply) in [
        (0, 0, Want::Read, Reply::Held),
        (1, 0, Want::Read, Reply::Held),
        (2, 1, Want::Write, Reply::Held),
        (0, 0, Want::Upgrade, Reply::Waiting),
        (3, 0, Want::Write, Reply::Waiting),
        (4, 0, Want::Read, Reply::Waiting),
    ] {
        assert_eq!(world.step(request(client, place, want)), Some(reply), "{client}");
    }
    // The upgrade leaves. The queue is served later, when timers fire.
    world.step(Step::Leave(0));
    assert_eq!(world.step(request(5, 1, Want::Write)), Some(Reply::Waiting));
    world.step(Step::FireTimers);
    assert_eq!(world.violations, [""; 0]);
    assert_eq!(check(&world), Ok(()));
    assert_eq!(world.answers.last(), Some(&(3, Reply::Held)));
}

#[test]
fn a_panic_while_a_queue_is_served_loses_no_waiter() {
    let mut world = World::new(Policy::Fifo, 1, &[0, 1, 2]);
    assert_eq!(world.step(request(0, 0, Want::Write)), Some(Reply::Held));
    for client in [1, 2] {
        assert_eq!(world.step(request(client, 0, Want::Write)), Some(Reply::Waiting));
    }
    world.panics = true;
    let release = Step::Release { client: 0, place: 0, which: Which::All };
    let panicked = catch_unwind(AssertUnwindSafe(|| world.step(release)));
    assert!(panicked.is_err());
    assert_eq!(world.waits.len(), 2);
    assert_eq!(world.answers, []);
    // The next command that frees the lock does the same.
    wait::serve(&mut world, &0);
    assert_eq!(world.answers, [(1, Reply::Held)]);
    assert_eq!(check(&world), Ok(()));
}
