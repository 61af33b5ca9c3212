//! Every history of a small world with three or four clients and two locks: from each state
//! every possible step is tried. The number of states is finite, because holds are limited,
//! and states that differ only in the numbers of their waiters count as one.

use super::rules;
use super::step::{Reply, Request, Step};
use super::world::{listed, name, Waiter, World};
use crate::core::tests::sized;
use crate::core::{End, Holds, Kind, Policy, WaiterId, Want, Which};
use std::collections::{BTreeSet, HashSet};

const LOCKS: usize = 2;

const POLICIES: [Policy; 3] = [Policy::Fifo, Policy::PreferReaders, Policy::PreferWriters];

/// The limits of a world.
struct Bounds {
    /// The owner that each client speaks for.
    owners: &'static [u8],
    /// How many holds of each kind an owner takes on a lock.
    holds: usize,
    /// The lock that writers reserve; None: none.
    reserved: Option<usize>,
    /// Whether clients only begin to wait and leave.
    only_waiting: bool,
    /// Whether clients also ask for both locks in one step.
    joint: bool,
}

/// A world in packed form: all that the rules depend on.
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
        // The second place of a joint waiter is always the second lock.
        state.push(waiter.second.map_or(0, |(_, want)| 1 + want as u8));
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
    for packed in rest[1..].chunks(2) {
        let want_of = |bits: u8| [Want::Upgrade, Want::Read, Want::Write][usize::from(bits)];
        let want = want_of(packed[0] & 3);
        let (client, place) = ((packed[0] >> 4) as usize, (packed[0] >> 2 & 3) as usize);
        let second = packed[1].checked_sub(1).map(|bits| (1, want_of(bits)));
        let owner = owners[client];
        let (once, lease, until) = (false, None, None);
        let request = Waiter { client, owner, place, want, second, once, lease, until };
        world.waits.add(listed(request));
    }
    let lost = (0..4).filter(|owner| rest[0] & 1 << owner != 0);
    world.waits.set_to_search(lost.map(name).collect());
    world
}

/// All steps that are possible now.
fn steps(world: &World, bounds: &Bounds) -> Vec<Step> {
    let mut steps = vec![Step::FireTimers];
    if bounds.only_waiting {
        steps.extend(waiting_steps(world, bounds));
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
                    let second = None;
                    let request =
                        Request { client, place, want, second, once, lease, block, reserve };
                    steps.push(Step::Acquire(request));
                    let may_reserve = bounds.reserved == Some(place);
                    if may_reserve && block.is_none() && want == Want::Write {
                        steps.push(Step::Acquire(Request { reserve: Some(1), ..request }));
                    }
                }
            }
            if bounds.joint && place == 0 {
                steps.extend(joint_requests(world, bounds, client).map(Step::Acquire));
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

/// All requests of a client for both locks.
fn joint_requests(world: &World, bounds: &Bounds, client: usize) -> impl Iterator<Item = Request> {
    let both = [Want::Read, Want::Write];
    let pairs = both.into_iter().flat_map(move |one| both.map(|other| (one, other)));
    let owner = world.owners[client];
    let held: Vec<[usize; 2]> = world
        .locks
        .iter()
        .map(|lock| {
            lock.holds.get(&owner).map_or([0, 0], |own| [own.reads.len(), own.writes as usize])
        })
        .collect();
    let most = bounds.holds;
    let is_within = move |place: usize, want: Want| held[place][want as usize - 1] < most;
    let pairs = pairs.filter(move |(one, other)| is_within(0, *one) && is_within(1, *other));
    pairs.flat_map(move |(want, other)| {
        [None, Some(0)].map(|block| {
            let (once, lease, reserve, second) = (false, None, None, Some((1, other)));
            Request { client, place: 0, want, second, once, lease, block, reserve }
        })
    })
}

/// A client that waits may leave. Any other client may begin to wait for a kind of hold that
/// its owner does not have.
fn waiting_steps(world: &World, bounds: &Bounds) -> Vec<Step> {
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
            let second = None;
            let request =
                |want| Request { client, place, want, second, once, lease, block, reserve };
            steps.extend(wants.iter().map(|want| Step::Acquire(request(*want))));
        }
        if bounds.joint {
            let joint = joint_requests(world, bounds, client);
            let joint = joint.filter(|request| request.block.is_some());
            steps.extend(joint.map(Step::Acquire));
        }
    }
    steps
}

/// Checks that each waiter that is not on the list any more got exactly one answer.
fn check_answers(
    before: &BTreeSet<WaiterId>,
    reply: Option<Reply>,
    after: &World,
) -> Result<(), String> {
    let waits: BTreeSet<WaiterId> = after.waiters().map(|(id, _)| id).collect();
    let mut answered: Vec<WaiterId> = after.answers.iter().map(|(id, _)| *id).collect();
    answered.sort_unstable();
    let ended: Vec<WaiterId> = before.difference(&waits).copied().collect();
    let begun = waits.difference(before).count();
    if answered != ended || begun != usize::from(reply == Some(Reply::Waiting)) {
        return Err(format!(
            "answered {answered:?}, ended {ended:?}, {begun} begun, reply {reply:?}"
        ));
    }
    Ok(())
}

/// Visits the states that can be reached from one in which these owners hold these locks, those
/// with the shortest way first. `states`: how many it finds at least, if it visits them all.
fn explore(policy: Policy, bounds: &Bounds, held: &[(usize, u8, Kind)], states: usize) {
    let least = sized(states);
    let most = if least < states { least } else { usize::MAX };
    let found = visit(policy, bounds, held, most);
    println!("{policy:?}: {found} states");
    assert!(found >= least, "{policy:?}: {found} states, expected {least} or more");
}

