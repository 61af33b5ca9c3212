//! The rules of granting, written a second time and in another way. The shipped rules serve a
//! queue from its head. Here each request is decided by itself, from the whole state of its
//! locks.

use super::world::{Place, Waiter, World};
use crate::core::{Policy, WaiterId, Want};

/// Whether the rules allow this request now. `id`: its place in the order of arrival. A new
/// request has [`WaiterId::MAX`], behind all waiters.
pub fn may_have(world: &World, request: Waiter, id: WaiterId) -> bool {
    request.places().all(|(place, want)| may_have_one(world, request, place, want, id))
}

fn may_have_one(world: &World, request: Waiter, place: Place, want: Want, id: WaiterId) -> bool {
    let (lock, owner) = (&world.locks[place], request.owner);
    let others_hold = lock.holds.keys().any(|holder| *holder != owner);
    let (reads, writes) =
        lock.holds.get(&owner).map_or((0, 0), |own| (own.reads.len() as u64, own.writes));
    match want {
        Want::Upgrade => return reads > 0 && !others_hold,
        Want::Read if reads + writes > 0 => return true,
        Want::Write if writes > 0 => return true,
        Want::Write if !lock.holds.is_empty() => return false,
        Want::Read if lock.holds.values().any(|holds| holds.writes > 0) => return false,
        Want::Read | Want::Write => {}
    }
    let joins = !lock.holds.is_empty();
    let others = world.waiters().filter(|(other, _)| *other != id);
    let mut others = others.filter_map(|(other, w)| Some((other, w, w.want_of(place)?)));
    if others.clone().any(|(.., its)| its == Want::Upgrade) {
        return false;
    }
    if world.policy == Policy::PreferReaders && joins && want == Want::Read {
        return true;
    }
    match lock.reserved {
        Some((by, _)) if by == owner => {
            let mut writes =
                others.clone().filter(|(_, w, its)| w.owner == owner && *its == Want::Write);
            match want {
                Want::Read if writes.next().is_some() => return false,
                // The owner's reader waits in the queue like all others.
                Want::Read | Want::Upgrade => {}
                Want::Write => return writes.all(|(other, ..)| other > id),
            }
        }
        Some(_) => return false,
        None => {}
    }
    let is_writer = |waiter: &Waiter| waiter.goes_as_writer();
    !others.any(|(other, waiter, _)| match (is_writer(&waiter), is_writer(&request)) {
        (true, false) if world.policy == Policy::PreferWriters => true,
        (false, true) if world.policy == Policy::PreferWriters => false,
        _ => other < id,
    })
}

/// Checks what must be true of every state.
pub fn check(world: &World) -> Result<(), String> {
    for (place, lock) in world.locks.iter().enumerate() {
        let writers = lock.holds.values().filter(|holds| holds.writes > 0).count();
        if writers > 0 && lock.holds.len() > 1 {
            return Err(format!("lock {place}: a writer is not alone"));
        }
        let queue = world.waits.queue(&place);
        let in_order = queue.map(|queue| queue.in_order(world.policy, None)).unwrap_or_default();
        let queued: Vec<WaiterId> = in_order.into_iter().map(|(id, ..)| id).collect();
        let here = world.waiters().filter(|(_, waiter)| waiter.want_of(place).is_some());
        if here.clone().any(|(id, _)| !queued.contains(&id)) || here.clone().count() != queued.len()
        {
            return Err(format!("lock {place}: its queue and the list have different waiters"));
        }
        if lock.due {
            // Its queue is about to be served.
            continue;
        }
        for (id, waiter) in here {
            let is_settled = waiter.places().all(|(place, _)| !world.locks[place].due);
            if is_settled && may_have(world, waiter, id) {
                return Err(format!("waiter {id} waits, but the rules allow its request"));
            }
            let reads = lock.holds.get(&waiter.owner).is_some_and(|own| !own.reads.is_empty());
            if waiter.want_of(place) == Some(Want::Upgrade) && !reads {
                return Err(format!("waiter {id} waits to upgrade, but does not read"));
            }
        }
    }
    // When a waiter leaves, others may wait for more owners. The circles that this closes are
    // found when the queue is served, which is due then.
    let is_settled = world.locks.iter().all(|lock| !lock.due);
    match is_settled && super::circles::exist(world) {
        true => Err("there is a circle of owners".into()),
        false => Ok(()),
    }
}
