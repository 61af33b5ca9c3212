//! Sequences of requests against the state machine of waiting. The world, its steps and its
//! rules are those of the unit tests in `src/core/tests/waiting`: a second form of the rules
//! checks each state. The first byte says which policy, and which owner each client has.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rwlock::fuzzing::{keeps_the_rules, Kind, Policy, Request, Step, Want, Which, LOCKS};
use rwlock_fuzz::input::Input;

const POLICIES: [Policy; 3] = [Policy::Fifo, Policy::PreferReaders, Policy::PreferWriters];

/// The owner of each client: all different, some with several clients, few with many clients.
const OWNERS: [[u8; 8]; 3] =
    [[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 0, 1, 0], [0, 1, 0, 1, 2, 2, 0, 1]];

/// More steps than this say nothing new, and take the fuzzer's time.
const MAX_STEPS: usize = 160;

fuzz_target!(|input: &[u8]| {
    let mut input = Input::new(input);
    let (policy, owners) = (input.pick(&POLICIES), input.pick(&OWNERS));
    let steps = std::iter::from_fn(|| (!input.is_empty()).then(|| step(&mut input)));
    let steps: Vec<Step> = steps.take(MAX_STEPS).collect();
    if let Err(violation) = keeps_the_rules(policy, &owners, steps.iter().copied()) {
        let shown: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
        panic!("{policy:?} {owners:?}\n{}\n{violation}", shown.join("\n"));
    }
});

/// Reads a step: one byte for the kind and the client, one for the lock and details.
fn step(input: &mut Input<'_>) -> Step {
    let first = input.byte();
    let client = usize::from(first & 7);
    let second = input.byte();
    let place = usize::from(second) % LOCKS;
    let details = usize::from(second) / LOCKS;
    match first >> 3 {
        0..=17 => Step::Acquire(request(input, client, place, details)),
        18..=23 => {
            let which = [Which::Any, Which::One(Kind::Read), Which::One(Kind::Write), Which::All];
            Step::Release { client, place, which: which[details % 4] }
        }
        24 => Step::Downgrade { client, place, lease: lease(details) },
        25 => Step::Renew { client, place, lease: lease(details) },
        26 => Step::Force(place),
        27 => Step::Leave(client),
        28 => Step::TimeOut(client),
        29 => Step::Elapse(1 + details as i64),
        30 if details % 4 == 0 => Step::ReservationEnds(place),
        30 => Step::Lapse { owner: (details / 4 % 8) as u8, place },
        _ => Step::FireTimers,
    }
}

fn lease(details: usize) -> Option<i64> {
    Some([100_000, 40, 200, 5][details / 4 % 4])
}

fn request(input: &mut Input<'_>, client: usize, place: usize, details: usize) -> Request {
    let more = input.byte();
    let wants = [Want::Read, Want::Write, Want::Upgrade, Want::Write];
    let want = wants[details % 4];
    let other = [None, None, Some(Want::Read), Some(Want::Write)][usize::from(more & 3)];
    let other = other.filter(|_| want != Want::Upgrade);
    let second = other.map(|want| ((place + 1 + usize::from(more >> 2 & 1)) % LOCKS, want));
    let block = [Some(0), Some(0), None, Some(30)][usize::from(more >> 3 & 3)];
    let alone = want == Want::Write && block.is_none() && second.is_none();
    Request {
        client,
        place,
        want,
        second,
        once: more >> 5 & 3 == 3,
        lease: lease(details),
        block,
        reserve: Some(20).filter(|_| alone && more >> 7 == 1),
    }
}
