//! Properties of each rule, for any possible lock.

use super::cases;
use crate::core::{
    acquire, downgrade, release, renew, upgrade, End, Ends, Holds, Kind, Lock, Mode, NotHeld,
    Others, Refusal, Request, RequestError, Reservation, TooMany, Verdict, Which, MAX_READS,
};
use proptest::prelude::*;
use End::{At, Never};

fn not_held(verdict: Result<Verdict, RequestError>) -> Option<NotHeld> {
    match verdict {
        Err(RequestError::NotHeld(reason)) => Some(reason),
        _ => None,
    }
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![9 => (1_i64..100).prop_map(At), 1 => Just(Never)]
}

/// The lease of a request: it always ends.
fn lease() -> impl Strategy<Value = End> {
    (1_i64..100).prop_map(At)
}

fn reads() -> impl Strategy<Value = Ends> {
    proptest::collection::vec(end(), 0..4).prop_map(Ends::from_vec)
}

/// Any possible lock: a writer is alone, and the lock lives at least as long as every read hold
/// in the snapshot.
fn lock() -> impl Strategy<Value = Lock> {
    let others = prop_oneof![
        2 => Just(Others::None),
        2 => (1_i64..100).prop_map(|end| Others::Readers { latest: Some(At(end)) }),
        1 => Just(Others::Writer),
    ];
    (reads(), 0_u64..3, others, end()).prop_map(|(reads, writes, others, end)| {
        let own = match others {
            Others::None => Holds { reads, writes },
            Others::Readers { .. } => Holds { reads, writes: 0 },
            Others::Writer => Holds::default(),
        };
        let lock = Lock { end: end.max(latest(&own, others)), own, others };
        if lock.is_free() {
            Lock::free()
        } else {
            lock
        }
    })
}

/// The latest end of a read hold.
fn latest(own: &Holds, others: Others) -> End {
    let theirs = match others {
        Others::Readers { latest: Some(end) } => end,
        _ => At(0),
    };
    own.reads.iter().copied().fold(theirs, End::max)
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Read), Just(Kind::Write)]
}

fn to_write(lease: End) -> Request {
    Request { kind: Kind::Write, lease, once: false, meant: None }
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![kind().prop_map(Which::One), Just(Which::Any), Just(Which::All)]
}

fn reservation() -> impl Strategy<Value = Reservation> {
    prop_oneof![Just(Reservation::None), Just(Reservation::Own), Just(Reservation::Other)]
}

fn request(kind: Kind, lease: End) -> Request {
    Request { kind, lease, once: false, meant: None }
}

