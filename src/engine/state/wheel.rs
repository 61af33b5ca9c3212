//! A timer wheel. It keeps one time per place. To set or clear a time costs the same however many
//! there are.
//!
//! A slot of the lowest level is one ms wide. A slot of each higher level is 64 times as wide as
//! one of the level below. A time is in the lowest level in which its slot is not the current one.
//! When the wheel reaches a slot of a higher level, the times in it move down, one in each step. A
//! slot is a linked list whose links are stored by place, so a time needs no allocation. Times are
//! those of the timer clock, which never goes back.

use super::slab::Chunks;
use crate::core::Millis;

/// The number of slots of a level: one per bit of a `u64`.
const SLOTS: usize = 64;

/// The number of bits of a time that choose the slot in a level.
const BITS: u32 = 6;

/// Enough levels for all 64 bits of a time.
const LEVELS: usize = 11;

/// No place: the end of a list, or the `before` of a place without a time.
const NONE: u32 = u32::MAX;

/// Marks a `before` that is not a place but a slot: the place is the first in the list of that
/// slot.
const SLOT: u32 = 1 << 31;

/// The times of places. Places are numbered from 0 and below 2^31.
pub struct Wheel {
    /// How far the wheel is, in ms. An earlier time counts as this one.
    now: u64,
    /// The level and slot whose times are moving down.
    moving: Option<(usize, usize)>,
    /// The levels that have times, one bit each.
    levels: u16,
    /// The slots of each level that have times, one bit each.
    occupied: [u64; LEVELS],
    heads: [[u32; SLOTS]; LEVELS],
    links: Chunks<Link>,
}

/// The result of [`Wheel::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The time of this place has come. It is cleared.
    Due(u32),
    /// No time has come in this step. Call again.
    Moved,
    /// No time is due.
    Nothing,
}

/// The time of a place, and its links in the list of a slot.
#[derive(Clone, Copy)]
struct Link {
    /// The time as it was set, even if it is over.
    at: u64,
    /// The previous place in the list. For the first place it is the slot, marked by [`SLOT`].
    /// [`NONE`]: the place has no time.
    before: u32,
    /// The next place in the list.
    after: u32,
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
    /// Sets the time of a place, in ms, and replaces the one that it had. A time that is over is
    /// due at once.
    pub fn set(&mut self, place: u32, at: Millis) {
        self.clear(place);
        while self.links.len() <= place as usize {
            self.links.push(Link { at: 0, before: NONE, after: NONE });
        }
        self.insert(place, u64::try_from(at).unwrap_or(0));
    }

    /// Clears the time of a place, if it has one.
    pub fn clear(&mut self, place: u32) {
        let Some(link) = self.links.get_mut(place as usize) else {
            return;
        };
        let Link { before, after, .. } = *link;
        if before == NONE {
            return;
        }
        link.before = NONE;
        if let Some(next) = self.links.get_mut(after as usize) {
            next.before = before;
        }
        if before & SLOT == 0 {
            if let Some(last) = self.links.get_mut(before as usize) {
                last.after = after;
            }
            return;
        }
        let (level, slot) = ((before & !SLOT) as usize / SLOTS, before as usize % SLOTS);
        self.heads[level][slot] = after;
        if after == NONE {
            self.mark_empty(level, slot);
        }
    }

    /// Moves the time of one place to another, and removes the places from `places` on.
    pub fn pack(&mut self, moved: Option<(u32, u32)>, places: usize) {
        if let Some((from, to)) = moved {
            let link = self.links.get(from as usize).filter(|link| link.before != NONE);
            if let Some(at) = link.map(|link| link.at) {
                self.clear(from);
                self.insert(to, at);
            }
        }
        while self.links.len() > places {
            self.links.pop();
        }
    }

    /// A time that is not later than the first one, in ms. It is exact once the first time is near.
    /// None: there are no times.
    pub fn first(&self) -> Option<Millis> {
        let (level, slot) = self.first_slot()?;
        let first = if self.moving.is_some() { self.now } else { self.slot_start(level, slot) };
        Some(Millis::try_from(first).unwrap_or(Millis::MAX))
    }

    /// Does one step towards `now`, at a cost that does not depend on the number of times.
    pub fn step(&mut self, now: Millis) -> Step {
        let now = u64::try_from(now).unwrap_or(0);
        if let Some((level, slot)) = self.moving {
            let place = self.heads[level][slot];
            if let Some(&Link { at, .. }) = self.links.get(place as usize) {
                self.clear(place);
                self.insert(place, at);
                return Step::Moved;
            }
            self.moving = None;
        }
        let first =
            self.first_slot().map(|(level, slot)| (level, slot, self.slot_start(level, slot)));
        let Some((level, slot, start)) = first.filter(|(.., start)| *start < now) else {
            // The wheel stops before `now`: the first slot may begin there.
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

    /// Frees a part of the wheel. False if all of it is free.
    pub fn drop_some(&mut self) -> bool {
        self.links.drop_chunk()
    }

    /// Adds a place to the slot of its time. A time that is over goes to the current slot.
    fn insert(&mut self, place: u32, time: u64) {
        let at = time.max(self.now);
        let differs = (at ^ self.now) | (SLOTS as u64 - 1);
        let level = (differs.ilog2() / BITS) as usize;
        let slot = (at >> (level as u32 * BITS)) as usize % SLOTS;
        let after = std::mem::replace(&mut self.heads[level][slot], place);
        if let Some(next) = self.links.get_mut(after as usize) {
            next.before = place;
        }
        let before = SLOT | (level * SLOTS + slot) as u32;
        if let Some(link) = self.links.get_mut(place as usize) {
            *link = Link { at: time, before, after };
        }
        self.occupied[level] |= 1 << slot;
        self.levels |= 1 << level;
    }

    fn mark_empty(&mut self, level: usize, slot: usize) {
        self.occupied[level] &= !(1 << slot);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    /// The first slot that has times. It is in the lowest level that has any: all times of a level
    /// are before those of the higher levels.
    fn first_slot(&self) -> Option<(usize, usize)> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    /// The ms at which a slot begins, but not before `now`.
    fn slot_start(&self, level: usize, slot: usize) -> u64 {
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

    /// Steps with few places, and with times near and far.
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
            // The times of a server count from 1970.
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
        let mut fired = Vec::new();
        while let Some(first) = wheel.first() {
            wakes += 1;
            while let Some(place) = wheel.take_before(first + 1) {
                fired.push((place, first));
            }
        }
        assert_eq!(fired, [(1, 1_000_000), (2, 1_030_000)]);
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
