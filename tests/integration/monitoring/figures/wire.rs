//! A connection that can say that it is done, and still hear what is said to it.

use std::io::{BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use redis::{Cmd, Parser, Value};

use crate::harness::DEADLINE;

pub struct Wire {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
    parser: Parser,
}

impl Wire {
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
        stream.set_nodelay(true).expect("switch off Nagle's algorithm");
        let limit: Duration = DEADLINE;
        stream.set_read_timeout(Some(limit)).expect("set a limit");
        let replies = BufReader::new(stream.try_clone().expect("clone a socket"));
        Self { stream, replies, parser: Parser::new() }
    }

    /// Sends lines, all at once. Words are between single spaces.
    pub fn send(&mut self, lines: &[String]) {
        let mut bytes = Vec::new();
        for line in lines {
            let mut command = Cmd::new();
            for word in line.split(' ') {
                command.arg(word);
            }
            command.write_packed_command(&mut bytes);
        }
        // A server that has closed the connection shows when it is read.
        let _ = self.stream.write_all(&bytes);
    }

    /// The next reply; None when the connection is closed.
    pub fn reply(&mut self) -> Option<Value> {
        match self.parser.parse_value(&mut self.replies) {
            Ok(reply) => Some(reply),
            Err(error) => {
                assert!(!error.is_timeout(), "never answered");
                None
            }
        }
    }

    /// Sends a line and gives the reply.
    #[track_caller]
    pub fn ask(&mut self, line: &str) -> Value {
        self.send(&[line.to_owned()]);
        self.reply().unwrap_or_else(|| panic!("{line}: the connection was closed"))
    }

    /// Says that nothing more will come. What the server has said is still
    /// heard, until it closes the connection.
    pub fn end(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}
