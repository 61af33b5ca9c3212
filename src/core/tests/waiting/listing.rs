//! What is told of the waiters: their number and order, and what stands in their way.

use super::step::{Reply, Request, Step};
use super::world::{listed, name, Waiter, World};
use crate::core::wait::{Holder, WaitList};
use crate::core::{Joint, Policy, WaiterId, Want, Which};
use proptest::prelude::*;

/// The owner that holds the lock. It does not wait.
const HOLDER: usize = 0;
const CLIENTS: usize = 7;

fn request(client: usize, place: usize, want: Want) -> Request {
    let (once, lease, block, reserve, second) = (false, None, Some(0), None, None);
    Request { client, place, want, second, once, lease, block, reserve }
}

/// A write-held lock with a waiter of each of these owners. `reserved`: the client that has
/// reserved it.
fn queue(policy: Policy, wants: &[Want], reserved: Option<usize>) -> World {
    let owners: Vec<u8> = (0..CLIENTS as u8).collect();
    let mut world = World::new(policy, 2, &owners);
    let held = world.step(Step::Acquire(request(HOLDER, 0, Want::Write)));
    assert_eq!(held, Some(Reply::Held));
    if let Some(client) = reserved {
        let request = request(client, 0, Want::Write);
        let request = Request { block: None, reserve: Some(1_000), ..request };
        assert_eq!(world.step(Step::Acquire(request)), Some(Reply::Refused));
    }
    for (client, want) in (1..).zip(wants) {
        let waits = world.step(Step::Acquire(request(client, 0, *want)));
        assert_eq!(waits, Some(Reply::Waiting));
    }
    world
}

fn wants() -> impl Strategy<Value = Vec<Want>> {
    let want = prop_oneof![Just(Want::Read), Just(Want::Write)];
    prop::collection::vec(want, 1..CLIENTS)
}

/// The order in which the waiters get the lock, if each holder gives it back.
fn order(mut world: World) -> Vec<WaiterId> {
    let mut holder = HOLDER;
    for turn in 0.. {
        let which = Which::All;
        world.step(Step::Release { client: holder, place: 0, which });
        if world.answers.len() == turn {
            // The owner that has reserved the lock does not come.
            world.step(Step::Elapse(10_000));
            world.step(Step::FireTimers);
        }
        match world.answers.get(turn) {
            // Waiters are numbered from 1 here, like the clients.
            Some((id, reply)) => {
                assert_eq!(*reply, Reply::Held);
                holder = *id as usize;
            }
            None => break,
        }
    }
    assert!(world.waits.is_empty());
    world.answers.iter().map(|(id, _)| *id).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn waiters_are_listed_in_the_order_of_service(
        policy in prop_oneof![Just(Policy::Fifo), Just(Policy::PreferWriters)],
        wants in wants(),
        reserved in prop::option::of(1..CLIENTS),
    ) {
        let world = queue(policy, &wants, reserved);
        let by = reserved.map(|client| name(client as u8));
        let listed = world.waits.queue(&0).unwrap().in_order(policy, by.as_deref());
        for (id, want, owner) in &listed {
            let waiter = world.waits.get(*id).unwrap();
            prop_assert_eq!((&waiter.owner, waiter.request.want), (owner, *want));
        }
        let listed: Vec<WaiterId> = listed.into_iter().map(|(id, ..)| id).collect();
        prop_assert_eq!(listed, order(world));
    }

    /// RWLOCK.LOG tells this of a waiter that has just come.
    #[test]
    fn what_is_ahead_of_the_last_waiter_is_listed_before_it(
        policy in prop_oneof![Just(Policy::Fifo), Just(Policy::PreferWriters)],
        wants in wants(),
        limit in 0..5_usize,
    ) {
        let world = queue(policy, &wants, None);
        let queue = world.waits.queue(&0).unwrap();
        let (last, want) = (wants.len() as WaiterId, *wants.last().unwrap());
        // Readers get in together.
        let holds_up = |other: Want| want == Want::Write || other == Want::Write;
        let listed = queue.in_order(policy, None).into_iter();
        let ahead = listed.take_while(|(id, ..)| *id != last);
        let ahead = ahead.filter(|(_, other, _)| holds_up(*other));
        let ahead: Vec<_> = ahead.map(|(_, other, owner)| (other, owner)).take(limit).collect();
        prop_assert_eq!(queue.ahead(last, want, policy, limit), ahead);
    }

    #[test]
    fn all_waiters_are_counted_and_found(wants in wants(), others in wants()) {
        let mut world = queue(Policy::Fifo, &wants, None);
        let count = wants.len();
        let queue = world.waits.queue(&0).unwrap();
        prop_assert_eq!((queue.len(), queue.first_arrival()), (count, Some(1)));
        prop_assert_eq!(world.waits.len(), count);
        let ids: Vec<WaiterId> = (1..=count as WaiterId).collect();
        prop_assert_eq!(world.waits.ids().collect::<Vec<_>>(), ids);
        prop_assert_eq!(world.waits.locks().collect::<Vec<_>>(), [&0]);
        prop_assert_eq!((world.waits.lock(&0), world.waits.lock(&1)), (Some(0), None));
        // The first leaves, and others come.
        world.step(Step::Leave(1));
        world.step(Step::FireTimers);
        let left = world.waits.queue(&0).map(|queue| (queue.len(), queue.first_arrival()));
        prop_assert_eq!(left, (count > 1).then_some((count - 1, Some(2))));
        prop_assert_eq!(world.waits.first(), (count > 1).then_some(2));
        prop_assert_eq!(world.waits.queue_count(), usize::from(count > 1));
        for (client, want) in (count + 1..CLIENTS).zip(others) {
            world.step(Step::Acquire(request(client, 0, want)));
        }
        prop_assert_eq!(world.waits.len(), world.waits.ids().count());
        prop_assert_eq!(world.waits.is_empty(), world.waits.ids().next().is_none());
    }
}

