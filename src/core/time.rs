//! Points in time, counted like the server's expiry: unix time in ms.

/// A duration or a unix time, in ms.
pub type Millis = i64;

/// When a hold, a lock or a reservation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The last ms of its life, as a unix time.
    At(Millis),
    /// It has no expiry, for example after PERSIST. This is later than any other end.
    Never,
}

impl End {
    /// The end of a lease of `lease` ms that starts `now`. None when `lease` is below 1, or
    /// when the end does not fit into 64 bits, in which the server counts expiry.
    pub fn of_lease(now: Millis, lease: Millis) -> Option<End> {
        if lease < 1 {
            return None;
        }
        now.checked_add(lease).map(End::At)
    }

    /// Whether it is over at `now`. A lease lives while `now` ≤ its end.
    pub fn is_past(self, now: Millis) -> bool {
        matches!(self, End::At(end) if now > end)
    }

    /// The ms that remain at `now`, at least 1, because 0 means "ended" in replies. None: it
    /// never ends.
    pub fn remaining(self, now: Millis) -> Option<Millis> {
        match self {
            End::At(end) => Some(end.saturating_sub(now).max(1)),
            End::Never => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_one_or_more_and_fits() {
        assert_eq!(End::of_lease(100, 0), None);
        assert_eq!(End::of_lease(100, -5), None);
        assert_eq!(End::of_lease(100, 1), Some(End::At(101)));
        assert_eq!(End::of_lease(100, Millis::MAX - 100), Some(End::At(Millis::MAX)));
        assert_eq!(End::of_lease(100, Millis::MAX - 99), None);
    }

    #[test]
    fn an_end_lives_through_its_last_millisecond() {
        assert!(!End::At(10).is_past(10));
        assert!(End::At(10).is_past(11));
        assert!(!End::Never.is_past(Millis::MAX));
        assert_eq!(End::At(10).remaining(7), Some(3));
        assert_eq!(End::At(10).remaining(10), Some(1));
        assert_eq!(End::At(10).remaining(12), Some(1));
        assert_eq!(End::Never.remaining(10), None);
        assert!(End::Never > End::At(Millis::MAX));
    }
}
