//! One connection on which far more is sent than the server has answered, so
//! that the server is never idle.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

pub struct Pipe {
    stream: TcpStream,
    chunk: Vec<u8>,
}

impl Pipe {
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect");
        stream.set_nodelay(true).expect("switch off Nagle's algorithm");
        stream.set_nonblocking(true).expect("make a connection that does not block");
        Self { stream, chunk: vec![0; 256 << 10] }
    }

    /// Sends all of this. What comes back must be `reply` so many `times`, byte
    /// by byte. Gives the time until the last.
    pub fn run(&mut self, request: &[u8], reply: &[u8], times: usize) -> Duration {
        let started = Instant::now();
        let (mut sent, mut received) = (0, 0);
        let all = reply.len() * times;
        while received < all {
            let mut idle = true;
            if sent < request.len() {
                let end = request.len().min(sent + (64 << 10));
                if let Some(count) = done(self.stream.write(&request[sent..end])) {
                    sent += count;
                    idle = false;
                }
            }
            if let Some(count) = done(self.stream.read(&mut self.chunk)) {
                assert_ne!(count, 0, "the server closed a connection");
                check(&self.chunk[..count], reply, received);
                received += count;
                idle = false;
            }
            if idle {
                // With one core the server has to get it.
                std::thread::yield_now();
            }
        }
        assert_eq!(received, all, "more came than was asked for");
        started.elapsed()
    }
}

/// How much it was, unless it would have to wait.
fn done(result: std::io::Result<usize>) -> Option<usize> {
    match result {
        Ok(count) => Some(count),
        Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => {
            None
        }
        Err(error) => panic!("the connection failed: {error}"),
    }
}

/// These bytes, which come after so many others, repeat the reply.
fn check(bytes: &[u8], reply: &[u8], before: usize) {
    let mut wanted = reply.iter().cycle().skip(before % reply.len());
    let right = bytes.iter().all(|byte| wanted.next() == Some(byte));
    assert!(
        right,
        "an odd reply among {:?}",
        String::from_utf8_lossy(&bytes[..bytes.len().min(400)])
    );
}