/// The locks that the rules make of this one: one for each request that is granted.
fn successors(lock: &Lock, lease: End) -> Vec<Lock> {
    let mut all = Vec::new();
    for kind in [Kind::Read, Kind::Write] {
        for once in [false, true] {
            let verdict =
                acquire(lock, Request { kind, lease, once, meant: None }, Reservation::None);
            if let Ok(Verdict::Granted(after)) = verdict {
                all.push(after);
            }
        }
    }
    if let Ok(Verdict::Granted(after)) = upgrade(lock, to_write(lease)) {
        all.push(after);
    }
    all.extend(downgrade(lock, lease).ok());
    all.extend(renew(lock, lease).ok());
    let whichs = [Which::Any, Which::All, Which::One(Kind::Read), Which::One(Kind::Write)];
    all.extend(whichs.into_iter().filter_map(|which| release(lock, which, None).ok()));
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(2048, 100), failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_holds_of_both_kinds_count(lock in lock()) {
        let Holds { reads, writes } = &lock.own;
        prop_assert_eq!(lock.own.count(), reads.iter().count() as u64 + writes);
        prop_assert_eq!(lock.own.is_empty(), lock.own.count() == 0);
    }

    #[test]
    fn a_writer_is_alone(lock in lock(), lease in lease()) {
        for after in successors(&lock, lease) {
            prop_assert!(after.own.writes == 0 || after.others == Others::None, "{after:?}");
        }
    }

    #[test]
    fn a_lock_outlives_its_read_holds(lock in lock(), lease in lease()) {
        for after in successors(&lock, lease).iter().filter(|after| !after.is_free()) {
            prop_assert!(after.end >= latest(&after.own, after.others), "{after:?}");
        }
    }

    #[test]
    fn a_lock_without_expiry_keeps_none_while_it_is_held(lock in lock(), lease in lease()) {
        let lock = Lock { end: Never, ..lock };
        if lock.is_free() {
            return Ok(());
        }
        for after in successors(&lock, lease).iter().filter(|after| !after.is_free()) {
            prop_assert_eq!(after.end, Never);
        }
    }

    #[test]
    fn a_lock_in_write_mode_is_never_shortened(lock in lock(), lease in lease()) {
        if lock.mode() != Some(Mode::Write) {
            return Ok(());
        }
        for after in successors(&lock, lease) {
            prop_assert!(after.mode() != Some(Mode::Write) || after.end >= lock.end, "{after:?}");
        }
    }

    #[test]
    fn a_release_takes_back_what_was_acquired(
        lock in lock(), kind in kind(), lease in lease(), by in reservation(),
    ) {
        let granted = acquire(&lock, request(kind, lease), by);
        let Ok(Verdict::Granted(after)) = granted else { return Ok(()) };
        let back = release(&after, Which::One(kind), None).unwrap();
        prop_assert_eq!(&back.own, &lock.own);
        prop_assert_eq!(back.mode(), lock.mode());
        if lock.mode() == Some(Mode::Read) && lock.end == latest(&lock.own, lock.others) {
            prop_assert_eq!(back, lock);
        }
    }

    #[test]
    fn a_release_takes_back_an_upgrade(lock in lock(), lease in lease()) {
        if let Ok(Verdict::Granted(after)) = upgrade(&lock, to_write(lease)) {
            let back = release(&after, Which::One(Kind::Write), None).unwrap();
            prop_assert_eq!(back.own, lock.own);
        }
    }

    #[test]
    fn a_release_takes_one_hold_or_all(lock in lock(), which in which()) {
        let holds = |own: &Holds| own.reads.len() as u64 + own.writes;
        match release(&lock, which, None) {
            Ok(after) if which == Which::All => prop_assert!(after.own.is_empty()),
            Ok(after) => {
                prop_assert_eq!(holds(&after.own), holds(&lock.own) - 1);
                // The last read hold is given back first.
                let kept = after.own.reads.len();
                prop_assert_eq!(&after.own.reads[..], &lock.own.reads[..kept]);
                if which == Which::Any && !lock.own.reads.is_empty() {
                    prop_assert_eq!(after.own.writes, lock.own.writes);
                }
            }
            Err(_) => match which {
                Which::One(Kind::Read) => prop_assert!(lock.own.reads.is_empty()),
                Which::One(Kind::Write) => prop_assert_eq!(lock.own.writes, 0),
                Which::Any | Which::All => prop_assert!(lock.own.is_empty()),
            },
        }
    }

    #[test]
    fn the_reason_for_a_missing_hold_is_true(lock in lock(), lease in lease()) {
        let reasons = [
            release(&lock, Which::Any, None).err(),
            release(&lock, Which::One(Kind::Read), None).err(),
            release(&lock, Which::One(Kind::Write), None).err(),
            renew(&lock, lease).err(),
            downgrade(&lock, lease).err(),
            not_held(upgrade(&lock, to_write(lease))),
        ];
        for reason in reasons.into_iter().flatten() {
            match reason {
                NotHeld::Free => prop_assert!(lock.is_free()),
                NotHeld::OtherMode(Mode::Read) => prop_assert!(!lock.own.reads.is_empty()),
                NotHeld::OtherMode(Mode::Write) => prop_assert!(lock.own.writes > 0),
                NotHeld::Others(mode) => {
                    prop_assert!(lock.own.is_empty());
                    prop_assert_eq!(lock.mode(), Some(mode));
                }
            }
        }
    }

    #[test]
    fn a_reservation_keeps_no_holder_out(lock in lock(), lease in lease()) {
        if lock.own.is_empty() {
            return Ok(());
        }
        let verdict = acquire(&lock, request(Kind::Read, lease), Reservation::Other);
        prop_assert!(matches!(verdict, Ok(Verdict::Granted(_))));
        let verdict = acquire(&lock, request(Kind::Write, lease), Reservation::Other);
        prop_assert_eq!(lock.own.writes > 0, matches!(verdict, Ok(Verdict::Granted(_))));
    }

    #[test]
    fn a_reservation_keeps_other_owners_without_holds_out(
        lock in lock(), kind in kind(), lease in lease(),
    ) {
        if !lock.own.is_empty() {
            return Ok(());
        }
        let verdict = acquire(&lock, request(kind, lease), Reservation::Other);
        let refusal = if lock.is_free() { Refusal::Reserved } else { Refusal::Held };
        prop_assert_eq!(verdict, Ok(Verdict::Refused(refusal)));
    }

    #[test]
    fn once_keeps_the_number_of_holds(lock in lock(), kind in kind(), lease in lease()) {
        let once = Request { once: true, ..request(kind, lease) };
        let Ok(Verdict::Granted(first)) = acquire(&lock, once, Reservation::None) else {
            return Ok(());
        };
        // The same request again changes nothing.
        prop_assert_eq!(
            acquire(&first, once, Reservation::None),
            Ok(Verdict::Granted(first.clone()))
        );
        let had = match kind {
            Kind::Read => !lock.own.reads.is_empty(),
            Kind::Write => lock.own.writes > 0,
        };
        if had {
            prop_assert_eq!(first.own.reads.len(), lock.own.reads.len());
            prop_assert_eq!(first.own.writes, lock.own.writes);
        }
    }

    /// SESSION: the hold of this connection is meant.
    #[test]
    fn once_lengthens_the_hold_that_is_meant(
        lock in lock(), lease in lease(), meant in prop::option::of(0..5_usize),
    ) {
        let Some(highest) = lock.own.reads.len().checked_sub(1) else { return Ok(()) };
        let once = Request { once: true, meant, ..request(Kind::Read, lease) };
        let Ok(Verdict::Granted(after)) = acquire(&lock, once, Reservation::None) else {
            return Ok(());
        };
        let mut reads = lock.own.reads.clone();
        let meant = meant.filter(|meant| *meant < highest).unwrap_or(highest);
        reads[meant] = reads[meant].max(lease);
        prop_assert_eq!(after.own.reads, reads);
    }

    #[test]
    fn the_read_hold_that_is_meant_is_given_back(
        lock in lock(), rank in prop::option::of(0..5_usize),
    ) {
        let Some(highest) = lock.own.reads.len().checked_sub(1) else { return Ok(()) };
        let after = release(&lock, Which::One(Kind::Read), rank).unwrap();
        let mut reads = lock.own.reads.clone();
        reads.remove(rank.filter(|rank| *rank < highest).unwrap_or(highest));
        prop_assert_eq!(after.own.reads, reads);
        prop_assert_eq!(after.own.writes, lock.own.writes);
    }

    #[test]
    fn once_upgrades_once(lock in lock(), lease in lease()) {
        let once = Request { once: true, ..to_write(lease) };
        let Ok(Verdict::Granted(first)) = upgrade(&lock, once) else { return Ok(()) };
        prop_assert_eq!(first.own.writes, lock.own.writes.max(1));
        prop_assert_eq!(&first.own.reads, &lock.own.reads);
        prop_assert!(first.end >= lease);
        prop_assert_eq!(upgrade(&first, once), Ok(Verdict::Granted(first.clone())));
    }

    #[test]
    fn a_snapshot_without_the_ends_of_others_never_shortens_a_lock(
        lock in lock(), kind in kind(), lease in lease(),
    ) {
        let Others::Readers { .. } = lock.others else { return Ok(()) };
        let without_ends = Lock { others: Others::Readers { latest: None }, ..lock.clone() };
        let granted = |verdict| match verdict {
            Ok(Verdict::Granted(Lock { own, end, .. })) => Some((own, end)),
            _ => None,
        };
        let request = request(kind, lease);
        prop_assert_eq!(
            granted(acquire(&lock, request, Reservation::None)),
            granted(acquire(&without_ends, request, Reservation::None))
        );
        for which in [Which::Any, Which::All] {
            let after = (release(&lock, which, None), release(&without_ends, which, None));
            if let (Ok(after), Ok(after_without_ends)) = after {
                prop_assert!(after_without_ends.end >= after.end);
            }
        }
    }
}