#[test]
fn an_upgrade_is_listed_first_and_ahead_of_all() {
    for policy in [Policy::Fifo, Policy::PreferReaders, Policy::PreferWriters] {
        let mut world = World::new(policy, 1, &[0, 1, 2, 3]);
        for client in [0, 1] {
            let held = world.step(Step::Acquire(request(client, 0, Want::Read)));
            assert_eq!(held, Some(Reply::Held));
        }
        // Waiters 1 to 3.
        for (client, want) in [(2, Want::Write), (1, Want::Upgrade), (3, Want::Read)] {
            let waits = world.step(Step::Acquire(request(client, 0, want)));
            assert_eq!(waits, Some(Reply::Waiting));
        }
        let queue = world.waits.queue(&0).unwrap();
        assert_eq!(queue.len(), 3);
        assert_eq!(queue.first_arrival(), Some(1));
        let listed = queue.in_order(policy, Some(name(2).as_ref()));
        let listed: Vec<WaiterId> = listed.into_iter().map(|(id, ..)| id).collect();
        assert_eq!(listed, [2, 1, 3]);
        let ahead = |id, want, limit| {
            let ahead = queue.ahead(id, want, policy, limit).into_iter();
            ahead.map(|(want, owner)| (want, owner[0])).collect::<Vec<_>>()
        };
        assert_eq!(ahead(1, Want::Write, 8), [(Want::Upgrade, 1)]);
        assert_eq!(ahead(2, Want::Upgrade, 8), []);
        assert_eq!(ahead(3, Want::Read, 8), [(Want::Upgrade, 1), (Want::Write, 2)]);
        assert_eq!(ahead(3, Want::Read, 1), [(Want::Upgrade, 1)]);
    }
}

#[test]
fn a_joint_reader_that_writes_elsewhere_is_listed_among_the_writers() {
    let listed = |policy| {
        let mut world = queue(policy, &[Want::Read, Want::Write], None);
        let joint = Request { second: Some((1, Want::Write)), ..request(3, 0, Want::Read) };
        for request in [joint, request(4, 0, Want::Write)] {
            assert_eq!(world.step(Step::Acquire(request)), Some(Reply::Waiting));
        }
        let queue = world.waits.queue(&0).unwrap();
        let listed = queue.in_order(policy, None).into_iter().map(|(id, ..)| id);
        let ahead = queue.ahead(3, Want::Read, policy, 8);
        (listed.collect::<Vec<_>>(), ahead)
    };
    let ahead = vec![(Want::Write, name(2))];
    assert_eq!(listed(Policy::Fifo), (vec![1, 2, 3, 4], ahead.clone()));
    assert_eq!(listed(Policy::PreferWriters), (vec![2, 3, 4, 1], ahead));
}

#[test]
fn the_list_knows_who_may_hold_a_lock_with_waiters() {
    let mut waits: WaitList<usize, Waiter> = WaitList::default();
    let (client, owner, place, want) = (1, 1, 0, Want::Write);
    let (second, once, lease, until) = (None, false, None, None);
    let id = waits.add(listed(Waiter { client, owner, place, want, second, once, lease, until }));
    let known = |waits: &WaitList<usize, Waiter>| {
        let queue = waits.queue(&0).unwrap();
        (queue.knows_holder(), queue.only_holder().cloned())
    };
    // Until it is told.
    assert_eq!(known(&waits), (false, None));
    waits.set_holder(&0, Holder::Only(name(5)));
    assert_eq!(known(&waits), (true, Some(name(5))));
    waits.set_holder(&0, Holder::Nobody);
    assert_eq!(known(&waits), (true, None));
    waits.set_holder(&0, Holder::Anybody);
    assert_eq!(known(&waits), (false, None));
    waits.request_mut(id).unwrap().until = Some(7);
    assert_eq!(waits.get(id).unwrap().request.until, Some(7));
    assert!(waits.request_mut(id + 1).is_none());
    assert_eq!(Joint::of(&waits.get(id).unwrap().places), Joint::No);
}
