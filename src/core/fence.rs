//! Fencing tokens (`docs/fencing.md`).

use super::TooMany;
use crate::planted::{is_planted, Bug};

/// A fencing token: 1 to [`MAX_TOKEN`]. Each new token of a lock is larger than all earlier
/// tokens of that lock.
pub type Token = i64;

/// The largest token, 2^53 - 1: Lua, JavaScript and JSON can represent integers exactly up to
/// this one.
pub const MAX_TOKEN: Token = (1 << 53) - 1;

/// The last token of a lock, from two sources; 0: none.
#[derive(Clone, Copy, Debug)]
pub struct LastToken {
    /// The value of the fence key.
    pub stored: Token,
    /// The token that memory has.
    pub known: Token,
}

/// The token of a write hold. Fails with [`TooMany::Tokens`] if it would be larger than
/// [`MAX_TOKEN`].
///
/// `of_tenure`: the token that the owner got earlier in this period of writing. It is repeated
/// while the fence key still has it. `clock`: the unix time in µs. A new token is never smaller,
/// so tokens go on increasing even if the fence key is lost.
pub fn token(last: LastToken, of_tenure: Option<Token>, clock: i64) -> Result<Token, TooMany> {
    if of_tenure == Some(last.stored) {
        return Ok(last.stored);
    }
    let clock = if is_planted(Bug::RepeatedToken) { 0 } else { clock };
    let next = last.stored.max(last.known).saturating_add(1).max(clock);
    if next > MAX_TOKEN {
        return Err(TooMany::Tokens);
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn last(stored: Token) -> LastToken {
        LastToken { stored, known: 0 }
    }

    #[test]
    fn the_clock_leads_unless_it_is_behind() {
        assert_eq!(token(last(0), None, 1_000), Ok(1_000));
        assert_eq!(token(last(999), None, 1_000), Ok(1_000));
        assert_eq!(token(last(1_000), None, 1_000), Ok(1_001));
        assert_eq!(token(last(5_000), None, 1_000), Ok(5_001));
        // The clock is before 1970.
        assert_eq!(token(last(0), None, -1), Ok(1));
    }

    #[test]
    fn a_tenure_keeps_its_token_while_it_is_the_last() {
        assert_eq!(token(last(1_000), Some(1_000), 2_000), Ok(1_000));
        // An external change wrote the fence key, then one removed it.
        assert_eq!(token(last(1_001), Some(1_000), 900), Ok(1_002));
        assert_eq!(token(last(0), Some(1_000), 2_000), Ok(2_000));
        // The key is gone and the clock was set back: memory has the last token.
        let lost = LastToken { stored: 0, known: 1_000 };
        assert_eq!(token(lost, Some(1_000), 900), Ok(1_001));
    }

    #[test]
    fn there_is_no_token_beyond_the_largest() {
        // JavaScript calls this one Number.MAX_SAFE_INTEGER.
        assert_eq!(MAX_TOKEN, 9_007_199_254_740_991);
        assert_eq!(token(last(MAX_TOKEN - 1), None, 0), Ok(MAX_TOKEN));
        assert_eq!(token(last(MAX_TOKEN), Some(MAX_TOKEN), 0), Ok(MAX_TOKEN));
        for stored in [MAX_TOKEN, MAX_TOKEN + 1, i64::MAX] {
            assert_eq!(token(last(stored), None, 0), Err(TooMany::Tokens));
        }
        assert_eq!(token(last(0), None, MAX_TOKEN + 1), Err(TooMany::Tokens));
    }

    /// A clock in µs: mostly of this century, else any value.
    fn clock() -> impl Strategy<Value = i64> {
        prop_oneof![4 => 1_700_000_000_000_000_i64..4_000_000_000_000_000, 1 => any::<i64>()]
    }

    proptest! {
        #[test]
        fn a_new_one_is_above_the_last_and_not_behind_the_clock(
            stored in prop_oneof![0..=i64::MAX, MAX_TOKEN - 3..=MAX_TOKEN + 3],
            known in 0..=MAX_TOKEN,
            of_tenure in proptest::option::of(any::<i64>()),
            clock in clock(),
        ) {
            let last = stored.max(known);
            match token(LastToken { stored, known }, of_tenure, clock) {
                Ok(repeated) if of_tenure == Some(repeated) && repeated == stored => {}
                Ok(new) => prop_assert!(new > last && new >= clock && new <= MAX_TOKEN),
                Err(error) => {
                    prop_assert_eq!(error, TooMany::Tokens);
                    prop_assert!(last >= MAX_TOKEN || clock > MAX_TOKEN);
                }
            }
        }

        /// Tokens increase with any clock while the last token is kept. They also increase
        /// when the last token is sometimes forgotten, if the clock only goes forward.
        #[test]
        fn tokens_increase(
            steps in proptest::collection::vec((clock(), any::<bool>()), 1..100),
            forgetful in any::<bool>(),
        ) {
            let (mut stored, mut highest, mut now) = (0, 0, 0_i64);
            for (clock, forget) in steps {
                if forgetful {
                    // The clock goes forward by 1 µs or more for each token.
                    now = now.saturating_add(clock.rem_euclid(1_000)).saturating_add(1);
                    if forget {
                        stored = 0;
                    }
                } else {
                    now = clock;
                }
                if let Ok(next) = token(last(stored), None, now) {
                    prop_assert!(next > highest);
                    (stored, highest) = (next, next);
                }
            }
        }
    }
}
