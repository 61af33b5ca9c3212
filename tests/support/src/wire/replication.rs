//! The commands that a server sends to its replicas and appends to its file.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use redis::Connection;

use crate::{call, int, Server, DEADLINE};

/// A command and its arguments. Escaped where they are no plain text.
pub type Words = Vec<String>;

/// The channel of the messages that tell where a part of the stream ends.
const MARKER: &str = "test-marker";

/// A connection to which the server sends what it sends to a replica.
pub struct ReplicationStream {
    reader: BufReader<TcpStream>,
    markers: u32,
}

impl ReplicationStream {
    /// Asks for the stream as the simplest of replicas does, and leaves out
    /// the snapshot at its head.
    #[track_caller]
    pub fn attach(server: &Server) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).expect("connect");
        stream.set_read_timeout(Some(DEADLINE)).expect("set a time-out");
        (&stream).write_all(b"SYNC\r\n").expect("ask for the stream");
        let mut reader = BufReader::new(stream);
        let head = line(&mut reader).expect("read the length of the snapshot");
        let length: u64 = head
            .strip_prefix('$')
            .and_then(|length| length.parse().ok())
            .unwrap_or_else(|| panic!("the length of a snapshot: {head:?}"));
        io::copy(&mut reader.by_ref().take(length), &mut io::sink()).expect("skip the snapshot");
        Self { reader, markers: 0 }
    }

    /// What the server sends because of what `act` does, and nothing that it
    /// sends anyway.
    #[track_caller]
    pub fn during<T>(
        &mut self,
        con: &mut Connection,
        act: impl FnOnce(&mut Connection) -> T,
    ) -> (T, Vec<Words>) {
        self.next_marker(con);
        let result = act(con);
        (result, self.next_marker(con))
    }

    /// Everything up to a marker that is sent now.
    #[track_caller]
    fn next_marker(&mut self, con: &mut Connection) -> Vec<Words> {
        self.markers += 1;
        let marker = ["PUBLISH".to_owned(), MARKER.to_owned(), self.markers.to_string()];
        assert_eq!(int(call!(con, "PUBLISH", MARKER, self.markers)), 0);
        let mut commands = Vec::new();
        loop {
            let command = command(&mut self.reader).expect("read the stream");
            match command[0].as_str() {
                _ if command == marker => return commands,
                // The link's own business.
                "PING" | "REPLCONF" | "SELECT" => {}
                _ => commands.push(command),
            }
        }
    }
}

/// The commands in a server's append-only files, oldest first. The files are
/// those of a server that had the append-only file from its start.
#[track_caller]
pub fn append_only_file(server: &Server) -> Vec<Words> {
    let dir = server.dir().join("appendonlydir");
    let mut files: Vec<_> = fs::read_dir(&dir)
        .unwrap_or_else(|error| panic!("no {}: {error}", dir.display()))
        .map(|entry| entry.expect("list the append-only files").path())
        .filter(|path| path.to_string_lossy().ends_with(".incr.aof"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no file in {}", dir.display());
    let mut commands = Vec::new();
    for path in files {
        let content = fs::read(&path).expect("read an append-only file");
        let mut rest = &content[..];
        while !rest.is_empty() {
            commands.push(command(&mut rest).expect("read an append-only file"));
        }
    }
    commands
}

/// Asserts that these are commands which every server understands and which
/// mean the same whenever they are carried out.
#[track_caller]
pub fn assert_plain(commands: &[Words]) {
    for words in commands {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let plain = match words[..] {
            ["SET", _, _] => true,
            ["SET", _, _, option, at] => option.eq_ignore_ascii_case("PXAT") && is_future(at),
            ["PEXPIREAT", _, at] => is_future(at),
            ["HSET" | "HDEL" | "DEL" | "UNLINK" | "PERSIST", ..] => true,
            ["PUBLISH" | "MULTI" | "EXEC" | "SELECT", ..] => true,
            _ => false,
        };
        assert!(plain, "{words:?}");
    }
}

/// A unix time in ms that is no duration: any in this century is beyond 10^12.
fn is_future(at: &str) -> bool {
    at.parse::<i64>().is_ok_and(|at| at > 1_000_000_000_000)
}

fn command(reader: &mut impl BufRead) -> io::Result<Words> {
    let broken = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
    let number = |text: &str, sign: char| -> io::Result<usize> {
        text.strip_prefix(sign).and_then(|n| n.parse().ok()).ok_or_else(|| broken(text))
    };
    let count = number(&line(reader)?, '*')?;
    let mut words = Words::new();
    for _ in 0..count {
        let length = number(&line(reader)?, '$')?;
        let mut word = vec![0; length + 2];
        reader.read_exact(&mut word)?;
        words.push(word[..length].escape_ascii().to_string());
    }
    let Some(name) = words.first_mut() else {
        return Err(broken("a command without a name"));
    };
    name.make_ascii_uppercase();
    Ok(words)
}

/// The next line that is not empty: empty ones keep a connection alive.
fn line(reader: &mut impl BufRead) -> io::Result<String> {
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        if !line.is_empty() {
            return Ok(line.to_owned());
        }
    }
}
