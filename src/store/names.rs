//! The names of a lock's keys, and checks of the names of locks and owners. Pure.

use super::Error;
use hashbrown::HashMap;
use std::io::Write;

const WRITE: &[u8] = b":write";
const TIMEOUT: &[u8] = b":rwlock_timeout:";
const RESERVATION: &[u8] = b":wait_write";
const FENCE: &[u8] = b":rwlock_fence";
const MAX_OWNER: usize = 1024;

/// The name of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockName<'a> {
    bytes: &'a [u8],
    /// Whether the name contains `{`. By Redisson's rule such a name goes into the derived names
    /// unchanged; any other name goes in between braces, as a hash tag.
    braced: bool,
}

/// A name in parts, which [`Name::append_to`] joins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name<'a> {
    /// The first parts. Unused ones are empty.
    parts: [&'a [u8]; 3],
    /// The other parts of a name that ends in a number, and the number.
    rest: Option<([&'a [u8]; 2], u64)>,
}

impl<'a> Name<'a> {
    /// Appends the name to `whole`.
    pub fn append_to(&self, whole: &mut Vec<u8>) {
        for part in self.parts {
            whole.extend_from_slice(part);
        }
        let Some((parts, number)) = self.rest else {
            return;
        };
        for part in parts {
            whole.extend_from_slice(part);
        }
        match number {
            digit @ 0..=9 => whole.push(b'0' + digit as u8),
            // Writing to memory cannot fail.
            number => drop(write!(whole, "{number}")),
        }
    }
}

/// The meaning of a field of a lock's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldName<'a> {
    /// The mode of the lock.
    Mode,
    /// The number of read holds of this owner.
    Reads(&'a [u8]),
    /// The number of write holds of this owner.
    Writes(&'a [u8]),
}

/// Checks that one command may take all these locks. Errors: [`Error::NamedTwice`];
/// [`Error::Clash`] if two of them share keys, such as `a` and `{a}`; [`Error::BadLockName`].
pub fn check_together(names: &[&[u8]]) -> Result<(), Error> {
    let mut known: HashMap<Vec<u8>, &[u8]> = HashMap::with_capacity(names.len());
    for name in names {
        let name = LockName::new(name, false)?;
        let mut prefix = Vec::new();
        name.prefix().append_to(&mut prefix);
        match known.insert(prefix, name.bytes()) {
            None => {}
            Some(before) if before == name.bytes() => return Err(Error::NamedTwice(before.into())),
            Some(before) => return Err(Error::Clash(before.into())),
        }
    }
    Ok(())
}

/// Whether two of these different locks may share keys. Only a name with a `{` can share them with
/// one without.
pub fn may_share_keys<'n>(mut names: impl Iterator<Item = &'n [u8]>) -> bool {
    let braced = |name: &[u8]| name.contains(&b'{');
    let first = names.next().map(braced);
    names.any(|name| Some(braced(name)) != first)
}

impl<'a> LockName<'a> {
    /// Checks the name. `cluster`: all derived names must be in the slot of the lock. Errors:
    /// [`Error::BadLockName`], and in a cluster [`Error::CrossSlot`].
    pub fn new(name: &'a [u8], cluster: bool) -> Result<LockName<'a>, Error> {
        if is_derived(name) {
            return Err(Error::BadLockName(
                "a name that ends in :wait_write, :rwlock_fence or :rwlock_timeout:<digits> \
                 belongs to the keys of other locks",
            ));
        }
        if cluster && !shares_slot(name) {
            return Err(Error::CrossSlot);
        }
        // Without an early end it costs less for the short names that most locks have.
        let braced = name.iter().fold(false, |found, byte| found | (*byte == b'{'));
        Ok(LockName { bytes: name, braced })
    }

    /// The bytes of the name.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// What all derived names begin with. Two locks with the same prefix share keys.
    pub(super) fn prefix(self) -> Name<'a> {
        self.derived(b"", b"{", b"}:")
    }

    /// The timeout key of an owner's read hold with this number.
    pub(super) fn timeout<'n>(self, owner: &'n [u8], number: u64) -> Name<'n>
    where
        'a: 'n,
    {
        let [open, close]: [&[u8]; 2] = if self.braced { [b"", b":"] } else { [b"{", b"}:"] };
        Name { parts: [open, self.bytes, close], rest: Some(([owner, TIMEOUT], number)) }
    }

    /// The key of a writer's reservation.
    pub(super) fn reservation(self) -> Name<'a> {
        self.derived(b"", b"{", b"}:wait_write")
    }

    /// The key of the last fencing token.
    pub(super) fn fence(self) -> Name<'a> {
        self.derived(b"", b"{", b"}:rwlock_fence")
    }

    /// A key in the lock's slot. No client can use it as long as `number` is secret.
    pub(super) fn probe(self, number: u64) -> Name<'a> {
        let probe: [&[u8]; 2] = [b"rwlock_probe:", b""];
        Name { rest: Some((probe, number)), ..self.derived(b"", b"{", b"}:") }
    }

    /// Redisson's channel of the lock.
    pub(super) fn channel(self) -> Name<'a> {
        self.derived(b"redisson_rwlock:", b"redisson_rwlock:{", b"}")
    }

    /// The channel whose messages name owners.
    pub(super) fn owner_channel(self) -> Name<'a> {
        self.derived(b"", b"{", b"}:channel")
    }

    /// A derived name. For a name that becomes a hash tag: `before`, the name, `behind`, where
    /// `behind` begins with `}`. For a name that contains `{`: `braced`, the name, `behind` without
    /// its `}`.
    fn derived(self, braced: &'a [u8], before: &'a [u8], behind: &'a [u8]) -> Name<'a> {
        let parts = if self.braced {
            [braced, self.bytes, &behind[1..]]
        } else {
            [before, self.bytes, behind]
        };
        Name { parts, rest: None }
    }
}

