//! Taking holds and changing their kind.

use super::{end_of, Error};
use crate::core::{self, Kind, Lock, Millis, Refusal, Request, Reservation, Verdict};
use crate::ffi::{Access, Ctx, Str};
use crate::store::{Owner, Reserved, Seen, Store, Survey};

/// A request for a hold.
pub struct Acquire<'a> {
    /// The lock.
    pub key: &'a Str,
    /// Who asks.
    pub owner: &'a Str,
    /// The kind of hold.
    pub kind: Kind,
    /// How long the hold lives, in ms.
    pub lease: Millis,
    /// No second hold of this kind.
    pub once: bool,
    /// When refused, leave a reservation that stands for so many ms.
    pub reserve: Option<Millis>,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The owner has the hold.
    Held,
    /// Not now: the ms until what stands in the way ends at the latest; None
    /// when it never ends by itself.
    Refused(Option<Millis>),
}

/// RLOCK and WLOCK.
pub fn acquire(ctx: Ctx<'_>, ask: &Acquire<'_>) -> Result<Acquired, Error> {
    let owner = Owner::new(ask.owner)?;
    let mut store = Store::open(ctx, ask.key, Access::Write)?;
    let lease = end_of(&store, ask.lease)?;
    let reserve = ask.reserve.map(|ms| end_of(&store, ms)).transpose()?;
    let seen = store.look(&owner, Survey::Mode)?;
    let reserved = match ask.kind {
        // A holder is not held up by a reservation, nor does it consume one.
        Kind::Read if !seen.lock.own.is_empty() => None,
        _ => store.reservation()?,
    };
    let reservation = match &reserved {
        None => Reservation::None,
        Some(reserved) if reserved.owner == owner.bytes() => Reservation::Own,
        Some(_) => Reservation::Other,
    };
    let request = Request { kind: ask.kind, lease, once: ask.once };
    match core::acquire(&seen.lock, request, reservation)? {
        Verdict::Granted(after) => {
            store.commit(&seen, &owner, &after)?;
            if ask.kind == Kind::Write && reservation == Reservation::Own {
                store.consume_reservation();
            }
            Ok(Acquired::Held)
        }
        Verdict::Refused(refusal) => {
            store.commit(&seen, &owner, &seen.lock)?;
            if let Some(end) = reserve.filter(|_| reservation != Reservation::Other) {
                store.reserve(ask.owner, end);
            }
            Ok(refused(&store, &seen.lock, refusal, reserved))
        }
    }
}

/// UPGRADE.
pub fn upgrade(ctx: Ctx<'_>, key: &Str, owner: &Str, lease: Millis) -> Result<Acquired, Error> {
    let owner = Owner::new(owner)?;
    let mut store = Store::open(ctx, key, Access::Write)?;
    let lease = end_of(&store, lease)?;
    let seen = store.look(&owner, Survey::Presence)?;
    match settled(&mut store, &seen, &owner, core::upgrade(&seen.lock, lease)?)? {
        Verdict::Granted(after) => {
            store.commit(&seen, &owner, &after)?;
            Ok(Acquired::Held)
        }
        Verdict::Refused(refusal) => {
            store.commit(&seen, &owner, &seen.lock)?;
            Ok(refused(&store, &seen.lock, refusal, None))
        }
    }
}

/// DOWNGRADE.
pub fn downgrade(ctx: Ctx<'_>, key: &Str, owner: &Str, lease: Millis) -> Result<(), Error> {
    let owner = Owner::new(owner)?;
    let mut store = Store::open(ctx, key, Access::Write)?;
    let lease = end_of(&store, lease)?;
    let seen = store.look(&owner, Survey::Ends)?;
    let after = settled(&mut store, &seen, &owner, core::downgrade(&seen.lock, lease))?;
    Ok(store.commit(&seen, &owner, &after)?)
}

/// A rule's result; when it is NOTHELD, the lapsed holds that the look met
/// (often the very reason) are removed first.
pub(super) fn settled<T>(
    store: &mut Store<'_>,
    seen: &Seen,
    owner: &Owner<'_>,
    result: Result<T, core::NotHeld>,
) -> Result<T, Error> {
    if result.is_err() {
        store.commit(seen, owner, &seen.lock)?;
    }
    Ok(result?)
}

fn refused(
    store: &Store<'_>,
    lock: &Lock,
    refusal: Refusal,
    reserved: Option<Reserved>,
) -> Acquired {
    let end = match (refusal, reserved) {
        (Refusal::Reserved, Some(reserved)) => reserved.end,
        _ => lock.end,
    };
    Acquired::Refused(end.left(store.now()))
}
