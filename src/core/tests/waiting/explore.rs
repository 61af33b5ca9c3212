//! Every history of a small world: three or four clients, two locks, whatever can
//! happen at every moment. It is finite, for nobody takes more holds of a kind
//! than a few, and the states that differ only in the numbers of their waiters
//! are one.

use super::rules;
use super::step::{Ask, Reply, Step};
use super::world::{name, Waiter, World};
use crate::core::wait;
use crate::core::{End, Holds, Kind, Policy, WaiterId, Want, Which};
use std::collections::{BTreeSet, HashSet};

const LOCKS: usize = 2;

/// What the clients may do.
struct Bounds {
    /// The owner that each client speaks for.
    owners: &'static [u8],
    /// How many holds of a kind an owner takes of a lock.
    holds: usize,
    /// The lock that writers reserve.
    reserved: Option<usize>,
    /// Whether all that they do is come to wait, and leave.
    only_waiting: bool,
}

/// All that matters of a world.
type State = Vec<u8>;

fn pack(world: &World) -> State {
    let mut state = Vec::with_capacity(24);
    for lock in &world.locks {
        state.push(u8::from(lock.due) << 4 | lock.reserved.map_or(0, |(by, _)| by + 1));
        for owner in 0..4 {
            let own = lock.holds.get(&owner);
            state.push(own.map_or(0, |own| (own.reads.len() as u8) << 4 | own.writes as u8));
        }
    }
    state.push(world.waits.to_search().iter().fold(0, |all, owner| all | 1 << owner[0]));
    for (_, waiter) in world.waiters() {
        state.push((waiter.client << 4 | waiter.place << 2) as u8 | waiter.want as u8);
    }
    state
}

fn unpack(state: &[u8], policy: Policy, owners: &[u8]) -> World {
    let mut world = World::new(policy, LOCKS, owners);
    let (locks, rest) = state.split_at(LOCKS * 5);
    for (lock, packed) in world.locks.iter_mut().zip(locks.chunks(5)) {
        lock.due = packed[0] >> 4 == 1;
        lock.reserved = (packed[0] & 15).checked_sub(1).map(|by| (by, End::Never));
        lock.end = Some(End::Never);
        for (owner, count) in (0u8..).zip(&packed[1..]).filter(|(_, count)| **count > 0) {
            let reads = (0..count >> 4).map(|_| End::Never).collect();
            lock.holds.insert(owner, Holds { reads, writes: u64::from(count & 15) });
        }
    }
    for packed in &rest[1..] {
        let want = [Want::Upgrade, Want::Read, Want::Write][(packed & 3) as usize];
        let (client, place) = ((packed >> 4) as usize, (packed >> 2 & 3) as usize);
        let owner = owners[client];
        let (once, lease, until) = (false, None, None);
        let request = Waiter { client, owner, place, want, once, lease, until };
        world.waits.add(wait::Waiter::new(name(owner), place, want, request));
    }
    let lost = (0..4).filter(|owner| rest[0] & 1 << owner != 0);
    world.waits.set_to_search(lost.map(name).collect());
    world
}

/// What can happen now.
fn steps(world: &World, bounds: &Bounds) -> Vec<Step> {
    let mut steps = vec![Step::Ring];
    if bounds.only_waiting {
        steps.extend(comings_and_goings(world));
        return steps;
    }
    for place in 0..LOCKS {
        steps.push(Step::Force(place));
        if world.locks[place].reserved.is_some() {
            steps.push(Step::ReservationEnds(place));
        }
        steps.extend(world.locks[place].holds.keys().map(|&owner| Step::Lapse { owner, place }));
    }
    for client in 0..bounds.owners.len() {
        if world.waits(client).is_some() {
            steps.extend([Step::TimeOut(client), Step::Leave(client)]);
            continue;
        }
        for place in 0..LOCKS {
            let own = world.locks[place].holds.get(&world.owners[client]);
            let (reads, writes) = own.map_or((0, 0), |own| (own.reads.len(), own.writes as usize));
            for want in [Want::Read, Want::Write, Want::Upgrade] {
                let held = if want == Want::Read { reads } else { writes };
                for block in [None, Some(0)].into_iter().filter(|_| held < bounds.holds) {
                    let (once, lease, reserve) = (false, None, None);
                    let ask = Ask { client, place, want, once, lease, block, reserve };
                    steps.push(Step::Ask(ask));
                    let may_reserve = bounds.reserved == Some(place);
                    if may_reserve && block.is_none() && want == Want::Write {
                        steps.push(Step::Ask(Ask { reserve: Some(1), ..ask }));
                    }
                }
            }
            if own.is_some() {
                let one = |kind| Which::One(kind);
                for which in [Which::All, one(Kind::Read), one(Kind::Write)] {
                    steps.push(Step::Release { client, place, which });
                }
                steps.push(Step::Downgrade { client, place, lease: None });
            }
        }
    }
    steps
}

/// Who waits may leave; who does not may begin to wait for what it does not hold.
fn comings_and_goings(world: &World) -> Vec<Step> {
    let mut steps = Vec::new();
    for client in 0..world.owners.len() {
        if world.waits(client).is_some() {
            steps.push(Step::Leave(client));
            continue;
        }
        for place in 0..LOCKS {
            let own = world.locks[place].holds.get(&world.owners[client]);
            let wants: &[Want] = match own {
                None => &[Want::Read, Want::Write],
                Some(own) if own.writes == 0 => &[Want::Upgrade],
                Some(_) => &[],
            };
            let (once, lease, block, reserve) = (false, None, Some(0), None);
            let ask = |want| Ask { client, place, want, once, lease, block, reserve };
            steps.extend(wants.iter().map(|want| Step::Ask(ask(*want))));
        }
    }
    steps
}

