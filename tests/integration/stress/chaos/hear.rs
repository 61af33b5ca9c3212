//! What each reply must be, by what is certain.

use std::time::{Duration, Instant};

use super::books::{Asked, Kind, Lock, Over, Owner, Target, Which};
use super::client::{Pending, Take, Want, What};
use super::storm::Storm;

/// The server's clock is in ms.
const TICK: Duration = Duration::from_millis(2);

impl Storm {
    pub(super) fn hear(&mut self, number: usize, pending: Pending, line: &str) {
        let now = Instant::now();
        let context = format!("client {number}: {pending:?}: {line:?}");
        match pending.what {
            What::Select => assert_eq!(line, "+OK", "{context}"),
            What::Id => self.clients[number].id = line[1..].parse().ok(),
            What::Take(asked, take) => self.hear_take(number, asked, take, line, &context),
            What::Give(asked, which, until) => {
                let target = Target::Owner(asked.lock, asked.owner);
                if line.starts_with("-NOTHELD") {
                    let held = until.is_some_and(|until| until > now);
                    let lost = held && self.books.undisturbed(asked);
                    assert!(!lost, "a hold was lost: {context}");
                    self.count("NOTHELD");
                } else {
                    assert!([":0", ":1"].contains(&line), "{context}");
                    let other = self.books.others_had(asked, now).filter(|_| line == ":1");
                    assert_eq!(other, None, "held by another one: {context}");
                    self.count("given back");
                }
                let given = |held: &(Lock, Owner, Kind)| {
                    let kind = which == Which::All || which == Which::One(held.2);
                    held.0 == asked.lock && held.1 == asked.owner && (kind || which == Which::Any)
                };
                let held = &mut self.clients[number].held;
                if which == Which::All || line.starts_with('-') {
                    held.retain(|held| !given(held));
                } else if let Some(at) = held.iter().rposition(given) {
                    held.remove(at);
                }
                self.books.end(target, Over::Replied(now));
            }
            What::Renew(asked) => {
                if line == "+OK" {
                    self.books.renewed(asked, now);
                    self.count("renewed");
                } else {
                    assert!(line.starts_with("-NOTHELD"), "{context}");
                    assert!(!self.books.had(asked, None, now), "a hold was lost: {context}");
                }
            }
            What::Downgrade(asked) => {
                if line == "+OK" {
                    let fault = self.books.downgraded(asked, now);
                    fault.unwrap_or_else(|fault| panic!("{fault}: {context}"));
                    self.clients[number].held.push((asked.lock, asked.owner, Kind::Read));
                    self.count("downgraded");
                } else {
                    assert!(line.starts_with("-NOTHELD"), "{context}");
                }
                self.books.end(Target::Owner(asked.lock, asked.owner), Over::Replied(now));
            }
            What::Remove(targets) => {
                // From 8.0 on Redis blocks who flushes until memory is given back,
                // and a CLIENT UNBLOCK may come for what it waited for before.
                let client = &self.clients[number];
                let named = client.unblocks > 0 || client.unblocked.is_some();
                let unblocked = line.starts_with("-UNBLOCKED") && named;
                assert!(unblocked || ["+OK", ":0", ":1"].contains(&line), "{context}");
                for target in targets {
                    self.books.end(target, Over::Replied(now));
                }
            }
            What::Unblock(other, targets) => {
                for target in targets {
                    // The connection may be closed a moment later.
                    self.books.end(target, Over::Lost);
                }
                assert!([":0", ":1"].contains(&line), "{context}");
                if line == ":1" {
                    self.count("unblocked");
                }
                let other = &mut self.clients[other];
                other.unblocks -= 1;
                // Of one whose sender is gone nobody hears when it is over.
                other.unblocked = other.unblocked.max(Some(now));
            }
            What::Kill(_) => assert!([":0", ":1"].contains(&line), "{context}"),
        }
    }

    fn hear_take(&mut self, number: usize, asked: Asked, take: Take, line: &str, context: &str) {
        let now = Instant::now();
        let kind = take.want.kind();
        let client = &mut self.clients[number];
        let may_be_unblocked = client.may_be_unblocked(asked.at);
        match line.split(' ').next().unwrap_or_default() {
            "+OK" => {
                client.held.push((asked.lock, asked.owner, kind));
                if !(take.session && client.doomed.is_some()) {
                    let fault = self.books.granted(asked, kind, take.once, now);
                    fault.unwrap_or_else(|fault| panic!("{fault}: {context}"));
                }
                self.count(match take.want {
                    Want::Read => "read holds",
                    Want::Write => "write holds",
                    Want::Upgrade => "upgrades",
                });
            }
            "-DEADLOCK" => {
                assert!(take.block.is_some(), "{context}");
                self.count("DEADLOCK");
            }
            "-UNBLOCKED" => {
                assert!(take.block.is_some() && may_be_unblocked, "{context}");
                self.count("UNBLOCKED");
            }
            "-NOTHELD" => {
                assert_eq!(take.want, Want::Upgrade, "{context}");
                let lost = self.books.had(asked, Some(Kind::Read), now);
                assert!(!lost, "a hold was lost: {context}");
            }
            left => {
                let is_integer = left.strip_prefix(':').is_some_and(|n| n.parse::<i64>().is_ok());
                assert!(is_integer, "{context}");
                // Whoever holds it gets it again.
                let reads = take.want == Want::Read && self.books.had(asked, None, now);
                let writes = self.books.had(asked, Some(Kind::Write), now);
                assert!(!reads && !writes, "a holder was refused: {context}");
                if let Some(block) = take.block {
                    let early = block.is_zero() || now < asked.at + block - TICK.min(block);
                    let waited = now - asked.at;
                    let why = "it did not wait but";
                    assert!(!early || may_be_unblocked, "{why} {waited:?}: {context}");
                    if !early {
                        self.events += 1;
                        self.count("timeout");
                    }
                }
            }
        }
    }
}
