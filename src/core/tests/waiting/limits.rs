//! Requests that may not wait, and the settings about it: `max-waiters`, `deadlock-detection`.

use super::circles;
use super::rules::check;
use super::step::{Reply, Request, Step};
use super::world::{listed, name, Client, Place, Waiter, World};
use crate::core::wait::{self, circle_through, suspects, Denied, Holder};
use crate::core::{Policy, WaiterId, Want};

/// Begins to wait, whatever the rules of granting say.
fn enter(world: &mut World, client: Client, place: Place, want: Want) -> Result<WaiterId, Denied> {
    let (once, lease, until, second) = (false, None, None, None);
    let owner = world.owners[client];
    let waiter = Waiter { client, owner, place, want, second, once, lease, until };
    let snapshot = world.snapshot(place, owner);
    wait::enter(world, &[snapshot], listed(waiter)).map_err(|rejected| {
        assert_eq!(rejected.waiter.request.client, client, "the request comes back");
        rejected.why
    })
}

fn hold(world: &mut World, client: Client, place: Place, want: Want) {
    let (once, lease, block, reserve, second) = (false, None, None, None, None);
    let request = Request { client, place, want, second, once, lease, block, reserve };
    assert_eq!(world.step(Step::Acquire(request)), Some(Reply::Held));
}

#[test]
fn there_are_at_most_as_many_waiters_as_the_setting_says() {
    let mut world = World::new(Policy::Fifo, 2, &[0, 1, 2, 3, 4]);
    hold(&mut world, 0, 0, Want::Write);
    hold(&mut world, 0, 1, Want::Write);
    world.waits.rules.max_waiters = 2;
    let first = enter(&mut world, 1, 0, Want::Write).unwrap();
    // They count over all locks.
    assert!(enter(&mut world, 2, 1, Want::Read).is_ok());
    assert_eq!(enter(&mut world, 3, 0, Want::Read), Err(Denied::TooManyWaiters));
    assert_eq!(world.waits.len(), 2);
    world.leave(first, Reply::Removed);
    assert!(enter(&mut world, 3, 0, Want::Read).is_ok());
    assert_eq!(enter(&mut world, 4, 0, Want::Read), Err(Denied::TooManyWaiters));
    world.waits.rules.max_waiters = 0;
    assert!(enter(&mut world, 4, 0, Want::Read).is_ok());
}

#[test]
fn an_owner_that_reads_does_not_wait_to_write() {
    for detection in [true, false] {
        let mut world = World::new(Policy::Fifo, 1, &[0, 1, 0]);
        world.waits.rules.deadlock_detection = detection;
        hold(&mut world, 0, 0, Want::Read);
        hold(&mut world, 1, 0, Want::Read);
        let itself = Denied::Deadlock(vec![name(0)]);
        assert_eq!(enter(&mut world, 2, 0, Want::Write), Err(itself));
        assert!(enter(&mut world, 2, 0, Want::Upgrade).is_ok());
    }
}

#[test]
fn an_owner_does_not_wait_to_upgrade_beside_another() {
    for detection in [true, false] {
        let mut world = World::new(Policy::Fifo, 2, &[0, 1, 0]);
        world.waits.rules.deadlock_detection = detection;
        for place in [0, 1] {
            hold(&mut world, 0, place, Want::Read);
            hold(&mut world, 1, place, Want::Read);
        }
        assert!(enter(&mut world, 0, 0, Want::Upgrade).is_ok());
        assert_eq!(enter(&mut world, 1, 0, Want::Upgrade), Err(Denied::OtherUpgrade(name(0))));
        // Two clients of one owner may.
        assert!(enter(&mut world, 2, 0, Want::Upgrade).is_ok());
    }
}

/// Owner 0 holds lock 0, owner 1 holds lock 1, and each waits for the other.
fn circle() -> World {
    let mut world = World::new(Policy::Fifo, 2, &[0, 1, 0, 1]);
    world.waits.rules.deadlock_detection = false;
    hold(&mut world, 0, 0, Want::Write);
    hold(&mut world, 1, 1, Want::Write);
    assert!(enter(&mut world, 2, 1, Want::Write).is_ok());
    assert!(enter(&mut world, 3, 0, Want::Write).is_ok());
    assert!(circles::exist(&world));
    world
}

#[test]
fn no_circle_is_searched_for_when_the_setting_says_so() {
    let mut world = circle();
    assert_eq!(circle_through(&world, &name(0)), None);
    world.waits.rules.deadlock_detection = true;
    let found = circle_through(&world, &name(0)).unwrap();
    assert_eq!((found.owners, found.youngest), (vec![name(0), name(1)], 2));
}

#[test]
fn no_circle_is_searched_for_until_the_queues_were_served_after_a_change_of_a_setting() {
    let mut world = circle();
    world.waits.rules.deadlock_detection = true;
    world.waits.needs_search = true;
    assert_eq!(circle_through(&world, &name(0)), None);
    world.waits.needs_search = false;
    assert!(circle_through(&world, &name(0)).is_some());
}

#[test]
fn all_circles_are_found_when_detection_is_switched_on() {
    // Owners 0 and 1 wait for each other. So do 2, which waits in two places, and 3.
    let mut world = World::new(Policy::Fifo, 4, &[0, 1, 2, 3, 0, 1, 2, 2, 3, 3]);
    world.waits.rules.deadlock_detection = false;
    hold(&mut world, 0, 0, Want::Write);
    hold(&mut world, 1, 1, Want::Write);
    hold(&mut world, 2, 2, Want::Write);
    hold(&mut world, 3, 3, Want::Write);
    for (client, place) in [(4, 1), (5, 0), (6, 3), (7, 1), (8, 2), (9, 0)] {
        enter(&mut world, client, place, Want::Read).unwrap();
    }
    world.waits.rules.deadlock_detection = true;
    let mut broken = 0;
    for owner in suspects(&world) {
        while let Some(circle) = circle_through(&world, &owner) {
            assert_eq!(circle.owners[0], owner);
            world.leave(circle.youngest, Reply::Deadlock);
            world.step(Step::FireTimers);
            broken += 1;
        }
    }
    assert_eq!(broken, 2);
    assert_eq!(check(&world), Ok(()));
}

#[test]
fn all_waiters_of_a_key_that_is_no_lock_get_the_error() {
    // Clients 1 and 2 wait for lock 0, client 3 for both locks, client 4 behind it.
    let mut world = World::new(Policy::Fifo, 2, &[0, 1, 2, 3, 4]);
    hold(&mut world, 0, 0, Want::Write);
    let wait = |client, place, want, second| {
        let (once, lease, block, reserve) = (false, None, Some(0), None);
        Step::Acquire(Request { client, place, want, second, once, lease, block, reserve })
    };
    for step in [
        wait(1, 0, Want::Write, None),
        wait(2, 0, Want::Read, None),
        wait(3, 0, Want::Write, Some((1, Want::Write))),
        wait(4, 1, Want::Write, None),
    ] {
        assert_eq!(world.step(step), Some(Reply::Waiting));
    }
    world.locks[0].is_no_lock = true;
    world.waits.set_holder(&0, Holder::Anybody);
    wait::serve(&mut world, &0);
    let failed = [1, 2, 3].map(|id| (id, Reply::WrongType));
    assert_eq!(world.answers, failed);
    // Nobody stands before client 4 any more.
    world.step(Step::FireTimers);
    assert_eq!(world.answers[3..], [(4, Reply::Held)]);
    assert!(world.waits.is_empty());
}
