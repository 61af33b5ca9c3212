//! Many commands in one round trip.

use redis::{Cmd, Connection, ConnectionLike, Value};

use super::packed;
use crate::micros;

/// Commands on their way to the server.
#[derive(Default)]
pub struct Batch {
    bytes: Vec<u8>,
    replies: usize,
}

impl Batch {
    pub fn add(&mut self, command: &Cmd) {
        self.add_packed(&command.get_packed_command());
    }

    /// A command that is bytes already.
    pub fn add_packed(&mut self, command: &[u8]) {
        self.bytes.extend(command);
        self.replies += 1;
    }

    pub fn words(&mut self, words: &[&str]) {
        self.add_packed(&packed(words));
    }

    /// How many commands there are.
    pub fn len(&self) -> usize {
        self.replies
    }

    pub fn is_empty(&self) -> bool {
        self.replies == 0
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

/// The replies to what a [`Batch`] sent.
pub struct Replies(std::vec::IntoIter<Value>);

impl Iterator for Replies {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        self.0.next()
    }
}

impl Replies {
    /// The next one, which may be an error.
    pub fn any(&mut self) -> Value {
        self.0.next().expect("a reply for each command")
    }

    /// The next one, which is no error.
    pub fn good(&mut self) -> Value {
        match self.any() {
            Value::ServerError(error) => panic!("the server refused: {error:?}"),
            reply => reply,
        }
    }

    /// The next one, to TIME, in ms.
    pub fn time(&mut self) -> i64 {
        micros(self.good()) / 1_000
    }
}
