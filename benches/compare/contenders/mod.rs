//! Who is compared: what their clients say, and how they wait.

pub mod peers;
mod polling;
pub mod transfers;

use crate::load::Protocol;
use redis::Connection;
use std::time::Duration;
use support::redisson::{channel, latch, Redisson, DEFAULT_LEASE};
use support::wire::packed;

/// The kind of hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
}

pub const KINDS: [(&str, Kind); 2] = [("read", Kind::Read), ("write", Kind::Write)];

/// What a client does that is refused.
#[derive(Clone, Copy)]
pub enum Waits {
    /// It never is: its request waits.
    InServer,
    /// It asks again after this pause.
    Again(Duration),
    /// It subscribes to the lock's channel and asks again at each message.
    Channel(Processes),
}

/// Clients that wait for messages may share a subscription.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Processes {
    /// Each client is one.
    Many,
    /// All clients are threads of one.
    One,
}

/// All that one client says about its lock, as bytes. Where there are two, they
/// are of a read and of a write hold.
#[derive(Default)]
pub struct Talk {
    /// Once, when it is connected.
    pub greet: Vec<Vec<u8>>,
    pub take: [Vec<u8>; 2],
    pub give: [Vec<u8>; 2],
    /// After giving back, without waiting for the answer.
    pub after: Option<Vec<u8>>,
    pub subscribe: Vec<u8>,
    pub unsubscribe: Vec<u8>,
}

/// What a client with this number says about this lock.
type Say = dyn Fn(&str, usize) -> Talk;

pub struct Contender {
    pub name: &'static str,
    pub protocol: Protocol,
    pub port: u16,
    /// The process whose CPU time is the server's.
    pub pid: u32,
    pub waits: Waits,
    /// Are there read holds? Else all exclude each other.
    pub shares: bool,
    /// The commands whose time counts, by kind.
    pub counted: [&'static [&'static str]; 2],
    /// How the answer begins when the lock is held.
    yes: &'static [u8],
    talk: Box<Say>,
}

impl Contender {
    /// What a client with this number says about this lock.
    pub fn talk(&self, lock: &str, number: usize) -> Talk {
        (self.talk)(lock, number)
    }

    pub fn held(&self, reply: &[u8]) -> bool {
        reply.starts_with(self.yes)
    }

    /// Is this an error?
    pub fn failed(&self, reply: &[u8]) -> bool {
        match self.protocol {
            Protocol::Resp => reply.starts_with(b"-"),
            Protocol::Postgres => reply.starts_with(b"E"),
            Protocol::Http => !reply.starts_with(b"HTTP/1.1 200"),
        }
    }
}

/// An owner's name, as Redisson has them: a client's id, and a thread's.
pub fn owner(number: usize) -> String {
    format!("b1b7c2de-9a57-4b5c-8f5e-0d8a3f6f2c11:{number}")
}

/// Contenders on a Redis or Valkey server.
pub struct OnServer {
    pub port: u16,
    pub pid: u32,
}

