//! A connection that can be looked at without waiting, and cut at any moment.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use redis::{parse_redis_value, Value};

use super::{packed_line, reply_length};
use crate::DEADLINE;

/// How a client ends a connection.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// As a process that ends.
    Close,
    /// As one that crashes, or a router that forgets: a reset.
    Reset,
}

/// A connection that speaks RESP2.
pub struct Wire {
    stream: TcpStream,
    received: Vec<u8>,
    closed: bool,
}

/// What a look at the socket found.
pub struct Received {
    /// Each reply as it was sent, without the end of its last line: `+OK`.
    pub replies: Vec<String>,
    /// The server has closed it.
    pub closed: bool,
}

impl Wire {
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect");
        stream.set_nodelay(true).expect("switch off Nagle's algorithm");
        stream.set_nonblocking(true).expect("make the socket one that never waits");
        Self { stream, received: Vec::new(), closed: false }
    }

    /// Sends a command, words between single spaces. A server that is gone shows when the
    /// reply is read.
    pub fn send(&mut self, line: &str) {
        self.write(&packed_line(line));
    }

    /// Sends commands, all at once.
    pub fn send_all(&mut self, lines: &[String]) {
        let bytes: Vec<u8> = lines.iter().flat_map(|line| packed_line(line)).collect();
        self.write(&bytes);
    }

    /// What is sent at once is short: the kernel takes it as a whole.
    fn write(&mut self, bytes: &[u8]) {
        match self.stream.write(bytes) {
            Ok(count) => assert_eq!(count, bytes.len(), "the server does not read"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                panic!("the server does not read")
            }
            Err(_) => {}
        }
    }

    /// Reads all that there is, without waiting.
    pub fn receive(&mut self) -> Received {
        self.read();
        let mut replies = Vec::new();
        while let Some(reply) = self.next() {
            replies.push(String::from_utf8_lossy(&reply[..reply.len() - 2]).into_owned());
        }
        Received { replies, closed: self.closed }
    }

    /// The next reply, when it comes; None when the connection is closed.
    pub fn reply(&mut self) -> Option<Value> {
        let limit = Instant::now() + DEADLINE;
        loop {
            if let Some(reply) = self.next() {
                return Some(parse_redis_value(&reply).expect("a reply"));
            }
            if self.closed {
                return None;
            }
            assert!(Instant::now() < limit, "never answered");
            poll(&mut [self.polled()], Duration::from_secs(1));
            self.read();
        }
    }

    /// Sends a command and gives the reply.
    #[track_caller]
    pub fn ask(&mut self, line: &str) -> Value {
        self.send(line);
        self.reply().unwrap_or_else(|| panic!("{line}: the connection was closed"))
    }

    /// Says that nothing more will come. What the server has said is still heard, until it
    /// closes the connection.
    pub fn end(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    fn read(&mut self) {
        let mut buffer = [0; 4096];
        while !self.closed {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.closed = true,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.closed = true,
            }
        }
    }

    /// The next whole reply that has been read.
    fn next(&mut self) -> Option<Vec<u8>> {
        let length = reply_length(&self.received)?;
        Some(self.received.drain(..length).collect())
    }

    pub fn cut(self, how: Cut) {
        if let Cut::Reset = how {
            let linger = libc::linger { l_onoff: 1, l_linger: 0 };
            let length = libc::socklen_t::try_from(size_of_val(&linger)).expect("a few bytes");
            // SAFETY: an open socket, and an option of the size it is said to have.
            let status = unsafe {
                libc::setsockopt(
                    self.stream.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_LINGER,
                    (&raw const linger).cast(),
                    length,
                )
            };
            assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
        }
    }

    fn polled(&self) -> libc::pollfd {
        libc::pollfd { fd: self.stream.as_raw_fd(), events: libc::POLLIN, revents: 0 }
    }
}

/// Which of these have something to read, after a millisecond at most.
pub fn readable<'w>(wires: impl Iterator<Item = &'w Wire>) -> Vec<bool> {
    let mut polled: Vec<libc::pollfd> = wires.map(Wire::polled).collect();
    poll(&mut polled, Duration::from_millis(1));
    polled.into_iter().map(|one| one.revents != 0).collect()
}

/// Waits until one of these can be read, but no longer than that.
fn poll(polled: &mut [libc::pollfd], limit: Duration) {
    let count = libc::nfds_t::try_from(polled.len()).expect("a few sockets");
    let limit = libc::c_int::try_from(limit.as_millis()).expect("a short time");
    // SAFETY: as many entries as are said to be there.
    unsafe { libc::poll(polled.as_mut_ptr(), count, limit) };
}
