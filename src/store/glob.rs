//! Patterns of names, with the meaning that they have for KEYS and SCAN.

use std::ffi::c_char;

/// Whether a name matches a pattern: `*` stands for any bytes, `?` for one byte, `[…]` for one byte
/// of a set with ranges (`a-z`, `^` in front: of the others), and a byte behind `\` for itself.
///
/// It finds the same as the server's `stringmatchlen`. It takes no longer than the length of the
/// pattern times that of the name: only the last `*` is ever tried again. What an earlier `*` could
/// take in addition, the last one can take as well.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    if pattern == b"*" {
        return true;
    }
    let (mut rest, mut left) = (pattern, name);
    // Behind the last `*`: the pattern, and what of the name it is tried on.
    let mut again: Option<(&[u8], &[u8])> = None;
    while !left.is_empty() {
        if rest.first() == Some(&b'*') {
            rest = without_stars(rest);
            if rest.is_empty() {
                return true;
            }
            again = Some((rest, left));
        } else if let Some(behind) = match_one(rest, left[0]) {
            (rest, left) = (behind, &left[1..]);
        } else if let Some((behind, tried)) = again {
            (rest, left) = (behind, &tried[1..]);
            again = Some((behind, left));
        } else {
            return false;
        }
    }
    // The server matches the empty name only with the empty pattern and with `*`.
    rest.is_empty() || !name.is_empty() && without_stars(rest).is_empty()
}

fn without_stars(pattern: &[u8]) -> &[u8] {
    let stars = pattern.iter().take_while(|byte| **byte == b'*').count();
    &pattern[stars..]
}

/// Matches one byte with the first part of a pattern, which is no `*`. Returns the pattern behind
/// that part. None: the byte does not match.
fn match_one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'[', rest @ ..] => {
            let (rest, is_negated) = match rest {
                [b'^', rest @ ..] => (rest, true),
                rest => (rest, false),
            };
            let (is_in_set, rest) = match_set(rest, byte);
            (is_in_set != is_negated).then_some(rest)
        }
        [b'\\', first, rest @ ..] | [first, rest @ ..] => (*first == byte).then_some(rest),
        [] => None,
    }
}

/// Whether a byte is in a set, and the pattern behind the set. A set without its `]` ends with the
/// pattern.
fn match_set(mut set: &[u8], byte: u8) -> (bool, &[u8]) {
    let mut is_in = false;
    loop {
        (is_in, set) = match set {
            [b'\\', first, rest @ ..] => (is_in | (*first == byte), rest),
            [b']', rest @ ..] => return (is_in, rest),
            [] => return (is_in, set),
            [one, b'-', other, rest @ ..] => {
                // The server compares C's `char`, which has a sign on some processors.
                let [one, other, byte] = [*one, *other, byte].map(|byte| byte as c_char);
                let range = one.min(other)..=one.max(other);
                (is_in | range.contains(&byte), rest)
            }
            [first, rest @ ..] => (is_in | (*first == byte), rest),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::matches;
    use proptest::prelude::*;

    #[test]
    fn patterns_mean_what_they_mean_for_the_server() {
        for (pattern, names, others) in [
            ("", &[""][..], &["a"][..]),
            ("*", &["", "a", "abc"], &[]),
            ("**", &["a", "abc"], &[""]),
            ("a*", &["a", "ab", "a*"], &["", "ba"]),
            ("*b*d", &["bd", "abcd", "abdbd"], &["b", "abc", "abdc"]),
            ("a?c", &["abc", "a?c"], &["ac", "abbc"]),
            ("a[bc]d", &["abd", "acd"], &["ad", "abcd"]),
            ("a[^bc]d", &["aad", "a]d"], &["abd", "ad"]),
            ("[c-a]", &["a", "b", "c"], &["d", "-"]),
            ("[a-]", &["a", "]", "^"], &["-", "b"]),
            ("[a", &["a"], &["["]),
            ("[^", &["a", "^"], &["", "ab"]),
            ("[]a", &[], &["a", "]", "]a"]),
            ("[\\]]", &["]"], &["\\"]),
            ("\\*", &["*"], &["a", "\\*"]),
            ("a\\", &["a\\"], &["a"]),
            ("[a-\\]]", &["a]", "]]", "\\]"], &["a", "-]"]),
        ] {
            for name in names {
                assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
            }
            for name in others {
                assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
            }
        }
    }

    #[test]
    fn a_pattern_of_many_stars_takes_no_longer() {
        let (pattern, name) = (b"*a".repeat(5_000), b"a".repeat(4_000));
        assert!(!matches(&pattern, &name));
        assert!(matches(&pattern, &b"a".repeat(5_000)));
    }

    /// The meaning, without any short cut.
    fn simply(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern, name) {
            ([b'*', rest @ ..], _) => {
                (0..=name.len()).any(|skipped| simply(rest, &name[skipped..]))
            }
            (_, [first, left @ ..]) => {
                super::match_one(pattern, *first).is_some_and(|rest| simply(rest, left))
            }
            (_, []) => pattern.is_empty(),
        }
    }

    proptest! {
        #[test]
        fn trying_the_last_star_again_is_enough(
            pattern in prop::collection::vec(prop::sample::select(b"**ab?[]^-\\".to_vec()), 0..12),
            name in prop::collection::vec(prop::sample::select(b"aab]".to_vec()), 1..12),
        ) {
            prop_assert_eq!(matches(&pattern, &name), simply(&pattern, &name));
        }
    }
}