/// Everybody who waited and does not wait any more was told so, once.
fn check_answers(
    before: &BTreeSet<WaiterId>,
    reply: Option<Reply>,
    after: &World,
) -> Result<(), String> {
    let waits: BTreeSet<WaiterId> = after.waiters().map(|(id, _)| id).collect();
    let mut told: Vec<WaiterId> = after.answers.iter().map(|(id, _)| *id).collect();
    told.sort_unstable();
    let gone: Vec<WaiterId> = before.difference(&waits).copied().collect();
    let came = waits.difference(before).count();
    if told != gone || came != usize::from(reply == Some(Reply::Waiting)) {
        return Err(format!("told {told:?}, gone {gone:?}, {came} came, reply {reply:?}"));
    }
    Ok(())
}

/// Goes through all states, from one in which these owners hold these locks;
/// gives back how many there are.
fn explore(policy: Policy, bounds: &Bounds, held: &[(usize, u8, Kind)]) -> usize {
    let mut world = World::new(policy, LOCKS, bounds.owners);
    for (place, owner, kind) in held {
        let lock = &mut world.locks[*place];
        let own = lock.holds.entry(*owner).or_default();
        match kind {
            Kind::Read => own.reads.push(End::Never),
            Kind::Write => own.writes += 1,
        }
        lock.end = Some(End::Never);
    }
    let start = pack(&world);
    let mut states = vec![(start.clone(), 0, Step::Ring)];
    let mut known: HashSet<State> = HashSet::from([start]);
    let mut at = 0;
    while at < states.len() {
        let world = unpack(&states[at].0, policy, bounds.owners);
        let before: BTreeSet<WaiterId> = world.waiters().map(|(id, _)| id).collect();
        for step in steps(&world, bounds) {
            let mut world = unpack(&states[at].0, policy, bounds.owners);
            let reply = world.step(step);
            let checked = match world.wrongs.pop() {
                Some(wrong) => Err(wrong),
                None => rules::check(&world),
            };
            if let Err(wrong) = checked.and_then(|()| check_answers(&before, reply, &world)) {
                panic!("{policy:?}: {wrong}\n{}", trace(&states, at, step));
            }
            let state = pack(&world);
            if known.insert(state.clone()) {
                states.push((state, at, step));
            }
        }
        at += 1;
    }
    states.len()
}

/// How a state came about, by the shortest way.
fn trace(states: &[(State, usize, Step)], mut at: usize, last: Step) -> String {
    let mut steps = vec![last];
    while at > 0 {
        steps.push(states[at].2);
        at = states[at].1;
    }
    steps.iter().rev().map(|step| format!("  {step:?}\n")).collect()
}

/// All policies, with the states that there were when this was written: far
/// fewer would mean that it explores less.
fn explore_all(bounds: &Bounds, states: [usize; 3]) {
    let policies = [Policy::Fifo, Policy::PreferReaders, Policy::PreferWriters];
    for (policy, states) in policies.into_iter().zip(states) {
        let found = explore(policy, bounds, &[]);
        assert!(found >= states / 10 * 9, "{policy:?}: {found} states, there were {states}");
    }
}

#[test]
fn three_owners_and_two_locks_keep_the_rules_whatever_happens() {
    let bounds = Bounds { owners: &[0, 1, 2], holds: 1, reserved: None, only_waiting: false };
    explore_all(&bounds, [29_775, 29_355, 30_099]);
}

#[test]
fn two_clients_of_one_owner_and_a_third_keep_the_rules_whatever_happens() {
    let bounds = Bounds { owners: &[0, 0, 1], holds: 2, reserved: None, only_waiting: false };
    explore_all(&bounds, [40_236, 38_540, 31_544]);
}

#[test]
fn those_who_reserve_keep_the_rules_whatever_happens() {
    let bounds = Bounds { owners: &[0, 0, 1], holds: 1, reserved: Some(0), only_waiting: false };
    explore_all(&bounds, [40_836, 40_918, 36_000]);
}

#[test]
fn whoever_comes_and_goes_exactly_those_who_close_circles_are_told() {
    use Kind::{Read, Write};
    use Policy::{Fifo, PreferReaders, PreferWriters};
    // Owners 0 and 1 have several clients, 2 has none.
    let several: &[u8] = &[0, 0, 0, 1];
    explore_crowd(several, &[(0, 2, Write), (1, 1, Read)], &[PreferWriters], 26_000);
    let all = &[Fifo, PreferReaders, PreferWriters];
    explore_crowd(&[0, 0, 1, 1], &[(0, 1, Read), (0, 2, Read), (1, 0, Write)], all, 880);
    explore_crowd(&[0, 0, 1, 3], &[(0, 2, Write), (1, 0, Read), (1, 3, Read)], all, 9_300);
}

fn explore_crowd(
    owners: &'static [u8],
    held: &[(usize, u8, Kind)],
    policies: &[Policy],
    states: usize,
) {
    let bounds = Bounds { owners, holds: 1, reserved: None, only_waiting: true };
    for policy in policies {
        let found = explore(*policy, &bounds, held);
        assert!(found >= states, "{policy:?}: {found} states, there were {states}");
    }
}