/// Checks the name of an owner: 1 to 1024 bytes, not `mode`, no end in `:write`.
pub(super) fn check_owner(owner: &[u8]) -> Result<(), Error> {
    if owner.is_empty() || owner.len() > MAX_OWNER {
        return Err(Error::BadOwner("owner must be 1 to 1024 bytes long"));
    }
    if owner == b"mode" || owner.ends_with(WRITE) {
        return Err(Error::BadOwner("owner must not be 'mode' nor end in ':write'"));
    }
    Ok(())
}

/// The field that counts an owner's write holds.
pub(super) fn write_field(owner: &[u8]) -> Name<'_> {
    Name { parts: [owner, WRITE, b""], rest: None }
}

/// The meaning of a field of a lock's hash, by its name.
pub(super) fn field_name(field: &[u8]) -> FieldName<'_> {
    if field == b"mode" {
        return FieldName::Mode;
    }
    match field.strip_suffix(WRITE) {
        Some(owner) => FieldName::Writes(owner),
        None => FieldName::Reads(field),
    }
}

/// Whether the name ends like a derived key.
fn is_derived(name: &[u8]) -> bool {
    match name.last() {
        // Many names of locks end in a digit, but few are this long.
        Some(b'0'..=b'9') => name.len() > TIMEOUT.len() && without_timeout(name).is_some(),
        _ => name.ends_with(RESERVATION) || name.ends_with(FENCE),
    }
}

/// The part of the name before `:rwlock_timeout:<digits>`; None: the name does not end so.
fn without_timeout(name: &[u8]) -> Option<&[u8]> {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    name[..name.len() - digits].strip_suffix(TIMEOUT)
}

