//! What the list of waiters knows besides the waiters: kept step by step, it must be what a look at
//! all of them shows.

use crate::core::wait::{Place, WaitList, Waiter, Want};
use crate::core::{OwnerId, WaiterId};
use proptest::prelude::*;
use std::collections::BTreeSet;

type List = WaitList<u8, ()>;

fn owner(number: u8) -> OwnerId {
    OwnerId::from([number].as_slice())
}

fn want() -> impl Strategy<Value = Want> {
    prop_oneof![Just(Want::Read), Just(Want::Write), Just(Want::Upgrade)]
}

/// A waiter of one of three owners for one to three of three locks.
fn waiter() -> impl Strategy<Value = Waiter<u8, ()>> {
    (0..3_u8, prop::collection::btree_map(0..3_u8, want(), 1..4)).prop_map(|(number, places)| {
        let places = places.into_iter().map(|(lock, want)| Place { lock, want }).collect();
        Waiter { owner: owner(number), places, request: () }
    })
}

/// Adds a waiter, or removes the one of this index.
fn step() -> impl Strategy<Value = Result<Waiter<u8, ()>, prop::sample::Index>> {
    prop_oneof![waiter().prop_map(Ok), any::<prop::sample::Index>().prop_map(Err)]
}

fn check(list: &List) {
    let all: Vec<_> = list.iter().collect();
    assert_eq!(list.has_joint(), all.iter().any(|(_, waiter)| waiter.places.len() > 1));
    let locks: BTreeSet<u8> =
        all.iter().flat_map(|(_, w)| w.places.iter().map(|place| place.lock)).collect();
    assert_eq!(list.locks().copied().collect::<BTreeSet<_>>(), locks);
    for number in 0..3 {
        let owner = owner(number);
        let own: Vec<_> = all.iter().filter(|(_, waiter)| waiter.owner == owner).collect();
        assert_eq!(list.of_owner(&owner).count(), own.len());
        assert_eq!(list.owner(&owner), (!own.is_empty()).then_some(&owner));
        let places: BTreeSet<&Place<u8>> = own.iter().flat_map(|(_, w)| &w.places).collect();
        assert_eq!(list.in_many_places().contains(&owner), places.len() > 1, "{places:?}");
    }
}

proptest! {
    #[test]
    fn it_knows_what_the_waiters_show(steps in prop::collection::vec(step(), 0..30)) {
        let mut list = List::default();
        for step in steps {
            match step {
                Ok(waiter) => _ = list.add(waiter),
                Err(index) if !list.is_empty() => {
                    let ids: Vec<WaiterId> = list.ids().collect();
                    let _ = list.remove(ids[index.index(ids.len())]);
                }
                Err(_) => {}
            }
            check(&list);
        }
    }
}
