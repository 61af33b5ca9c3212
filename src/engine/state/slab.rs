//! A list of values whose index stays the same until the list is packed.
//!
//! There may be millions of values, so no step here takes longer the more there are. Room grows and
//! shrinks by chunks, and packing goes step by step.

/// The number of elements of a chunk.
const CHUNK: usize = 512;

/// A list that grows and shrinks by chunks, so it never moves its elements.
pub struct Chunks<T> {
    chunks: Vec<Vec<T>>,
    /// The last chunk that became empty. It saves an allocation each time when elements are pushed
    /// and popped at the edge of a chunk.
    spare: Vec<T>,
    len: usize,
}

impl<T> Default for Chunks<T> {
    fn default() -> Chunks<T> {
        Chunks { chunks: Vec::new(), spare: Vec::new(), len: 0 }
    }
}

impl<T> Chunks<T> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The element at this index.
    pub fn get(&self, index: usize) -> Option<&T> {
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    /// The element at this index, to change it.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)
    }

    /// Adds an element at the end.
    pub fn push(&mut self, element: T) {
        if self.len % CHUNK == 0 {
            let mut chunk = std::mem::take(&mut self.spare);
            if !self.chunks.is_empty() {
                // The first chunk grows with its elements, because most lists are small.
                chunk.reserve_exact(CHUNK);
            }
            self.chunks.push(chunk);
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push(element);
            self.len += 1;
        }
    }

    /// Removes the last element.
    pub fn pop(&mut self) -> Option<T> {
        let chunk = self.chunks.last_mut()?;
        let element = chunk.pop()?;
        self.len -= 1;
        if chunk.is_empty() {
            self.spare = self.chunks.pop().unwrap_or_default();
        }
        Some(element)
    }

    /// Drops the last chunk with its elements. False if there is none.
    pub fn drop_chunk(&mut self) -> bool {
        let Some(chunk) = self.chunks.pop() else {
            return false;
        };
        self.len -= chunk.len();
        true
    }
}

/// Values in places. A place has a number from 0 up, and a value keeps its place until
/// [`Slab::pack`] moves it.
pub struct Slab<T> {
    places: Chunks<Option<T>>,
    used: usize,
    /// The free places. May contain places that do not exist any more.
    free: Chunks<u32>,
    phase: Phase,
}

/// The phase of packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No packing is needed.
    Idle,
    /// The last values move to free places.
    Moving,
    /// Places that do not exist any more are removed from `free`. The list is done up to this
    /// index.
    Cleaning(usize),
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { places: Chunks::default(), used: 0, free: Chunks::default(), phase: Phase::Idle }
    }
}

impl<T> Slab<T> {
    /// The number of places, free ones included.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// The value in a place.
    pub fn get(&self, place: u32) -> Option<&T> {
        self.places.get(place as usize)?.as_ref()
    }

    /// The value in a place, to change it.
    pub fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    /// The value in an existing place. An empty place gets the value of `make` first. Panics if the
    /// place does not exist.
    pub fn get_or_insert_with(&mut self, place: u32, make: impl FnOnce() -> T) -> &mut T {
        let place = place as usize;
        let value = &mut self.places.chunks[place / CHUNK][place % CHUNK];
        self.used += usize::from(value.is_none());
        value.get_or_insert_with(make)
    }

    /// Puts a value into a free place. Returns the place.
    pub fn add(&mut self, value: T) -> u32 {
        self.used += 1;
        match self.take_free() {
            Some(place) => {
                self.put(place, value);
                place
            }
            None => {
                self.places.push(Some(value));
                self.places.len() as u32 - 1
            }
        }
    }

    /// Removes the value in a place.
    pub fn remove(&mut self, place: u32) -> Option<T> {
        let value = self.places.get_mut(place as usize)?.take()?;
        self.used -= 1;
        self.free.push(place);
        Some(value)
    }