/// The locks to which a key may belong as a timeout key or as a reservation, the most probable
/// first. At most [`MAX_GUESSES`] prefixes are tried; none for any other key. There can be more
/// than one lock: the end of the lock's name is not certain if the name of the lock or the owner
/// contains `:`, and a key that begins with `{a}` may belong to the lock `a` or to the lock `{a}`.
pub fn locks_of_key(key: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let of_reservation = key.strip_suffix(RESERVATION).map(|prefix| (prefix, prefix.len()));
    let of_timeout = without_timeout(key).map(|prefix| (prefix, 0));
    of_reservation.or(of_timeout).into_iter().flat_map(|(prefix, from)| {
        let ends = (from..=prefix.len())
            .filter(move |&at| at == from.max(prefix.len()) || prefix[at] == b':');
        let starts = ends.map(|at| &prefix[..at]);
        // A start that ends inside the braces of `{a:b}` is a name only if the `}` is the owner's.
        let closes = prefix.contains(&b'}');
        let is_whole = move |start: &&[u8]| !closes || start.contains(&b'}');
        let others = starts.clone().filter(move |start| !is_whole(start));
        starts.filter(is_whole).chain(others).flat_map(locks_of_prefix).take(MAX_GUESSES)
    })
}

/// The owner and the number of the read hold to which a timeout key of this lock belongs; None: the
/// key is not a timeout key of this lock.
pub fn hold_of_key<'k>(key: &'k [u8], lock: &[u8]) -> Option<(&'k [u8], u64)> {
    let rest = match lock.contains(&b'{') {
        true => key.strip_prefix(lock)?,
        false => key.strip_prefix(b"{")?.strip_prefix(lock)?.strip_prefix(b"}")?,
    };
    let owner = without_timeout(rest.strip_prefix(b":")?)?;
    let digits = rest.get(1 + owner.len() + TIMEOUT.len()..)?;
    if digits.first() == Some(&b'0') {
        return None;
    }
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((owner, number))
}

/// Limits the work for a key with many colons, which could belong to many locks.
const MAX_GUESSES: usize = 16;

/// The locks whose derived names begin with `prefix`.
fn locks_of_prefix(prefix: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let inner = prefix.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}"));
    let plain = inner.filter(|inner| !inner.contains(&b'{'));
    let tagged = Some(prefix).filter(|prefix| prefix.contains(&b'{'));
    plain.into_iter().chain(tagged).map(<[u8]>::to_vec)
}

