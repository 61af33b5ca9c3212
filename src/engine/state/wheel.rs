//! A timer wheel: many times, each of one place, added and taken away at a cost
//! that does not grow with how many there are.
//!
//! The slots of the lowest level are a millisecond wide, those of each level
//! above 64 times as wide as those below. A time stands in the lowest level in
//! which its slot is not the present one; when the wheel comes to a wide slot,
//! what stands there moves down, one time with each step. Each slot is a list,
//! and its links are kept by place, so nothing is allocated for a time.
//! Its times are by the clock of alarms, which never goes back.

use super::slab::Chunks;
use crate::core::Millis;

/// Slots of a level: as many as a word has bits.
const SLOTS: usize = 64;

/// Bits of a time that a level tells apart.
const BITS: u32 = 6;

/// Enough for any time there is.
const LEVELS: usize = 11;

/// No place: the end of a list, or a place that has no time.
const NONE: u32 = u32::MAX;

/// Marks what is no place but the slot whose list begins here.
const SLOT: u32 = 1 << 31;

/// Times of places, numbered from 0 and below 2^31.
pub struct Wheel {
    /// No time before this one is in the wheel.
    now: u64,
    /// The level and slot whose times are moving down.
    moving: Option<(usize, usize)>,
    /// Which levels have any, a bit for each.
    levels: u16,
    /// Which slots of a level have any.
    occupied: [u64; LEVELS],
    heads: [[u32; SLOTS]; LEVELS],
    links: Chunks<Link>,
}

/// What a step of the wheel came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This place, whose time has come. It has none any more.
    Due(u32),
    /// Nothing yet, and there may be more.
    Moved,
    /// There is none, for now.
    Nothing,
}

/// Where a place stands.
#[derive(Clone, Copy)]
struct Link {
    /// Its time, over or not.
    at: u64,
    /// The one before it in its slot, or its slot; [`NONE`]: it has no time.
    before: u32,
    /// The one behind it.
    behind: u32,
}

impl Default for Wheel {
    fn default() -> Wheel {
        Wheel {
            now: 0,
            moving: None,
            levels: 0,
            occupied: [0; LEVELS],
            heads: [[NONE; SLOTS]; LEVELS],
            links: Chunks::default(),
        }
    }
}

impl Wheel {
    /// Gives a place a time, instead of the one that it may have. One that is
    /// over already counts as the present one.
    pub fn set(&mut self, place: u32, at: Millis) {
        self.clear(place);
        while self.links.len() <= place as usize {
            self.links.push(Link { at: 0, before: NONE, behind: NONE });
        }
        self.stand(place, u64::try_from(at).unwrap_or(0));
    }

    /// Takes a place's time away, if it has one.
    pub fn clear(&mut self, place: u32) {
        let Some(link) = self.links.get_mut(place as usize) else {
            return;
        };
        let Link { before, behind, .. } = *link;
        if before == NONE {
            return;
        }
        link.before = NONE;
        if let Some(next) = self.links.get_mut(behind as usize) {
            next.before = before;
        }
        if before & SLOT == 0 {
            if let Some(last) = self.links.get_mut(before as usize) {
                last.behind = behind;
            }
            return;
        }
        let (level, slot) = ((before & !SLOT) as usize / SLOTS, before as usize % SLOTS);
        self.heads[level][slot] = behind;
        if behind == NONE {
            self.empty(level, slot);
        }
    }

    /// What was at one place is at another now, and there are no places from
    /// `places` on.
    pub fn pack(&mut self, moved: Option<(u32, u32)>, places: usize) {
        if let Some((from, to)) = moved {
            let stands = self.links.get(from as usize).filter(|link| link.before != NONE);
            if let Some(at) = stands.map(|link| link.at) {
                self.clear(from);
                self.stand(to, at);
            }
        }
        while self.links.len() > places {
            self.links.pop();
        }
    }

    /// A time before which there is none: that of the first, or, while it is
    /// far, an earlier one.
    pub fn first(&self) -> Option<Millis> {
        let (level, slot) = self.first_slot()?;
        let first = if self.moving.is_some() { self.now } else { self.start(level, slot) };
        Some(Millis::try_from(first).unwrap_or(Millis::MAX))
    }

    /// Goes on towards `now`, a step whose cost does not depend on how many times
    /// there are.
    pub fn step(&mut self, now: Millis) -> Step {
        let now = u64::try_from(now).unwrap_or(0);
        if let Some((level, slot)) = self.moving {
            let place = self.heads[level][slot];
            if let Some(&Link { at, .. }) = self.links.get(place as usize) {
                self.clear(place);
                self.stand(place, at);
                return Step::Moved;
            }
            self.moving = None;
        }
        let first = self.first_slot().map(|(level, slot)| (level, slot, self.start(level, slot)));
        let Some((level, slot, start)) = first.filter(|(.., start)| *start < now) else {
            // Short of `now`, with which the first slot may begin.
            self.now = self.now.max(now.saturating_sub(1));
            return Step::Nothing;
        };
        self.now = start;
        if level > 0 {
            self.moving = Some((level, slot));
            return Step::Moved;
        }
        let place = self.heads[level][slot];
        self.clear(place);
        Step::Due(place)
    }