    /// All values, to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.chunks.iter_mut().flatten().flatten()
    }

    /// Whether to call [`Slab::pack`]. Packing begins when more than half of the places are free,
    /// and ends when about a ninth or less is.
    pub fn is_sparse(&self) -> bool {
        self.phase != Phase::Idle || self.free_places() > self.used + 2 * CHUNK
    }

    /// Does one step of packing, at a cost that does not depend on the number of values. Returns
    /// the old and the new place of a value, if it moved one.
    pub fn pack(&mut self) -> Option<(u32, u32)> {
        if let Phase::Cleaning(next) = self.phase {
            self.phase = self.clean_free(next);
            return None;
        }
        let moved = self.move_last();
        let is_packed = self.free_places() <= self.used / 8 + CHUNK;
        self.phase = if is_packed { Phase::Cleaning(0) } else { Phase::Moving };
        moved
    }

    /// Removes the last place, and moves its value to a free one.
    fn move_last(&mut self) -> Option<(u32, u32)> {
        self.places.pop().flatten().and_then(|value| {
            let from = self.places.len() as u32;
            match self.take_free() {
                Some(to) => {
                    self.put(to, value);
                    Some((from, to))
                }
                None => {
                    self.places.push(Some(value));
                    None
                }
            }
        })
    }

    /// Removes one place from `free` if it does not exist any more.
    fn clean_free(&mut self, next: usize) -> Phase {
        match self.free.get(next) {
            None => Phase::Idle,
            Some(place) if self.is_free(*place) => Phase::Cleaning(next + 1),
            Some(_) => {
                let last = self.free.pop();
                if let (Some(place), Some(last)) = (self.free.get_mut(next), last) {
                    *place = last;
                }
                Phase::Cleaning(next)
            }
        }
    }

    fn free_places(&self) -> usize {
        self.places.len() - self.used
    }

    fn is_free(&self, place: u32) -> bool {
        matches!(self.places.get(place as usize), Some(None))
    }

    /// Drops the last chunk of values. False if there is none. The slab must not be used for
    /// anything else afterwards.
    pub fn drop_chunk(&mut self) -> bool {
        self.places.drop_chunk()
    }

    fn put(&mut self, place: u32, value: T) {
        if let Some(free) = self.places.get_mut(place as usize) {
            *free = Some(value);
        }
    }

    /// Takes a free place. A place in `free` that does not exist is skipped. It cannot come to
    /// exist again while it is in `free`: new places are added only when `free` is empty.
    fn take_free(&mut self) -> Option<u32> {
        loop {
            let place = self.free.pop()?;
            if self.is_free(place) {
                return Some(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Step {
        Add(usize),
        /// Removes every other value, so many of them, from this position on.
        Remove(usize, usize),
        Pack,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..1_500_usize).prop_map(Step::Add),
            (0..5_000_usize, 0..2_500_usize).prop_map(|(at, count)| Step::Remove(at, count)),
            Just(Step::Pack),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn it_keeps_what_is_in_it_and_no_more_room_than_that(
            steps in prop::collection::vec(step(), 1..10)
        ) {
            let mut slab = Slab::default();
            let mut values: BTreeMap<u32, u32> = BTreeMap::new();
            let mut last = 0;
            for step in steps {
                match step {
                    Step::Add(count) => for _ in 0..count {
                        last += 1;
                        let place = slab.add(last);
                        prop_assert_eq!(values.insert(place, last), None);
                    },
                    Step::Remove(at, count) => {
                        let places: Vec<u32> = values.keys().copied().collect();
                        for place in places.into_iter().skip(at).step_by(2).take(count) {
                            prop_assert_eq!(slab.remove(place), values.remove(&place));
                            prop_assert_eq!(slab.remove(place), None);
                        }
                    }
                    Step::Pack => while slab.is_sparse() {
                        if let Some((from, to)) = slab.pack() {
                            let value = values.remove(&from);
                            prop_assert!(value.is_some());
                            prop_assert_eq!(values.insert(to, value.unwrap_or(0)), None);
                        }
                    },
                }
                prop_assert_eq!(slab.values_mut().count(), values.len());
                for (place, value) in &values {
                    prop_assert_eq!(slab.get(*place), Some(value));
                }
                if matches!(step, Step::Pack) {
                    prop_assert!(slab.places() <= 2 * values.len() + 2 * CHUNK);
                }
            }
        }
    }

    #[test]
    fn what_is_empty_takes_no_room() {
        let mut slab = Slab::default();
        let places: Vec<u32> = (0..100_000).map(|value| slab.add(value)).collect();
        for place in places {
            slab.remove(place);
        }
        while slab.is_sparse() {
            assert_eq!(slab.pack(), None);
        }
        assert!(slab.places() <= 2 * CHUNK, "{}", slab.places());
    }
}
