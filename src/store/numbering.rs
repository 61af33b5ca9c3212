//! The numbers of an owner's read holds. Pure.
//!
//! The numbers go from 1 to the count without gaps. When a hold lapses, the holds with higher
//! numbers move down. There is one exception: a number whose timeout key belongs to another lock is
//! skipped, because the module must not write that key.

use super::Error;
use crate::core::{End, Ends};
use smallvec::SmallVec;

/// The read hold of one number from 1 to the count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReadHold {
    /// A live hold.
    Live(End),
    /// A lapsed hold: its timeout key does not exist or has expired.
    Lapsed,
    /// No hold: the timeout key belongs to the lock of this name.
    OfOtherLock(Vec<u8>),
}

/// The read holds of one owner, by number from 1 to the count.
pub(super) type ReadHolds = SmallVec<[ReadHold; 2]>;

/// Changes of one owner's timeout keys.
pub(super) type Steps = SmallVec<[Step; 2]>;

/// A change of the timeout key of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Write the key, with this end.
    Set(u64, End),
    /// Give the existing key this end.
    Expire(u64, End),
    /// Delete the key.
    Delete(u64),
}

impl Step {
    /// The number of the read hold.
    pub fn number(self) -> u64 {
        match self {
            Step::Set(number, _) | Step::Expire(number, _) | Step::Delete(number) => number,
        }
    }
}

/// The steps from `read_holds` to read holds with these `ends`, and the new count. The first ends
/// are those of the live holds, lowest number first; further ends are those of new holds.
/// [`Error::Clash`]: a new hold is refused while a number belongs to another lock.
pub(super) fn renumber(read_holds: &[ReadHold], ends: &[End]) -> Result<(Steps, u64), Error> {
    if read_holds.is_empty() {
        let steps = (1..).zip(ends).map(|(number, end)| Step::Set(number, *end)).collect();
        return Ok((steps, ends.len() as u64));
    }
    let live: SmallVec<[(u64, End); 4]> = numbered(read_holds)
        .filter_map(|(number, read_hold)| match read_hold {
            ReadHold::Live(end) => Some((number, *end)),
            _ => None,
        })
        .collect();
    if ends.len() > live.len() {
        if let Some(ReadHold::OfOtherLock(lock)) =
            read_holds.iter().find(|read_hold| matches!(read_hold, ReadHold::OfOtherLock(_)))
        {
            return Err(Error::Clash(lock.clone()));
        }
    }
    let placed: SmallVec<[(u64, End); 4]> =
        free_numbers(read_holds).zip(ends.iter().copied()).collect();
    let mut steps = Steps::new();
    for (index, &(number, end)) in placed.iter().enumerate() {
        match live.get(index) {
            Some(&(from, until)) if from == number && until == end => {}
            Some(&(from, _)) if from == number => steps.push(Step::Expire(number, end)),
            _ => steps.push(Step::Set(number, end)),
        }
    }
    let count = placed.last().map_or(0, |&(number, _)| number);
    for (number, _) in live {
        if placed.binary_search_by_key(&number, |&(number, _)| number).is_err() {
            steps.push(Step::Delete(number));
        }
    }
    Ok((steps, count))
}

/// The numbers that read holds can have, lowest first: all but those whose timeout keys belong to
/// other locks.
pub(super) fn free_numbers(read_holds: &[ReadHold]) -> impl Iterator<Item = u64> + '_ {
    (1..).filter(|&number| !matches!(read_hold(read_holds, number), Some(ReadHold::OfOtherLock(_))))
}

/// The number that the live read hold of this number has after it is renumbered; None: no live hold
/// has this number.
pub(super) fn number_after(read_holds: &[ReadHold], number: u64) -> Option<u64> {
    rank_of(read_holds, number).and_then(|rank| free_numbers(read_holds).nth(rank))
}

/// The position among the live read holds, from 0, of the one with this number; None: no live hold
/// has it.
pub(super) fn rank_of(read_holds: &[ReadHold], number: u64) -> Option<usize> {
    let live = numbered(read_holds).filter(|(_, read_hold)| matches!(read_hold, ReadHold::Live(_)));
    live.map(|(live, _)| live).position(|live| live == number)
}

fn numbered(read_holds: &[ReadHold]) -> impl Iterator<Item = (u64, &ReadHold)> {
    (1..).zip(read_holds)
}

fn read_hold(read_holds: &[ReadHold], number: u64) -> Option<&ReadHold> {
    usize::try_from(number - 1).ok().and_then(|index| read_holds.get(index))
}

/// The ends of the live read holds, lowest number first.
pub(super) fn live_ends(read_holds: &[ReadHold]) -> Ends {
    read_holds
        .iter()
        .filter_map(|read_hold| match read_hold {
            ReadHold::Live(end) => Some(*end),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ReadHold::{Lapsed, Live};
    use Step::{Delete, Expire, Set};

    const A: End = End::At(10);
    const B: End = End::At(20);
    const C: End = End::At(30);

    /// The steps as a `Vec`, for comparison.
    fn steps(read_holds: &[ReadHold], ends: &[End]) -> Result<(Vec<Step>, u64), Error> {
        renumber(read_holds, ends).map(|(steps, count)| (steps.into_vec(), count))
    }

    fn of_other_lock() -> ReadHold {
        ReadHold::OfOtherLock(b"other".to_vec())
    }

    #[test]
    fn a_new_hold_gets_the_next_number() {
        assert_eq!(steps(&[], &[A]), Ok((vec![Set(1, A)], 1)));
        assert_eq!(steps(&[Live(A)], &[A, B]), Ok((vec![Set(2, B)], 2)));
    }

    #[test]
    fn the_highest_goes_first() {
        assert_eq!(steps(&[Live(A), Live(B)], &[A]), Ok((vec![Delete(2)], 1)));
        assert_eq!(steps(&[Live(A)], &[]), Ok((vec![Delete(1)], 0)));
    }

    #[test]
    fn a_lapse_moves_the_higher_ones_down() {
        let read_holds = [Lapsed, Live(B), Lapsed, Live(C)];
        assert_eq!(steps(&read_holds, &[B, C]), Ok((vec![Set(1, B), Set(2, C), Delete(4)], 2)));
        assert_eq!(steps(&read_holds, &[B, C, A]).unwrap().1, 3);
        assert_eq!(steps(&[Lapsed], &[]), Ok((vec![], 0)));
    }

    #[test]
    fn a_longer_lease_is_an_expiry() {
        assert_eq!(steps(&[Live(A), Live(B)], &[A, C]), Ok((vec![Expire(2, C)], 2)));
    }

    #[test]
    fn a_key_of_another_lock_is_stepped_over_and_bars_new_holds() {
        let read_holds = [of_other_lock(), Live(A)];
        assert_eq!(steps(&read_holds, &[A]), Ok((vec![], 2)));
        assert_eq!(steps(&read_holds, &[]), Ok((vec![Delete(2)], 0)));
        assert_eq!(steps(&read_holds, &[A, B]), Err(Error::Clash(b"other".to_vec())));
        assert_eq!(
            steps(&[of_other_lock(), Lapsed, Live(A)], &[B]),
            Ok((vec![Set(2, B), Delete(3)], 2))
        );
    }
}
