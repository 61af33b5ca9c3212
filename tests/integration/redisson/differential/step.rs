//! What one step of the comparison does.

use redis::Cmd;

use super::reference::LAPSED;
use support::redisson::{channel, latch, tagged};
use support::Random;

pub const LOCKS: [&str; 3] = ["orders", "{stock}:shelf 7", "a:b"];
pub const OWNERS: [&str; 3] = ["b1b7c2de-9a57-4b5c-8f5e-0d8a3f6f2c11:42", "me", "b:1"];

/// The shortest lease that shall not lapse in a run. Every hold is given back
/// long before.
const LONG: u32 = 100_000;

/// Later than any lease that was taken before.
pub const RENEWED: u32 = 1_000_000;

/// A lease that shall lapse, and the seconds after which it has.
const BRIEF: u32 = 2;
const BRIEF_OVER: &str = "0.004";

/// One step.
#[derive(Clone, Debug)]
pub struct Step {
    pub lock: &'static str,
    pub owner: &'static str,
    pub act: Act,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A command: its name with the word that chooses, and its lease.
    Command(&'static str, Option<u32>),
    /// A command whose lease is over before anything else happens.
    Brief(&'static str),
    /// Live holds of the lock lapse.
    Lapse(u32),
}

/// How often what is done.
const ACTS: [(u64, Choice); 16] = [
    (220, Choice::Leased("RLOCK")),
    (180, Choice::Leased("WLOCK")),
    (60, Choice::Leased("WLOCK FENCE")),
    (160, Choice::Plain("UNLOCK READ")),
    (80, Choice::Plain("UNLOCK WRITE")),
    (110, Choice::Plain("UNLOCK")),
    (70, Choice::Plain("UNLOCK ALL")),
    (50, Choice::Renew),
    (40, Choice::Leased("DOWNGRADE")),
    (6, Choice::Plain("FORCEUNLOCK")),
    (6, Choice::Plain("FORCEUNLOCK READ")),
    (6, Choice::Plain("FORCEUNLOCK WRITE")),
    (3, Choice::Brief("RLOCK")),
    (1, Choice::Brief("WLOCK")),
    (1, Choice::Brief("DOWNGRADE")),
    (7, Choice::Lapse),
];

#[derive(Clone, Copy)]
enum Choice {
    Leased(&'static str),
    Plain(&'static str),
    Renew,
    Brief(&'static str),
    Lapse,
}

impl Step {
    pub fn random(random: &mut Random) -> Self {
        let act = match random.weigh(&ACTS) {
            Choice::Leased(command) => Act::Command(command, Some(long_lease(random))),
            Choice::Plain(command) => Act::Command(command, None),
            Choice::Renew => Act::Command("RENEW", Some(RENEWED)),
            Choice::Brief(command) => Act::Brief(command),
            Choice::Lapse => Act::Lapse(random.below_u32(1 << 12)),
        };
        Self { lock: random.pick(&LOCKS), owner: random.pick(&OWNERS), act }
    }

    /// What kind of step this is, for the tally.
    pub fn name(&self) -> &'static str {
        match self.act {
            Act::Command(command, _) => unfenced(command),
            Act::Brief(_) => "brief",
            Act::Lapse(_) => "lapse",
        }
    }

    /// What is sent to the module; `lapse` is the digest of that script.
    pub fn to_module(&self, lapse: &str) -> Cmd {
        match self.command() {
            Some((command, lease)) => module_command(command, self.lock, self.owner, lease),
            None => self.lapse(lapse),
        }
    }

    /// What is sent for the scripts.
    pub fn to_scripts(&self, reference: &str, lapse: &str) -> Cmd {
        let Some((command, lease)) = self.command() else {
            return self.lapse(lapse);
        };
        let keys =
            [self.lock, &tagged(self.lock), &channel(self.lock), &latch(self.lock, "request")];
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(reference).arg(keys.len()).arg(&keys).arg(unfenced(command)).arg(self.owner);
        cmd.arg(lease.unwrap_or_default());
        cmd
    }

    /// How many seconds the server shall sleep before it is looked at.
    pub fn sleep(&self) -> Option<&'static str> {
        match self.act {
            Act::Command(..) => None,
            Act::Brief(_) => Some(BRIEF_OVER),
            Act::Lapse(_) => Some(LAPSED),
        }
    }

    /// Whether all keys are looked at after it. After a lapse they are not: a
    /// look deletes what has expired, and the module shall meet that itself.
    pub fn looks(&self) -> bool {
        !matches!(self.act, Act::Lapse(_))
    }

    fn command(&self) -> Option<(&'static str, Option<u32>)> {
        match self.act {
            Act::Command(command, lease) => Some((command, lease)),
            Act::Brief(command) => Some((command, Some(BRIEF))),
            Act::Lapse(_) => None,
        }
    }

    fn lapse(&self, digest: &str) -> Cmd {
        match self.act {
            Act::Lapse(bits) => lapse(digest, self.lock, bits),
            Act::Command(..) | Act::Brief(_) => unreachable!("a command"),
        }
    }
}

/// The scripts know no fencing tokens.
fn unfenced(command: &str) -> &str {
    command.strip_suffix(" FENCE").unwrap_or(command)
}

pub fn long_lease(random: &mut Random) -> u32 {
    LONG + random.below_u32(LONG)
}

/// Lets live holds lapse, as [`LAPSE`](super::reference::LAPSE) has it.
pub fn lapse(digest: &str, lock: &str, bits: u32) -> Cmd {
    let mut cmd = redis::cmd("EVALSHA");
    cmd.arg(digest).arg(2).arg(lock).arg(tagged(lock)).arg(bits);
    cmd
}

/// `command` is the name and perhaps a word for the end: `UNLOCK READ`.
pub fn module_command(command: &str, lock: &str, owner: &str, lease: Option<u32>) -> Cmd {
    let (name, word) = match command.split_once(' ') {
        Some((name, word)) => (name, Some(word)),
        None => (command, None),
    };
    let mut cmd = redis::cmd(&format!("RWLOCK.{name}"));
    cmd.arg(lock);
    if name != "FORCEUNLOCK" {
        cmd.arg(owner);
    }
    cmd.arg(lease).arg(word);
    cmd
}