    /// Drops a part of it. False when nothing is left.
    pub fn drop_some(&mut self) -> bool {
        self.links.drop_chunk()
    }

    /// Puts a place into the slot of its time, or of the present one if that is
    /// over.
    fn stand(&mut self, place: u32, time: u64) {
        let at = time.max(self.now);
        let differs = (at ^ self.now) | (SLOTS as u64 - 1);
        let level = (differs.ilog2() / BITS) as usize;
        let slot = (at >> (level as u32 * BITS)) as usize % SLOTS;
        let behind = std::mem::replace(&mut self.heads[level][slot], place);
        if let Some(next) = self.links.get_mut(behind as usize) {
            next.before = place;
        }
        let before = SLOT | (level * SLOTS + slot) as u32;
        if let Some(link) = self.links.get_mut(place as usize) {
            *link = Link { at: time, before, behind };
        }
        self.occupied[level] |= 1 << slot;
        self.levels |= 1 << level;
    }

    fn empty(&mut self, level: usize, slot: usize) {
        self.occupied[level] &= !(1 << slot);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    /// The first slot that has any: in the lowest level, for all of its times
    /// are before those of the levels above.
    fn first_slot(&self) -> Option<(usize, usize)> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    /// When a slot begins.
    fn start(&self, level: usize, slot: usize) -> u64 {
        let below = level as u32 * BITS;
        let above = below + BITS;
        let high = self.now.checked_shr(above).map_or(0, |high| high << above);
        (high | (slot as u64) << below).max(self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Debug)]
    enum Step {
        Set(u32, Millis),
        Clear(u32),
        Pass(Millis),
    }

    impl Wheel {
        fn take_before(&mut self, now: Millis) -> Option<u32> {
            loop {
                match self.step(now) {
                    super::Step::Due(place) => return Some(place),
                    super::Step::Moved => {}
                    super::Step::Nothing => return None,
                }
            }
        }
    }

    /// Steps among few places; times near and far.
    fn step() -> impl Strategy<Value = Step> {
        let time = prop_oneof![
            -10..200_i64,
            0..100_000_i64,
            0..10_000_000_000_i64,
            Just(Millis::MAX - 1),
            Just(Millis::MIN),
        ];
        prop_oneof![
            4 => (0..30_u32, time).prop_map(|(place, at)| Step::Set(place, at)),
            2 => (0..40_u32).prop_map(Step::Clear),
            1 => (0..5_000_i64).prop_map(Step::Pass),
            1 => Just(Step::Pass(3_000_000_000)),
        ]
    }

    proptest! {
        #[test]
        fn it_is_as_an_ordered_set_is(steps in prop::collection::vec(step(), 1..200)) {
            // Times as they are in a server, which count from 1970.
            const START: Millis = 1_700_000_000_000;
            let mut now = START;
            let mut wheel = Wheel::default();
            let mut set: BTreeSet<(Millis, u32)> = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Set(place, after) => {
                        let at = now.saturating_add(after).max(0);
                        set.retain(|(_, other)| *other != place);
                        set.insert((at, place));
                        wheel.set(place, at);
                    }
                    Step::Clear(place) => {
                        set.retain(|(_, other)| *other != place);
                        wheel.clear(place);
                    }
                    Step::Pass(ms) => {
                        now += ms;
                        while let Some(place) = wheel.take_before(now) {
                            let before = set.len();
                            set.retain(|(at, other)| *other != place || *at >= now);
                            prop_assert_eq!(set.len(), before - 1, "{}", place);
                        }
                        prop_assert!(set.first().is_none_or(|(at, _)| *at >= now));
                    }
                }
                let first = set.first().map(|(at, _)| *at);
                let now = now.max(wheel.now as Millis);
                prop_assert_eq!(wheel.first().is_none(), first.is_none());
                if let (Some(lower), Some(first)) = (wheel.first(), first) {
                    prop_assert!(lower <= first.max(now), "{} {}", lower, first);
                }
            }
        }
    }

    #[test]
    fn the_first_is_told_exactly_once_it_is_near() {
        let mut wheel = Wheel::default();
        assert_eq!(wheel.take_before(999_000), None);
        wheel.set(1, 1_000_000);
        wheel.set(2, 1_030_000);
        let mut wakes = 0;
        let mut rung = Vec::new();
        while let Some(first) = wheel.first() {
            wakes += 1;
            while let Some(place) = wheel.take_before(first + 1) {
                rung.push((place, first));
            }
        }
        assert_eq!(rung, [(1, 1_000_000), (2, 1_030_000)]);
        assert!(wakes <= 8, "{wakes}");
    }

    #[test]
    fn times_of_one_millisecond_are_all_taken() {
        let mut wheel = Wheel::default();
        for place in 0..1000 {
            wheel.set(place, 77);
        }
        assert_eq!(wheel.take_before(77), None);
        let mut taken: Vec<u32> = std::iter::from_fn(|| wheel.take_before(78)).collect();
        taken.sort_unstable();
        assert_eq!(taken, (0..1000).collect::<Vec<_>>());
        assert_eq!(wheel.first(), None);
    }
}
