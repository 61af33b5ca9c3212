//! Walks over the remembered locks of a database in several calls, with a cursor.
//!
//! A walk goes through the list from its end to its beginning. Packing moves an entry only to a
//! place nearer to the beginning, and an entry never moves otherwise. So a walk cannot miss an entry
//! that is there all the time, and may meet one twice. The list may grow and shrink meanwhile.

use super::memory::{Known, Locks, Memory};

/// A walk, from a cursor on. Each step is a place of the list. None in it: the place is free.
pub struct Walk<'m> {
    locks: Option<&'m Locks>,
    /// The number of places that are not visited yet: those from 0 on.
    rest: u32,
}

/// The bits of a cursor that are the number of places. The others are the number of the list. No
/// cursor has more than 52 bits, because some clients keep it in a floating point number.
const PLACE_BITS: u32 = 32;

/// The bits of a cursor that are the number of the list.
const LIST_BITS: u32 = 20;

impl Memory {
    /// Goes on with a walk from a cursor of [`Walk::cursor`]. 0: begins one. If the list of the
    /// database was replaced since (by SWAPDB, FLUSHALL or a change of the role), the walk begins
    /// again.
    pub fn walk(&self, db: i32, cursor: u64) -> Walk<'_> {
        let locks = self.locks(db);
        let places = locks.map_or(0, |locks| u32::try_from(locks.known.places()).unwrap_or(0));
        let rest = match locks {
            Some(locks) if cursor >> PLACE_BITS == list_number(locks) => {
                places.min(u32::try_from(cursor & ((1 << PLACE_BITS) - 1)).unwrap_or(0))
            }
            _ => places,
        };
        Walk { locks, rest }
    }
}

impl Walk<'_> {
    /// The cursor from which the walk goes on. 0: it is finished.
    pub fn cursor(&self) -> u64 {
        match self.locks {
            Some(locks) if self.rest > 0 => list_number(locks) << PLACE_BITS | u64::from(self.rest),
            _ => 0,
        }
    }
}

impl<'m> Iterator for Walk<'m> {
    type Item = Option<&'m Known>;

    fn next(&mut self) -> Option<Option<&'m Known>> {
        self.rest = self.rest.checked_sub(1)?;
        Some(self.locks?.known.get(self.rest))
    }
}

fn list_number(locks: &Locks) -> u64 {
    u64::from(locks.list) & ((1 << LIST_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Mode;
    use crate::store::LockRef;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Debug)]
    enum Step {
        Add(u32),
        /// Removes every other lock that may go, so many of them, from this one on.
        Remove(usize, usize),
        /// Does so many steps of packing.
        Pack(usize),
        /// Goes on with the walk, over so many places.
        Walk(usize),
        /// Exchanges the database with an empty one and back.
        Swap,
        /// Exchanges the database with another one that has all the locks that stay.
        Replace,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            2 => (0..1_500_u32).prop_map(Step::Add),
            3 => (0..3_000_usize, 0..3_000_usize).prop_map(|(at, count)| Step::Remove(at, count)),
            4 => (0..4_000_usize).prop_map(Step::Pack),
            8 => (0..700_usize).prop_map(Step::Walk),
            1 => Just(Step::Swap),
            1 => Just(Step::Replace),
        ]
    }

    fn add(memory: &mut Memory, db: i32, number: u32) {
        let name = number.to_be_bytes();
        memory.set_mode(LockRef { db, name: &name }, Some(Mode::Write));
    }

    /// The list is sparse at times, so that packing has something to do.
    fn pack(memory: &mut Memory, steps: usize) {
        for _ in 0..steps {
            match memory.find_sparse() {
                Some(db) => _ = memory.pack(db),
                None => break,
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        /// Every 50th lock stays. A walk meets each of them, whatever becomes of the others.
        #[test]
        fn a_walk_meets_every_lock_that_is_there_all_the_time(
            steps in prop::collection::vec(step(), 1..60)
        ) {
            let stays = |number: &u32| number % 50 == 0;
            let mut memory = Memory::default();
            let mut others: BTreeSet<u32> = BTreeSet::new();
            for number in 0..3_000 {
                add(&mut memory, 0, number);
                others.extend(Some(number).filter(|number| !stays(number)));
            }
            let staying: BTreeSet<u32> = (0..3_000).filter(stays).collect();
            let (mut cursor, mut met, mut last) = (0, BTreeSet::new(), 3_000);
            let go_on = |memory: &Memory, cursor: &mut u64, met: &mut BTreeSet<u32>, places| {
                let mut walk = memory.walk(0, *cursor);
                for known in walk.by_ref().take(places).flatten() {
                    let name = known.name().try_into().expect("4 bytes");
                    met.insert(u32::from_be_bytes(name));
                }
                *cursor = walk.cursor();
            };
            for step in steps {
                match step {
                    Step::Add(count) => for _ in 0..count {
                        last += 1;
                        if !stays(&last) {
                            add(&mut memory, 0, last);
                            others.insert(last);
                        }
                    },
                    Step::Remove(at, count) => {
                        let go: Vec<u32> =
                            others.iter().copied().skip(at).step_by(2).take(count).collect();
                        for number in go {
                            others.remove(&number);
                            let name = number.to_be_bytes();
                            let place = memory.place(LockRef { db: 0, name: &name });
                            memory.remove(place.expect("it is remembered"));
                        }
                    }
                    Step::Pack(steps) => pack(&mut memory, steps),
                    Step::Walk(places) => {
                        go_on(&memory, &mut cursor, &mut met, places + 1);
                        if cursor == 0 {
                            prop_assert!(met.is_superset(&staying), "a whole walk");
                            met.clear();
                        }
                    }
                    Step::Swap => {
                        memory.swap(0, 3);
                        prop_assert_eq!(memory.walk(0, 0).count(), 0);
                        memory.swap(3, 0);
                    }
                    Step::Replace => {
                        staying.iter().rev().for_each(|number| add(&mut memory, 1, *number));
                        memory.swap(0, 1);
                        memory.take(1);
                        others.clear();
                    }
                }
                prop_assert_eq!(memory.held(), staying.len() + others.len());
            }
            let mut calls = 0;
            while calls == 0 || cursor != 0 {
                go_on(&memory, &mut cursor, &mut met, 100);
                calls += 1;
                prop_assert!(calls < 10_000, "the walk ends");
            }
            prop_assert!(met.is_superset(&staying));
        }
    }

    #[test]
    fn any_cursor_is_good_for_something() {
        let mut memory = Memory::default();
        assert_eq!(memory.walk(0, 0).cursor(), 0);
        assert_eq!(memory.walk(7, 12_345).cursor(), 0);
        (0..10).for_each(|number| add(&mut memory, 0, number));
        let mut walk = memory.walk(0, 0);
        assert_eq!(walk.by_ref().take(4).flatten().count(), 4);
        let cursor = walk.cursor();
        assert!(cursor > 0 && cursor < 1 << 52);
        assert_eq!(memory.walk(0, cursor).count(), 6);
        for foreign in [1, 11, u64::MAX, cursor | 0xffff_ffff] {
            assert!(memory.walk(0, foreign).count() <= 10);
        }
    }
}