/// Visits states until `most` are found. Returns how many were found.
fn visit(policy: Policy, bounds: &Bounds, held: &[(usize, u8, Kind)], most: usize) -> usize {
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
    let mut states = vec![(start.clone(), 0, Step::FireTimers)];
    let mut known: HashSet<State> = HashSet::from([start]);
    let mut at = 0;
    while at < states.len() && states.len() < most {
        let world = unpack(&states[at].0, policy, bounds.owners);
        let before: BTreeSet<WaiterId> = world.waiters().map(|(id, _)| id).collect();
        for step in steps(&world, bounds) {
            let mut world = unpack(&states[at].0, policy, bounds.owners);
            let reply = world.step(step);
            let checked = match world.violations.pop() {
                Some(violation) => Err(violation),
                None => rules::check(&world),
            };
            if let Err(violation) = checked.and_then(|()| check_answers(&before, reply, &world)) {
                panic!("{policy:?}: {violation}\n{}", trace(&states, at, step));
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

/// The shortest way to a state, for the message of a failed test.
fn trace(states: &[(State, usize, Step)], mut at: usize, last: Step) -> String {
    let mut steps = vec![last];
    while at > 0 {
        steps.push(states[at].2);
        at = states[at].1;
    }
    steps.iter().rev().map(|step| format!("  {step:?}\n")).collect()
}

/// Explores a world under each policy. `states`: how many states there were when the test was
/// written. Far fewer would mean that the test explores less than it did.
fn explore_all(bounds: &Bounds, states: [usize; 3]) {
    for (policy, states) in POLICIES.into_iter().zip(states) {
        explore(policy, bounds, &[], states / 10 * 9);
    }
}

#[test]
fn three_owners_and_two_locks_always_keep_the_rules() {
    let bounds =
        Bounds { owners: &[0, 1, 2], holds: 1, reserved: None, only_waiting: false, joint: false };
    explore_all(&bounds, [29_775, 29_355, 30_099]);
}

#[test]
fn two_clients_of_one_owner_and_a_third_always_keep_the_rules() {
    let bounds =
        Bounds { owners: &[0, 0, 1], holds: 2, reserved: None, only_waiting: false, joint: false };
    explore_all(&bounds, [40_236, 38_540, 31_544]);
}

#[test]
fn writers_that_reserve_always_keep_the_rules() {
    let bounds = Bounds {
        owners: &[0, 0, 1],
        holds: 1,
        reserved: Some(0),
        only_waiting: false,
        joint: false,
    };
    explore_all(&bounds, [40_836, 40_918, 36_000]);
}

#[test]
fn exactly_the_waiters_that_close_circles_get_the_error() {
    use Kind::{Read, Write};
    // Owner 0 has three clients, owner 1 one, owner 2 none.
    let crowd =
        |owners| Bounds { owners, holds: 1, reserved: None, only_waiting: true, joint: false };
    let held = &[(0, 2, Write), (1, 1, Read)];
    explore_crowd(&crowd(&[0, 0, 0, 1]), held, &[Policy::PreferWriters], 26_000);
    let held = &[(0, 1, Read), (0, 2, Read), (1, 0, Write)];
    explore_crowd(&crowd(&[0, 0, 1, 1]), held, &POLICIES, 880);
    let held = &[(0, 2, Write), (1, 0, Read), (1, 3, Read)];
    explore_crowd(&crowd(&[0, 0, 1, 3]), held, &POLICIES, 9_300);
}

/// Explores a world whose clients only begin to wait and leave. `states`: the least number
/// of states.
fn explore_crowd(bounds: &Bounds, held: &[(usize, u8, Kind)], policies: &[Policy], states: usize) {
    for policy in policies {
        explore(*policy, bounds, held, states);
    }
}

/// Clients ask for one lock or for both of them.
fn joint(owners: &'static [u8], reserved: Option<usize>) -> Bounds {
    Bounds { owners, holds: 1, reserved, only_waiting: false, joint: true }
}

#[test]
fn clients_that_ask_for_both_locks_in_one_step_always_keep_the_rules() {
    explore_all(&joint(&[0, 1, 2], None), [69_495, 69_057, 69_555]);
}

#[test]
fn two_clients_of_one_owner_that_ask_for_both_locks_always_keep_the_rules() {
    explore_all(&joint(&[0, 0, 1], None), [31_299, 31_674, 30_723]);
}

#[test]
fn clients_that_ask_for_both_locks_and_reserve_always_keep_the_rules() {
    explore_all(&joint(&[0, 0, 1], Some(0)), [111_317, 117_676, 109_791]);
}

#[test]
fn exactly_the_waiters_that_close_circles_with_both_locks_get_the_error() {
    use Kind::{Read, Write};
    let crowd = |owners| Bounds { only_waiting: true, ..joint(owners, None) };
    let held = &[(0, 3, Write), (1, 3, Write)];
    explore_crowd(&crowd(&[0, 0, 1, 1]), held, &POLICIES, 170_000);
    let held: [&[(usize, u8, Kind)]; 3] = [
        &[(0, 3, Read), (1, 2, Write)],
        &[(0, 0, Read), (0, 3, Read), (1, 1, Read)],
        &[(1, 0, Write)],
    ];
    for held in held {
        for owners in [&[0, 0, 1, 2], &[0, 0, 1, 1], &[0, 1, 2, 3]] {
            explore_crowd(&crowd(owners), held, &POLICIES, 3_800);
        }
    }
}
