//! A connection that never waits, and can be cut at any moment.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// How a client ends a connection.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// As a process that ends.
    Close,
    /// As one that crashes, or a router that forgets: a reset.
    Reset,
}

pub struct Wire {
    stream: TcpStream,
    received: Vec<u8>,
}

/// What a look at the socket found.
pub struct Received {
    pub lines: Vec<String>,
    /// The server has closed it.
    pub closed: bool,
}

impl Wire {
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
        stream.set_nodelay(true).expect("switch off Nagle's algorithm");
        stream.set_nonblocking(true).expect("make the socket one that never waits");
        Self { stream, received: Vec::new() }
    }

    /// Sends a command. A server that is gone shows when the reply is read.
    pub fn send(&mut self, line: &str) {
        let mut command = redis::Cmd::new();
        for word in line.split(' ') {
            command.arg(word);
        }
        match self.stream.write(&command.get_packed_command()) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                panic!("the server does not read")
            }
            Err(_) => {}
        }
    }

    /// Reads all that there is. Every reply to what is sent here is one line.
    pub fn receive(&mut self) -> Received {
        let mut buffer = [0; 4096];
        let closed = loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break true,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break true,
            }
        };
        let mut lines = Vec::new();
        while let Some(end) = self.received.windows(2).position(|two| two == b"\r\n") {
            let line: Vec<u8> = self.received.drain(..end + 2).collect();
            lines.push(String::from_utf8_lossy(&line[..end]).into_owned());
        }
        Received { lines, closed }
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

    fn poll(&self) -> libc::pollfd {
        libc::pollfd { fd: self.stream.as_raw_fd(), events: libc::POLLIN, revents: 0 }
    }
}

/// Which of these have something to read, after a millisecond at most.
pub fn readable<'w>(wires: impl Iterator<Item = &'w Wire>) -> Vec<bool> {
    let mut polled: Vec<libc::pollfd> = wires.map(Wire::poll).collect();
    let count = libc::nfds_t::try_from(polled.len()).expect("a few sockets");
    // SAFETY: as many entries as are said to be there.
    unsafe { libc::poll(polled.as_mut_ptr(), count, 1) };
    polled.into_iter().map(|one| one.revents != 0).collect()
}
