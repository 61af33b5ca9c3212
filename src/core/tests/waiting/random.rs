//! Long random histories: eight clients, three locks.

use super::history::{keeps_the_rules, LOCKS};
use super::step::{Request, Step};
use crate::core::tests::sized;
use crate::core::{Kind, Policy, Want, Which};
use proptest::prelude::*;

const CLIENTS: usize = 8;
/// The owner of each client: owners 0 and 1 have more than one client.
const OWNERS: [u8; CLIENTS] = [0, 1, 2, 3, 4, 0, 1, 0];

fn request() -> impl Strategy<Value = Step> {
    let want = prop_oneof![4 => Just(Want::Read), 4 => Just(Want::Write), 1 => Just(Want::Upgrade)];
    let block = prop_oneof![2 => Just(None), 4 => Just(Some(0)), 1 => (1..60i64).prop_map(Some)];
    let lease = prop_oneof![3 => 100..500i64, 1 => 1..60i64].prop_map(Some);
    let reserve = prop_oneof![5 => Just(None), 1 => (1..60i64).prop_map(Some)];
    let other = prop_oneof![Just(Want::Read), Just(Want::Write)];
    let other = prop::option::weighted(0.3, (1..LOCKS, other));
    let places = (0..LOCKS, want, other);
    (0..CLIENTS, places, prop::bool::weighted(0.2), lease, block, reserve).prop_map(
        |(client, (place, want, other), once, lease, block, reserve)| {
            let second = other.filter(|_| want != Want::Upgrade);
            let second = second.map(|(next, want)| ((place + next) % LOCKS, want));
            let alone = want == Want::Write && block.is_none() && second.is_none();
            let reserve = reserve.filter(|_| alone);
            Step::Acquire(Request { client, place, want, second, once, lease, block, reserve })
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let (client, place) = (|| 0..CLIENTS, || 0..LOCKS);
    let lease = || (1..100i64).prop_map(Some);
    let which = prop_oneof![
        3 => Just(Which::Any),
        1 => Just(Which::One(Kind::Read)),
        1 => Just(Which::One(Kind::Write)),
        2 => Just(Which::All)
    ];
    prop_oneof![
        12 => request(),
        6 => (client(), place(), which)
            .prop_map(|(client, place, which)| Step::Release { client, place, which }),
        1 => (client(), place(), lease())
            .prop_map(|(client, place, lease)| Step::Downgrade { client, place, lease }),
        1 => (client(), place(), lease())
            .prop_map(|(client, place, lease)| Step::Renew { client, place, lease }),
        1 => place().prop_map(Step::Force),
        2 => client().prop_map(Step::Leave),
        2 => (1..50i64).prop_map(Step::Elapse),
        3 => Just(Step::FireTimers),
    ]
}

/// A step for two held locks: clients mostly begin to wait and leave. So queues are long, and
/// most owners wait in more than one place.
fn crowded_step() -> impl Strategy<Value = Step> {
    let want = prop_oneof![Just(Want::Read), Just(Want::Write)];
    let second = prop::option::weighted(0.3, want.clone());
    let wait =
        (0..CLIENTS, 0..2usize, want, second).prop_map(|(client, place, want, second)| match wait(
            client, place, want,
        ) {
            Step::Acquire(request) => {
                let second = second.map(|want| (1 - place, want));
                Step::Acquire(Request { second, ..request })
            }
            step => step,
        });
    let leave = (0..CLIENTS).prop_map(Step::Leave);
    prop_oneof![12 => wait, 4 => leave, 2 => Just(Step::FireTimers), 1 => step()]
}

fn wait(client: usize, place: usize, want: Want) -> Step {
    let (once, lease, block, reserve) = (false, Some(100_000), Some(0), None);
    let second = None;
    Step::Acquire(Request { client, place, want, second, once, lease, block, reserve })
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::Fifo), Just(Policy::PreferReaders), Just(Policy::PreferWriters)]
}

fn keep_the_rules(policy: Policy, owners: &[u8], steps: Vec<Step>) -> Result<(), TestCaseError> {
    keeps_the_rules(policy, owners, steps).map_err(TestCaseError::fail)
}

fn config() -> ProptestConfig {
    let config = ProptestConfig::default();
    let cases = sized(config.cases.max(10_000) as usize) as u32;
    ProptestConfig {
        cases,
        max_shrink_iters: sized(50_000) as u32,
        failure_persistence: None,
        ..config
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_rules_are_kept_and_each_waiter_is_answered_once(
        policy in policy(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        keep_the_rules(policy, &OWNERS, steps)?;
    }

    #[test]
    fn in_long_queues_the_rules_are_kept_and_each_waiter_is_answered_once(
        policy in policy(),
        steps in prop::collection::vec(crowded_step(), 1..60),
    ) {
        let held = (0..2).map(|place| wait(place, place, Want::Write));
        keep_the_rules(policy, &[0, 1, 2, 3, 4, 2, 3, 4], held.chain(steps).collect())?;
    }
}
