//! The check of a whole history, for random steps and for those of the fuzzer.

use super::rules::check;
use super::step::{Reply, Step};
use super::world::World;
use crate::core::Policy;

/// The number of locks in the world.
pub const LOCKS: usize = 3;

/// Runs the steps in a new world, and checks after each that the rules are kept. Then all leases
/// end. After that no waiter may remain, and each must have got one answer. `owners`: the owner of
/// each client.
pub fn keeps_the_rules(
    policy: Policy,
    owners: &[u8],
    steps: impl IntoIterator<Item = Step>,
) -> Result<(), String> {
    let mut world = World::new(policy, LOCKS, owners);
    let mut waited = 0;
    for step in steps {
        waited += u64::from(world.step(step) == Some(Reply::Waiting));
        if !world.violations.is_empty() {
            return Err(format!("{step:?}: {:?}", world.violations));
        }
        check(&world).map_err(|why| format!("{step:?}: {why}"))?;
    }
    for _ in 0..=owners.len() {
        world.step(Step::Elapse(1_000_000));
        world.step(Step::FireTimers);
        check(&world).map_err(|why| format!("when all leases have ended: {why}"))?;
    }
    if !world.waits.is_empty() {
        return Err(format!("waiters remain: {:?}", world.waits));
    }
    let mut answered: Vec<_> = world.answers.iter().map(|(id, _)| *id).collect();
    answered.sort_unstable();
    answered.dedup();
    if answered.len() != world.answers.len() || answered.len() as u64 != waited {
        return Err(format!("{waited} have waited, and these were answered: {:?}", world.answers));
    }
    Ok(())
}
