//! Who may be granted what, told once more: each request by itself, from all
//! that is true of a lock, where the product has queues that are served from
//! their heads.

use super::world::{Place, World};
use crate::core::{Policy, WaiterId, Want};

/// Whether the rules let this owner have it now. `id`: where it stands in the
/// order of arrival; one who has just come is behind all.
pub fn may_have(world: &World, place: Place, owner: u8, want: Want, id: WaiterId) -> bool {
    let lock = &world.locks[place];
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
    let mut others = world.waiters().filter(|(other, w)| w.place == place && *other != id);
    if others.clone().any(|(_, waiter)| waiter.want == Want::Upgrade) {
        return false;
    }
    let ignores_writers = world.policy == Policy::PreferReaders && joins && want == Want::Read;
    match lock.reserved {
        _ if ignores_writers => {}
        Some((by, _)) if by == owner => {
            let mut writes =
                others.clone().filter(|(_, w)| w.owner == owner && w.want == Want::Write);
            match want {
                Want::Read if writes.next().is_some() => return false,
                // Beyond that it goes by the queue, like anybody's.
                Want::Read | Want::Upgrade => {}
                Want::Write => return writes.all(|(other, _)| other > id),
            }
        }
        Some(_) => return false,
        None => {}
    }
    !others.any(|(other, waiter)| match (waiter.want, want) {
        (Want::Write, Want::Read) if ignores_writers => false,
        (Want::Write, Want::Read) if world.policy == Policy::PreferWriters => true,
        (Want::Read, Want::Write) if world.policy == Policy::PreferWriters => false,
        _ => other < id,
    })
}

/// What must be true whatever happens.
pub fn check(world: &World) -> Result<(), String> {
    for (place, lock) in world.locks.iter().enumerate() {
        let writers = lock.holds.values().filter(|holds| holds.writes > 0).count();
        if writers > 0 && lock.holds.len() > 1 {
            return Err(format!("lock {place}: a writer is not alone"));
        }
        let queue = world.waits.queue(&place);
        let in_order = queue.map(|queue| queue.in_order(world.policy, None)).unwrap_or_default();
        let queued: Vec<WaiterId> = in_order.into_iter().map(|(id, ..)| id).collect();
        let here = world.waiters().filter(|(_, waiter)| waiter.place == place);
        if here.clone().any(|(id, _)| !queued.contains(&id)) || here.clone().count() != queued.len()
        {
            return Err(format!("lock {place}: its queue is not those who wait for it"));
        }
        if lock.due {
            // Somebody is about to look at it.
            continue;
        }
        for (id, waiter) in here {
            if may_have(world, place, waiter.owner, waiter.want, id) {
                return Err(format!("waiter {id} waits for what it may have"));
            }
            let reads = lock.holds.get(&waiter.owner).is_some_and(|own| !own.reads.is_empty());
            if waiter.want == Want::Upgrade && !reads {
                return Err(format!("waiter {id} waits to upgrade what it does not hold"));
            }
        }
    }
    // Who waits for whom may change when somebody leaves; then a look is due.
    let settled = world.locks.iter().all(|lock| !lock.due);
    match settled && super::circles::stand(world) {
        true => Err("a circle of waiters stands".into()),
        false => Ok(()),
    }
}
