//! When something ends, as a test can know it.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

/// The end of a lease, a unix time in ms.
///
/// The server's clock ran while it granted the lease, so at first a test knows
/// only bounds. The first end that is found within them is what all later ones
/// (and all clones) must be, to the millisecond.
#[derive(Clone, PartialEq, Eq)]
pub struct Lease(Rc<Cell<Bounds>>);

/// The earliest and the latest end; None for what never ends.
type Bounds = Option<(i64, i64)>;

impl Lease {
    pub fn never() -> Self {
        Self(Rc::new(Cell::new(None)))
    }

    /// `ms` from some time between these two.
    pub(super) fn of(ms: i64, (before, after): (i64, i64)) -> Self {
        Self(Rc::new(Cell::new(Some((before + ms, after + ms)))))
    }

    /// Is this the end? From now on no other is.
    pub(super) fn is(&self, end: Option<i64>) -> bool {
        match (self.0.get(), end) {
            (None, None) => true,
            (Some((earliest, latest)), Some(end)) if (earliest..=latest).contains(&end) => {
                self.0.set(Some((end, end)));
                true
            }
            _ => false,
        }
    }

    /// The replies that tell how many ms are left at some time between these
    /// two: -1 without end, else never below 1.
    pub(super) fn left(&self, (before, after): (i64, i64)) -> (i64, i64) {
        match self.0.get() {
            None => (-1, -1),
            Some((earliest, latest)) => ((earliest - after).max(1), (latest - before).max(1)),
        }
    }

    /// The latest time that it may be.
    pub fn latest(&self) -> i64 {
        self.0.get().map_or(i64::MAX, |(_, latest)| latest)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.get() {
            None => write!(f, "never"),
            Some((earliest, latest)) if earliest == latest => write!(f, "{latest}"),
            Some((earliest, latest)) => write!(f, "{earliest}..={latest}"),
        }
    }
}
