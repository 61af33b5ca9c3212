//! Listening to channels.

use redis::{cmd, Connection, ToRedisArgs};

use crate::{bytes, list, text, Server};

/// A connection that has subscribed to channels, or to a pattern.
pub struct Subscriber {
    con: Connection,
}

impl Subscriber {
    #[track_caller]
    pub fn channel(server: &Server, channel: &[u8]) -> Self {
        Self::subscribe(server, "SUBSCRIBE", &[channel])
    }

    #[track_caller]
    pub fn pattern(server: &Server, pattern: &[u8]) -> Self {
        Self::subscribe(server, "PSUBSCRIBE", &[pattern])
    }

    #[track_caller]
    pub fn shard_channel(server: &Server, channel: &[u8]) -> Self {
        Self::shard_channels(server, &[channel])
    }

    /// Several, all of one slot.
    #[track_caller]
    pub fn shard_channels<C: ToRedisArgs>(server: &Server, channels: &[C]) -> Self {
        Self::subscribe(server, "SSUBSCRIBE", channels)
    }

    #[track_caller]
    fn subscribe<C: ToRedisArgs>(server: &Server, command: &str, channels: &[C]) -> Self {
        let mut con = server.connection();
        con.send_packed_command(&cmd(command).arg(channels).get_packed_command())
            .expect("send the subscription");
        for _ in channels {
            let confirmation = list(con.recv_response());
            assert_eq!(text(&confirmation[0]), command.to_lowercase());
        }
        Self { con }
    }

    /// The next message: its channel and its payload.
    #[track_caller]
    pub fn message(&mut self) -> (Vec<u8>, String) {
        let message = list(self.con.recv_response());
        let [.., channel, payload] = &message[..] else {
            panic!("a message: {message:?}");
        };
        (bytes(channel), text(payload))
    }

    /// The channel of the next message, whose payload may be anything.
    #[track_caller]
    pub fn message_channel(&mut self) -> String {
        let message = list(self.con.recv_response());
        text(&message[message.len() - 2])
    }

    /// The payloads of all messages up to the one that says `end`.
    #[track_caller]
    pub fn until(&mut self, end: &str) -> Vec<String> {
        let mut payloads = Vec::new();
        loop {
            let (_, payload) = self.message();
            if payload == end {
                return payloads;
            }
            payloads.push(payload);
        }
    }
}
