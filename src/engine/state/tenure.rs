//! For how long a lock has been held.

use super::clock::Steady;
use crate::core::Millis;

/// Since when a lock is held without a gap. It has 6 bytes, because there may be millions of locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tenure {
    /// The ms of the steady clock, with the lowest byte first. 40 bits are enough for 34 years.
    since: [u8; 5],
    began: Began,
}

/// How a tenure began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
enum Began {
    /// There is no tenure.
    #[default]
    Never,
    /// The lock was found held, so the tenure may have begun earlier.
    Earlier,
    /// The free lock was taken.
    Exactly,
}

/// For how many ms a lock has been held without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// This server saw the lock become held.
    Exactly(Millis),
    /// The lock was held when this server saw it first. It may have been held for longer.
    AtLeast(Millis),
}

impl Tenure {
    /// The lock is free.
    pub const NONE: Tenure = Tenure { since: [0; 5], began: Began::Never };

    /// A tenure of a free lock that is taken now.
    pub fn taken(now: Steady) -> Tenure {
        Tenure::new(now, Began::Exactly)
    }

    /// A tenure of a lock that is found held now.
    pub fn found(now: Steady) -> Tenure {
        Tenure::new(now, Began::Earlier)
    }

    fn new(now: Steady, began: Began) -> Tenure {
        let [a, b, c, d, e, ..] = now.0.to_le_bytes();
        Tenure { since: [a, b, c, d, e], began }
    }

    /// Whether there is a tenure.
    pub fn is_some(self) -> bool {
        self.began != Began::Never
    }

    /// For how long the lock has been held. None: there is no tenure.
    pub fn until(self, now: Steady) -> Option<Held> {
        let [a, b, c, d, e] = self.since;
        let ms = now.since(Steady(Millis::from_le_bytes([a, b, c, d, e, 0, 0, 0])));
        match self.began {
            Began::Never => None,
            Began::Earlier => Some(Held::AtLeast(ms)),
            Began::Exactly => Some(Held::Exactly(ms)),
        }
    }
}

impl Held {
    /// The time, if it is known exactly.
    pub fn exactly(self) -> Option<Millis> {
        match self {
            Held::Exactly(ms) => Some(ms),
            Held::AtLeast(_) => None,
        }
    }

    /// The time that is certain.
    pub fn at_least(self) -> Millis {
        match self {
            Held::Exactly(ms) | Held::AtLeast(ms) => ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_the_time_and_how_it_began() {
        assert_eq!(size_of::<Tenure>(), 6);
        assert_eq!(Tenure::NONE.until(Steady(5)), None);
        assert!(!Tenure::NONE.is_some() && Tenure::default() == Tenure::NONE);
        for since in [0, 1, 255, 256, 1 << 32, (1 << 40) - 1] {
            for held in [0, 1, 1 << 33] {
                let now = Steady(since + held);
                assert_eq!(Tenure::taken(Steady(since)).until(now), Some(Held::Exactly(held)));
                assert_eq!(Tenure::found(Steady(since)).until(now), Some(Held::AtLeast(held)));
            }
        }
        // The two ways to tell the time may differ by a little.
        assert_eq!(Tenure::taken(Steady(7)).until(Steady(6)), Some(Held::Exactly(0)));
    }
}
