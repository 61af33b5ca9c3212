//! What the clients know of their holds, and what must not be in it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A hold, as the client knows it that was granted it.
#[derive(Clone, Debug)]
pub struct Grant {
    pub lock: usize,
    pub owner: String,
    pub writes: bool,
    /// When the request was sent that was granted.
    pub sent: Instant,
    /// When the grant was read.
    pub received: Instant,
    /// When a replica was known to have it. Without that a failover may lose it, and nobody
    /// can help that.
    pub replicated: Option<Instant>,
    /// When the client first asked to end it, or closed its connection.
    pub given_back: Option<Instant>,
    /// When its lease was over: counted from the request, as the server cannot have granted
    /// it earlier.
    pub lapsed: Instant,
    pub token: Option<i64>,
}

/// The server's clock is in ms, and ours is another one.
const SLACK: Duration = Duration::from_millis(5);

impl Grant {
    /// Whether no failover can lose it.
    pub fn is_safe(&self) -> bool {
        self.replicated.is_some()
    }

    /// From when to when it was held for certain.
    fn certain(&self) -> Option<(Instant, Instant)> {
        let from = self.replicated?;
        let to = self.given_back.unwrap_or(self.lapsed).min(self.lapsed) - SLACK;
        (from < to).then_some((from, to))
    }
}

fn by_lock(grants: &[Grant]) -> BTreeMap<usize, Vec<&Grant>> {
    let mut locks: BTreeMap<usize, Vec<&Grant>> = BTreeMap::new();
    for grant in grants {
        locks.entry(grant.lock).or_default().push(grant);
    }
    locks
}

/// Holds that exclude each other and were certain at one time.
pub fn two_holders(grants: &[Grant]) -> Vec<String> {
    let mut found = Vec::new();
    for grants in by_lock(grants).values() {
        let mut holds: Vec<_> =
            grants.iter().filter_map(|grant| Some((grant.certain()?, *grant))).collect();
        holds.sort_by_key(|((from, _), _)| *from);
        for (at, ((_, to), one)) in holds.iter().enumerate() {
            let beside = holds[at + 1..].iter().take_while(|((from, _), _)| from < to);
            for (_, other) in beside.filter(|(_, other)| one.writes || other.writes) {
                found.push(format!("two holders: {one:?} and {other:?}"));
            }
        }
    }
    found
}

/// Tokens that are not larger than one that was known before they were asked for.
pub fn tokens_out_of_order(grants: &[Grant]) -> Vec<String> {
    let mut found = Vec::new();
    for grants in by_lock(grants).values() {
        let mut by_sent: Vec<&Grant> =
            grants.iter().copied().filter(|grant| grant.token.is_some()).collect();
        let mut by_received = by_sent.clone();
        by_sent.sort_by_key(|grant| grant.sent);
        by_received.sort_by_key(|grant| grant.received);
        let mut before = by_received.into_iter().peekable();
        let mut largest: Option<&Grant> = None;
        for grant in by_sent {
            while let Some(known) = before.next_if(|known| known.received < grant.sent) {
                if largest.is_none_or(|largest| known.token > largest.token) {
                    largest = Some(known);
                }
            }
            if let Some(largest) = largest.filter(|largest| largest.token >= grant.token) {
                found.push(format!("tokens out of order: {largest:?}, then {grant:?}"));
            }
        }
    }
    found
}

#[test]
fn a_history_with_two_holders_is_found() {
    let start = Instant::now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let grant = |owner: &str, writes, from: u64, to: u64, token| Grant {
        lock: 0,
        owner: owner.to_owned(),
        writes,
        sent: at(from),
        received: at(from + 1),
        replicated: Some(at(from + 2)),
        given_back: Some(at(to)),
        lapsed: at(from + 1_000),
        token: Some(token),
    };
    let a = grant("a", true, 100, 200, 10);
    for (other, wrong) in [
        (grant("b", true, 150, 250, 11), 1),
        (grant("b", false, 150, 250, 11), 1),
        (grant("b", false, 200, 250, 11), 0),
        (Grant { replicated: None, ..grant("b", true, 150, 250, 11) }, 0),
    ] {
        assert_eq!(two_holders(&[a.clone(), other.clone()]).len(), wrong, "{other:?}");
    }
    let reads = [grant("a", false, 100, 200, 1), grant("b", false, 100, 200, 2)];
    assert_eq!(two_holders(&reads).len(), 0);
    for (token, wrong) in [(11, 0), (10, 1), (9, 1)] {
        let next = grant("b", true, 300, 400, token);
        assert_eq!(tokens_out_of_order(&[next, a.clone()]).len(), wrong, "{token}");
    }
    // At the same time either may be the later.
    assert_eq!(tokens_out_of_order(&[grant("b", true, 100, 400, 9), a]).len(), 0);
}
