//! Whom a writer's reservation holds up (the option RESERVE), and who may leave one.

use crate::core::wait::{Place, Rules, WaitList, Waiter};
use crate::core::{
    decide, lets_others_in, reservation, End, Holds, Lock, Mode, Others, Policy, Refusal,
    Reservation, Terms, Verdict, Want,
};

const POLICIES: [Policy; 3] = [Policy::Fifo, Policy::PreferReaders, Policy::PreferWriters];
const WANTS: [Want; 3] = [Want::Read, Want::Write, Want::Upgrade];

/// A lock in this mode, held by others.
fn held(mode: Option<Mode>) -> Lock {
    let others = match mode {
        None => return Lock::free(),
        Some(Mode::Read) => Others::Readers { latest: None },
        Some(Mode::Write) => Others::Writer,
    };
    Lock { others, end: End::Never, ..Lock::free() }
}

/// A lock that the owner reads, beside others.
fn read() -> Lock {
    let own = Holds { reads: [End::Never].into_iter().collect(), writes: 0 };
    Lock { own, ..held(Some(Mode::Read)) }
}

#[test]
fn a_reservation_concerns_those_that_hold_nothing() {
    let locks = [None, Some(Mode::Read), Some(Mode::Write)].map(held);
    for policy in POLICIES {
        for lock in &locks {
            for want in WANTS {
                let seen = |by| reservation(by, b"ann", want, lock, policy);
                assert_eq!(seen(None), Reservation::None);
                assert_eq!(seen(Some(b"ann")), Reservation::Own);
                let joins = policy == Policy::PreferReaders
                    && want == Want::Read
                    && lock.mode() == Some(Mode::Read);
                // An upgrade is not held up. A reader that joins is not either.
                let is_free_of_it = want == Want::Upgrade || joins;
                let expected = if is_free_of_it { Reservation::None } else { Reservation::Other };
                assert_eq!(seen(Some(b"bob")), expected, "{policy:?} {lock:?} {want:?}");
            }
        }
        // A reader may read again, whoever has reserved the lock.
        for by in [&b"ann"[..], b"bob"] {
            let seen = reservation(Some(by), b"ann", Want::Read, &read(), policy);
            assert_eq!(seen, Reservation::None);
        }
        let write = |by| reservation(Some(by), b"ann", Want::Write, &read(), policy);
        assert_eq!((write(b"ann"), write(b"bob")), (Reservation::Own, Reservation::Other));
    }
}

#[test]
fn others_get_in_after_a_read_hold_under_prefer_readers_only() {
    for policy in POLICIES {
        for want in WANTS {
            let expected = policy == Policy::PreferReaders && want == Want::Read;
            assert_eq!(lets_others_in(want, policy), expected, "{policy:?} {want:?}");
        }
    }
}

#[test]
fn waiters_hold_up_all_but_upgrades() {
    let terms = Terms { lease: End::Never, once: false, meant: None };
    for want in [Want::Read, Want::Write] {
        let decide = |is_behind| decide(&Lock::free(), want, terms, Reservation::None, is_behind);
        assert_eq!(decide(true), Ok(Verdict::Refused(Refusal::Queue)));
        assert!(matches!(decide(false), Ok(Verdict::Granted(_))));
    }
    let lock = Lock { others: Others::None, ..read() };
    let upgrade = decide(&lock, Want::Upgrade, terms, Reservation::None, true);
    assert!(matches!(upgrade, Ok(Verdict::Granted(_))));
}

#[test]
fn a_reservation_is_left_where_no_client_waits_and_refreshed_everywhere() {
    let mut waits: WaitList<usize, ()> = WaitList::default();
    waits.rules = Rules { policy: Policy::Fifo, ..Rules::default() };
    let may = |waits: &WaitList<usize, ()>, lock| {
        [Reservation::None, Reservation::Own, Reservation::Other]
            .map(|reservation| waits.may_reserve(&lock, reservation))
    };
    assert_eq!(may(&waits, 0), [true, true, false]);
    let places = std::iter::once(Place { lock: 0, want: Want::Read }).collect();
    let id = waits.add(Waiter { owner: b"ann"[..].into(), places, request: () });
    assert_eq!(may(&waits, 0), [false, true, false]);
    // Those clients wait for another lock.
    assert_eq!(may(&waits, 1), [true, true, false]);
    waits.remove(id);
    assert_eq!(may(&waits, 0), [true, true, false]);
}