impl OnServer {
    fn contender(
        &self,
        name: &'static str,
        yes: &'static [u8],
        counted: [&'static [&'static str]; 2],
        talk: impl Fn(&str, usize) -> Talk + 'static,
    ) -> Contender {
        Contender {
            name,
            protocol: Protocol::Resp,
            port: self.port,
            pid: self.pid,
            waits: Waits::InServer,
            shares: true,
            counted,
            yes,
            talk: Box::new(talk),
        }
    }

    /// This module; its clients wait in the server, or are refused.
    pub fn module(&self, waits: bool) -> Contender {
        let counted: [&[&str]; 2] =
            [&["rwlock.rlock", "rwlock.unlock"], &["rwlock.wlock", "rwlock.unlock"]];
        self.contender("rwlock", b"+OK", counted, move |lock, number| {
            let owner = owner(number);
            let lease = DEFAULT_LEASE.to_string();
            let take = |command| match waits {
                true => packed([command, lock, &owner, &lease, "BLOCK", "0"]),
                false => packed([command, lock, &owner, &lease]),
            };
            Talk {
                take: ["RWLOCK.RLOCK", "RWLOCK.WLOCK"].map(take),
                give: ["READ", "WRITE"].map(|kind| packed(["RWLOCK.UNLOCK", lock, &owner, kind])),
                ..Talk::default()
            }
        })
    }

    /// A module that makes only the server's calls that the contract cannot do without:
    /// `benches/floor`.
    pub fn floor(&self) -> Contender {
        let counted: [&[&str]; 2] =
            [&["floor.rlock", "floor.unlock"], &["floor.wlock", "floor.unlock"]];
        self.contender("floor", b"+OK", counted, |lock, number| {
            let (owner, lease) = (owner(number), DEFAULT_LEASE.to_string());
            let take = |command| packed([command, lock, &owner, &lease]);
            Talk {
                take: ["FLOOR.RLOCK", "FLOOR.WLOCK"].map(take),
                give: ["READ", "WRITE"].map(|kind| packed(["FLOOR.UNLOCK", lock, &owner, kind])),
                ..Talk::default()
            }
        })
    }

    /// Lua that stands for Redisson's scripts, with its way of waiting: a process
    /// subscribes while any of its threads waits.
    pub fn redisson(&self, con: &mut Connection, processes: Processes) -> Contender {
        let scripts = Redisson::load(con).expect("load the scripts");
        let talk = move |lock: &str, number: usize| {
            let owner = owner(number);
            let request = format!("{number:032x}");
            let channel = channel(lock);
            Talk {
                take: [
                    scripts.read_lock(lock, &owner, DEFAULT_LEASE),
                    scripts.write_lock(lock, &owner, DEFAULT_LEASE),
                ]
                .map(|command| command.get_packed_command()),
                give: [
                    scripts.read_unlock(lock, &owner, &request),
                    scripts.write_unlock(lock, &owner, &request),
                ]
                .map(|command| command.get_packed_command()),
                after: Some(packed(["DEL", &latch(lock, &request)])),
                subscribe: packed(["SUBSCRIBE", &channel]),
                unsubscribe: packed(["UNSUBSCRIBE", &channel]),
                ..Talk::default()
            }
        };
        let name = match processes {
            Processes::Many => "Redisson's Lua",
            Processes::One => "Redisson's, one process",
        };
        let contender = self.contender(name, b"$-1", [&["evalsha"]; 2], talk);
        Contender { waits: Waits::Channel(processes), ..contender }
    }

    /// Lua of one's own: who is refused asks again after a pause, and a writer
    /// reserves the next turn.
    pub fn polling(&self, con: &mut Connection, pause: u64) -> Contender {
        let name = match pause {
            10 => "Lua, polled every 10 ms",
            _ => "Lua, polled every 50 ms",
        };
        let talk = polling::talk(con);
        let contender = self.contender(name, b"$-1", [&["evalsha"]; 2], talk);
        Contender { waits: Waits::Again(Duration::from_millis(pause)), ..contender }
    }

    /// SET NX PX, and a script that deletes what is still one's own.
    pub fn mutex(&self, con: &mut Connection) -> Contender {
        let script = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                      return redis.call('DEL', KEYS[1]) end return 0";
        let digest = support::redisson::load(con, script).expect("load a script");
        let counted: [&[&str]; 2] = [&["set", "evalsha"]; 2];
        let contender = self.contender("SET NX + script", b"+OK", counted, move |lock, number| {
            let give = packed(["EVALSHA", &digest, "1", lock, &owner(number)]);
            set_and(lock, number, &give)
        });
        let waits = Waits::Again(Duration::from_millis(10));
        Contender { waits, shares: false, ..contender }
    }

    /// The floor of what takes a lock: it may delete another's.
    pub fn set_del(&self) -> Contender {
        let counted: [&[&str]; 2] = [&["set", "del"]; 2];
        let contender = self.contender("SET NX + DEL", b"+OK", counted, |lock, number| {
            set_and(lock, number, &packed(["DEL", lock]))
        });
        Contender { shares: false, ..contender }
    }

    /// The floor of what is a round trip.
    pub fn ping(&self) -> Contender {
        let contender = self.contender("PING twice", b"+PONG", [&["ping"]; 2], |_, _| {
            let ping = || [packed(["PING"]), packed(["PING"])];
            Talk { take: ping(), give: ping(), ..Talk::default() }
        });
        Contender { shares: false, ..contender }
    }
}

fn set_and(lock: &str, number: usize, give: &[u8]) -> Talk {
    let lease = DEFAULT_LEASE.to_string();
    let take = packed(["SET", lock, &owner(number), "NX", "PX", &lease]);
    Talk { take: [take.clone(), take], give: [give.to_vec(), give.to_vec()], ..Talk::default() }
}
