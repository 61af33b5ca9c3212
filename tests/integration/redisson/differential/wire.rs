//! Many commands in one round trip.

use redis::{Cmd, Connection, ConnectionLike, Value};

use crate::harness::{bytes, list};

/// Commands on their way to the server.
#[derive(Default)]
pub struct Wire {
    bytes: Vec<u8>,
    replies: usize,
}

impl Wire {
    pub fn add(&mut self, command: &Cmd) {
        self.bytes.extend(command.get_packed_command());
        self.replies += 1;
    }

    pub fn words(&mut self, words: &[&str]) {
        let mut command = Cmd::new();
        command.arg(words);
        self.add(&command);
    }

    /// Sends all of it and gives the replies in order.
    pub fn exchange(&mut self, con: &mut Connection) -> Replies {
        let replies = con
            .req_packed_commands(&self.bytes, 0, self.replies)
            .expect("send many commands and read their replies");
        *self = Self::default();
        Replies(replies.into_iter())
    }
}

/// The replies to what a [`Wire`] sent.
pub struct Replies(std::vec::IntoIter<Value>);

impl Replies {
    /// The next one, which may be an error.
    pub fn any(&mut self) -> Value {
        self.0.next().expect("a reply for each command")
    }

    /// The next one, which is no error.
    pub fn good(&mut self) -> Value {
        match self.any() {
            Value::ServerError(error) => panic!("the server refused a step's own means: {error:?}"),
            reply => reply,
        }
    }

    /// The next one, to TIME, in ms.
    pub fn time(&mut self) -> i64 {
        let parts: Vec<i64> = list(self.good())
            .iter()
            .map(|part| String::from_utf8_lossy(&bytes(part)).parse().expect("a number"))
            .collect();
        parts[0] * 1000 + parts[1] / 1000
    }
}

/// What a command on a lock answered, whichever side it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Held, or renewed.
    Done,
    /// Ms, or one of the numbers of UNLOCK and FORCEUNLOCK.
    Number(i64),
    /// The owner has no such hold.
    NotHeld,
    /// Anything else.
    Odd(String),
}

impl Meaning {
    pub fn of(reply: &Value) -> Self {
        match reply {
            Value::Okay => Self::Done,
            // With a fencing token.
            Value::Array(items) if matches!(items[..], [Value::Okay, Value::Int(_)]) => Self::Done,
            Value::SimpleString(text) if text == "NOTHELD" => Self::NotHeld,
            Value::Int(number) => Self::Number(*number),
            Value::ServerError(error) if error.code() == "NOTHELD" => Self::NotHeld,
            other => Self::Odd(format!("{other:?}")),
        }
    }
}
