//! Many connections of one thread.

use super::Protocol;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream as Blocking};
use std::time::{Duration, Instant};

/// How much is read at once. A reply is far shorter.
const CHUNK: usize = 16 << 10;

pub struct Net {
    poll: Poll,
    events: Events,
    conns: Vec<Conn>,
    spins: bool,
    chunk: Vec<u8>,
    round_trip: Duration,
    /// Requests that are on their way: when each arrives, and on which connection.
    under_way: VecDeque<(Instant, usize, Vec<u8>)>,
    /// What went out and came in over all connections.
    pub sent: u64,
    pub received: u64,
}

struct Conn {
    stream: TcpStream,
    protocol: Protocol,
    input: Vec<u8>,
    /// How much of the input has been given out.
    taken: usize,
}

impl Net {
    /// One that `spins` never sleeps while it waits.
    pub fn new(spins: bool) -> Self {
        Self {
            poll: Poll::new().expect("make a poll"),
            events: Events::with_capacity(1_024),
            conns: Vec::new(),
            spins,
            chunk: vec![0; CHUNK],
            round_trip: Duration::ZERO,
            under_way: VecDeque::new(),
            sent: 0,
            received: 0,
        }
    }

    /// As over a network on which a request and its reply are on their way for so long. Each
    /// request is sent so much later, which is all the same to the server.
    pub fn with_round_trip(self, round_trip: Duration) -> Self {
        Self { round_trip, ..self }
    }

    /// A new connection, and its number.
    pub fn connect(&mut self, port: u16, protocol: Protocol) -> usize {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = Blocking::connect(address).expect("connect");
        stream.set_nodelay(true).expect("switch off Nagle's algorithm");
        stream.set_nonblocking(true).expect("make a connection that does not block");
        let mut stream = TcpStream::from_std(stream);
        let number = self.conns.len();
        let registry = self.poll.registry();
        registry.register(&mut stream, Token(number), Interest::READABLE).expect("register");
        self.conns.push(Conn { stream, protocol, input: Vec::new(), taken: 0 });
        number
    }

    /// Sends a request. It is short, and its predecessors have been answered,
    /// so that the kernel takes it as a whole.
    pub fn send(&mut self, conn: usize, bytes: &[u8]) {
        if self.round_trip.is_zero() {
            self.send_now(conn, bytes);
        } else {
            let at = Instant::now() + self.round_trip;
            self.under_way.push_back((at, conn, bytes.to_vec()));
        }
    }

    fn send_now(&mut self, conn: usize, bytes: &[u8]) {
        let count = self.conns[conn].stream.write(bytes).expect("send a request");
        assert_eq!(count, bytes.len(), "a request was not taken as a whole");
        self.sent += bytes.len() as u64;
    }

    /// Waits for replies, until then at most, and notes whose have come.
    pub fn wait(&mut self, until: Instant, ready: &mut Vec<usize>) {
        ready.clear();
        loop {
            let now = Instant::now();
            while self.under_way.front().is_some_and(|(at, ..)| *at <= now) {
                if let Some((_, conn, bytes)) = self.under_way.pop_front() {
                    self.send_now(conn, &bytes);
                }
            }
            let next = self.under_way.front().map_or(until, |(at, ..)| (*at).min(until));
            let left = next.saturating_duration_since(now);
            // The kernel waits whole milliseconds; what is less is spun away.
            let sleep = if self.spins { Duration::ZERO } else { whole_ms(left) };
            match self.poll.poll(&mut self.events, Some(sleep)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                result => result.expect("wait for replies"),
            }
            ready.extend(self.events.iter().map(|event| event.token().0));
            if !ready.is_empty() || Instant::now() >= until {
                break;
            }
        }
        for &conn in ready.iter() {
            self.read(conn);
        }
    }

    /// The next whole reply that has come on this connection.
    pub fn reply(&mut self, conn: usize) -> Option<&[u8]> {
        let conn = &mut self.conns[conn];
        let start = conn.taken;
        match conn.protocol.reply(&conn.input[start..]) {
            Some(length) => {
                conn.taken += length;
                Some(&conn.input[start..start + length])
            }
            None => {
                conn.input.drain(..start);
                conn.taken = 0;
                None
            }
        }
    }

    /// Sends a request and waits for its reply.
    pub fn ask(&mut self, conn: usize, bytes: &[u8]) -> Vec<u8> {
        self.send(conn, bytes);
        self.await_reply(conn)
    }

    /// Waits for the reply to a request that was sent.
    pub fn await_reply(&mut self, conn: usize) -> Vec<u8> {
        let (limit, mut ready) = (Instant::now() + Duration::from_secs(30), Vec::new());
        loop {
            if let Some(reply) = self.reply(conn) {
                return reply.to_vec();
            }
            assert!(Instant::now() < limit, "no reply");
            self.wait(limit, &mut ready);
        }
    }

    /// All that has come.
    fn read(&mut self, conn: usize) {
        let conn = &mut self.conns[conn];
        loop {
            match conn.stream.read(&mut self.chunk) {
                Ok(0) => panic!("the server closed a connection"),
                Ok(count) => {
                    conn.input.extend_from_slice(&self.chunk[..count]);
                    self.received += count as u64;
                    // Less than asked for: there is no more.
                    if count < CHUNK {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("read replies: {error}"),
            }
        }
    }
}

fn whole_ms(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
