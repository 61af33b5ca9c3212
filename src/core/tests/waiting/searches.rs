//! Searches for circles that are not needed, and not made: each reads locks.

use super::step::{Reply, Request, Step};
use super::world::{name, World};
use crate::core::wait::circle_through;
use crate::core::{Policy, Want, Which};

fn request(client: usize, place: usize, want: Want) -> Request {
    let (once, lease, block, reserve, second) = (false, None, Some(0), None, None);
    Request { client, place, want, second, once, lease, block, reserve }
}

/// A request for the locks 0 and 1.
fn joint(client: usize, want: Want) -> Request {
    Request { second: Some((1, want)), ..request(client, 0, want) }
}

fn hold(world: &mut World, client: usize, place: usize, want: Want) {
    let held = world.step(Step::Acquire(request(client, place, want)));
    assert_eq!(held, Some(Reply::Held));
}

/// Whether a lock is read for a search when this request begins to wait.
fn searches(world: &mut World, request: Request) -> bool {
    let before = world.searched.get();
    assert_eq!(world.step(Step::Acquire(request)), Some(Reply::Waiting));
    world.searched.get() > before
}

#[test]
fn no_search_while_only_one_lock_has_waiters_and_they_hold_nothing() {
    let mut world = World::new(Policy::Fifo, 2, &[0, 1, 2, 3, 2, 0]);
    hold(&mut world, 0, 0, Want::Read);
    hold(&mut world, 1, 0, Want::Read);
    assert!(!searches(&mut world, request(2, 0, Want::Write)));
    assert!(!searches(&mut world, request(3, 0, Want::Read)));
    // Owner 2 waits for another kind of hold as well, owner 0 holds the lock.
    assert!(searches(&mut world, request(4, 0, Want::Read)));
    world.step(Step::Leave(4));
    world.step(Step::FireTimers);
    assert!(searches(&mut world, request(5, 0, Want::Upgrade)));
}

#[test]
fn no_search_for_an_owner_that_is_alone() {
    let mut world = World::new(Policy::Fifo, 2, &[0, 1, 1]);
    hold(&mut world, 0, 0, Want::Write);
    hold(&mut world, 0, 1, Want::Write);
    assert!(!searches(&mut world, request(1, 0, Want::Write)));
    assert!(!searches(&mut world, request(2, 1, Want::Write)));
    let before = world.searched.get();
    assert_eq!(circle_through(&world, &name(0)), None);
    assert_eq!(world.searched.get(), before);
}

/// Owner 0 holds locks 0 and 1, for which joint waiters wait. Owner 3 holds lock 2.
fn beside_joint_waiters(policy: Policy) -> World {
    let mut world = World::new(policy, 3, &[0, 1, 2, 3, 4, 5]);
    hold(&mut world, 0, 0, Want::Write);
    hold(&mut world, 0, 1, Want::Write);
    hold(&mut world, 3, 2, Want::Write);
    // With joint waiters each search would visit all waiters ahead.
    assert!(!searches(&mut world, joint(1, Want::Write)));
    assert!(!searches(&mut world, joint(2, Want::Read)));
    world
}

#[test]
fn no_search_beside_joint_waiters_for_an_owner_that_nobody_waits_for() {
    let mut world = beside_joint_waiters(Policy::Fifo);
    // Nobody waits for lock 2 yet.
    assert!(!searches(&mut world, request(3, 0, Want::Read)));
    world.step(Step::Leave(3));
    // Now a client does.
    assert!(!searches(&mut world, request(4, 2, Want::Write)));
    assert!(searches(&mut world, request(3, 0, Want::Read)));
    world.step(Step::Leave(3));
    // A second one waits for lock 2. So the lock has waiters when the first has it.
    assert!(!searches(&mut world, request(5, 2, Want::Write)));
    world.step(Step::Release { client: 3, place: 2, which: Which::All });
    assert_eq!(world.answers.last().map(|(_, reply)| *reply), Some(Reply::Held));
    assert!(!searches(&mut world, request(3, 0, Want::Read)));
    assert!(searches(&mut world, request(4, 0, Want::Read)));
    world.step(Step::Leave(4));
    // The last waiter of lock 2 leaves.
    world.step(Step::Leave(5));
    assert!(!searches(&mut world, request(4, 0, Want::Read)));
    assert_eq!(world.violations, [""; 0]);
}

#[test]
fn a_search_for_a_writer_that_goes_ahead_of_readers() {
    for policy in [Policy::Fifo, Policy::PreferWriters] {
        let mut world = beside_joint_waiters(policy);
        let goes_ahead = policy == Policy::PreferWriters;
        assert_eq!(searches(&mut world, request(4, 0, Want::Write)), goes_ahead);
    }
}