/// Only an external change makes such a lock.
#[test]
fn a_downgrade_beside_another_writer_does_not_cut_its_lease() {
    let own = Holds { reads: Ends::new(), writes: 1 };
    let lock = Lock { own, others: Others::Writer, end: At(50) };
    for (lease, end) in [(At(10), At(50)), (At(90), At(90))] {
        let after = downgrade(&lock, lease).unwrap();
        assert_eq!((after.mode(), after.end), (Some(Mode::Write), end));
    }
}

#[test]
fn a_count_beyond_its_limit_is_an_error() {
    let limit = usize::try_from(MAX_READS).unwrap();
    let mut lock = Lock {
        own: Holds { reads: std::iter::repeat_n(At(1), limit).collect(), writes: i64::MAX as u64 },
        others: Others::None,
        end: At(1),
    };
    let read = request(Kind::Read, At(2));
    let write = request(Kind::Write, At(2));
    assert_eq!(acquire(&lock, read, Reservation::None), Err(TooMany::Reads));
    assert_eq!(acquire(&lock, write, Reservation::None), Err(TooMany::Writes));
    assert_eq!(upgrade(&lock, to_write(At(2))), Err(RequestError::TooMany(TooMany::Writes)));
    // ONCE adds no hold, so no limit applies.
    for request in [read, write] {
        let once = Request { once: true, ..request };
        assert!(matches!(acquire(&lock, once, Reservation::None), Ok(Verdict::Granted(_))));
    }
    lock.own.reads.pop();
    lock.own.writes -= 1;
    assert!(matches!(acquire(&lock, read, Reservation::None), Ok(Verdict::Granted(_))));
    assert!(matches!(acquire(&lock, write, Reservation::None), Ok(Verdict::Granted(_))));
}
