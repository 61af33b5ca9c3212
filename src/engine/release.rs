//! Giving holds back, making them last, and breaking locks open.

use super::acquire::settled;
use super::{end_of, Error};
use crate::core::{self, Millis, Mode, Which};
use crate::ffi::{Access, Ctx, Str};
use crate::store::{Owner, Store, Survey};

/// UNLOCK. True when the lock is now free of all holds.
pub fn release(ctx: Ctx<'_>, key: &Str, owner: &Str, which: Which) -> Result<bool, Error> {
    let owner = Owner::new(owner)?;
    let mut store = Store::open(ctx, key, Access::Write)?;
    let seen = store.look(&owner, Survey::Ends)?;
    let after = settled(&mut store, &seen, &owner, core::release(&seen.lock, which))?;
    store.commit(&seen, &owner, &after)?;
    Ok(after.is_free())
}

/// RENEW.
pub fn renew(ctx: Ctx<'_>, key: &Str, owner: &Str, lease: Millis) -> Result<(), Error> {
    let owner = Owner::new(owner)?;
    let mut store = Store::open(ctx, key, Access::Write)?;
    let lease = end_of(&store, lease)?;
    let seen = store.look(&owner, Survey::Mode)?;
    let after = settled(&mut store, &seen, &owner, core::renew(&seen.lock, lease))?;
    Ok(store.commit(&seen, &owner, &after)?)
}

/// FORCEUNLOCK. False when there was nothing to remove.
pub fn force(ctx: Ctx<'_>, key: &Str, only: Option<Mode>) -> Result<bool, Error> {
    Ok(Store::open(ctx, key, Access::Write)?.force(only)?)
}