/// Whether all names derived from this name are in its slot. The cluster hashes the bytes between
/// the first `{` and the first `}` after it. If there are none, it hashes the whole name.
fn shares_slot(name: &[u8]) -> bool {
    match name.iter().position(|&byte| byte == b'{') {
        Some(open) => {
            name[open + 1..].iter().position(|&byte| byte == b'}').is_some_and(|at| at > 0)
        }
        // The whole name becomes the hash tag. A `}` in the name would end the tag too early.
        None => !name.is_empty() && !name.contains(&b'}'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(name: &[u8]) -> LockName<'_> {
        LockName::new(name, false).unwrap()
    }

    #[test]
    fn a_timeout_key_tells_its_hold_once_the_lock_is_known() {
        for (name, owner, number) in
            [(&b"k"[..], &b"a"[..], 1), (b"{k}", b"a", 7), (b"k", b"a:b", 12)]
        {
            let key = whole(lock(name).timeout(owner, number));
            assert_eq!(hold_of_key(&key, name), Some((owner, number)));
            assert_eq!(hold_of_key(&key, b"other"), None);
        }
        let ambiguous = b"{k}:b:c:rwlock_timeout:3";
        assert_eq!(hold_of_key(ambiguous, b"k"), Some((&b"b:c"[..], 3)));
        assert_eq!(hold_of_key(ambiguous, b"{k}:b"), Some((&b"c"[..], 3)));
        for none in ["{k}:wait_write", "k", "{k}:rwlock_timeout:", "{k}:a:rwlock_timeout:x"] {
            assert_eq!(hold_of_key(none.as_bytes(), b"k"), None, "{none}");
        }
    }

    fn whole(name: Name<'_>) -> Vec<u8> {
        let mut whole = Vec::new();
        name.append_to(&mut whole);
        whole
    }

    #[test]
    fn derived_names_follow_redisson() {
        assert_eq!(whole(lock(b"a").timeout(b"me", 12)), b"{a}:me:rwlock_timeout:12");
        assert_eq!(whole(lock(b"a").timeout(b"me", 0)), b"{a}:me:rwlock_timeout:0");
        let longest = format!("{{a}}:me:rwlock_timeout:{}", u64::MAX);
        assert_eq!(whole(lock(b"a").timeout(b"me", u64::MAX)), longest.as_bytes());
        assert_eq!(whole(lock(b"{a}b").timeout(b"me", 1)), b"{a}b:me:rwlock_timeout:1");
        assert_eq!(whole(lock(b"a").reservation()), b"{a}:wait_write");
        assert_eq!(whole(lock(b"a{").fence()), b"a{:rwlock_fence");
        assert_eq!(whole(lock(b"a").channel()), b"redisson_rwlock:{a}");
        assert_eq!(whole(lock(b"{a}b").channel()), b"redisson_rwlock:{a}b");
        assert_eq!(whole(lock(b"a").owner_channel()), b"{a}:channel");
        assert_eq!(whole(lock(b"{a}b").owner_channel()), b"{a}b:channel");
    }

    #[test]
    fn the_lock_of_a_derived_key_is_found() {
        let locks = |key: &[u8]| locks_of_key(key).collect::<Vec<_>>();
        assert_eq!(locks(b"{a}:wait_write"), [b"a".to_vec(), b"{a}".to_vec()]);
        assert_eq!(locks(b"x{a}:wait_write"), [b"x{a}".to_vec()]);
        assert_eq!(locks(b"{a:b}:me:7:rwlock_timeout:12")[0], b"a:b");
        assert_eq!(locks(b"x{a}:me:rwlock_timeout:1")[0], b"x{a}");
        // For each lock and each owner, the lock is among the guesses.
        for name in [
            b"a".as_slice(),
            b"{a}",
            b"a:b",
            b"{a:b}",
            b"a{b",
            b"a:{b:c",
            b"{",
            b"",
            b"{a}:b:c:d:e:f:g",
            b"a:b:c:d:e:f:g:h",
            b"{a:b:c:d:e:f:g}",
            b"a}b",
        ] {
            for owner in [b"me".as_slice(), b"me:1", b":", b"1:2:3:4:5:6:7", b"}", b"a}:b"] {
                let found = locks(&whole(lock(name).timeout(owner, 1)));
                assert!(found.contains(&name.to_vec()), "{name:?} {owner:?}: {found:?}");
            }
            assert!(locks(&whole(lock(name).reservation())).contains(&name.to_vec()), "{name:?}");
        }
        assert!(locks(b"a:me:rwlock_timeout:").is_empty());
        assert!(locks(b"orders").is_empty());
    }

    #[test]
    fn names_of_derived_keys_are_refused() {
        for name in [
            b"x:wait_write".as_slice(),
            b":wait_write",
            b"x:rwlock_fence",
            b"x:rwlock_timeout:1",
            b":rwlock_timeout:007",
        ] {
            assert!(LockName::new(name, false).is_err(), "{name:?}");
        }
        for name in
            [b"x:rwlock_timeout:".as_slice(), b"x:rwlock_timeout:1a", b"rwlock_timeout:1", b""]
        {
            assert!(LockName::new(name, false).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn brace_games_are_refused_in_a_cluster_only() {
        for name in [b"a{b".as_slice(), b"a{}b", b"a}b", b"}", b"", b"{", b"{}", b"{}{a}"] {
            assert!(LockName::new(name, false).is_ok(), "{name:?}");
            assert_eq!(LockName::new(name, true), Err(Error::CrossSlot), "{name:?}");
        }
        for name in [b"a".as_slice(), b"{a}", b"x{a}y", b"a}b{c}", b"{a}{", b"{{a}"] {
            assert!(LockName::new(name, true).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn owners_that_would_collide_are_refused() {
        for owner in [b"".as_slice(), b"mode", b"a:write", b":write", &[b'x'; 1025]] {
            assert!(check_owner(owner).is_err(), "{owner:?}");
        }
        for owner in [b"Mode".as_slice(), b"a:write ", b"\0\xff", &[b'x'; 1024]] {
            assert!(check_owner(owner).is_ok(), "{owner:?}");
        }
    }
}
