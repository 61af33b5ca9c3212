//! The log under load: each of a hundred thousand waits is an entry, the entries are true, and the
//! memory is bounded.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use redis::Connection;

use support::observe::{info_number, run};
use support::wire::packed_line;
use support::{int, list, map, text, wait_until, Server};

const CLIENTS: usize = 100;
const TURNS: usize = 500;
const KEPT: i64 = 1_000;

/// Each client locks and unlocks many times, all in one write. A request has to wait behind those
/// that wait already, so nearly all wait.
fn all_take_turns(server: &Server) {
    let streams: Vec<TcpStream> = (0..CLIENTS)
        .map(|_| TcpStream::connect(("127.0.0.1", server.port())).expect("connect"))
        .collect();
    thread::scope(|scope| {
        for (number, mut stream) in streams.into_iter().enumerate() {
            scope.spawn(move || {
                let lock = packed_line(&format!("RWLOCK.WLOCK k owner:{number} 600000 BLOCK 0"));
                let unlock = packed_line(&format!("RWLOCK.UNLOCK k owner:{number}"));
                let turn = [lock, unlock].concat();
                stream.write_all(&turn.repeat(TURNS)).expect("send");
                let mut replies = vec![0; TURNS * "+OK\r\n:1\r\n".len()];
                stream.read_exact(&mut replies).expect("read the replies");
                assert!(replies.chunks(9).all(|reply| reply == b"+OK\r\n:1\r\n"));
            });
        }
    });
}

fn newest(con: &mut Connection) -> i64 {
    let entries = list(run(con, "RWLOCK.LOG COUNT 1"));
    entries.first().map_or(-1, |entry| int(&map(entry)["id"]))
}

#[test]
fn a_hundred_thousand_waits_are_told() {
    let settings = format!("log-slower-than 0 log-max-len {KEPT} log-holds-over -1");
    let server = Server::builder().module_arguments(settings).start();
    let mut con = server.connection();
    let used_memory = || info_number(&server, "memory", "used_memory");
    let before = used_memory();
    for _ in 0..3 {
        all_take_turns(&server);
        let waits = info_number(&server, "rwlock", "rwlock_granted_after_waiting");
        wait_until("the clients are gone", || {
            info_number(&server, "clients", "connected_clients") <= 2
        });
        // One entry for each wait, and no other.
        assert_eq!(newest(&mut con), waits - 1);
        // The entries that are kept take 2 KB each at most, the others nothing. The server takes
        // some time to give back what the clients had.
        wait_until("only the log takes memory", || used_memory() - before < KEPT * 2_048);
    }
    assert!(newest(&mut con) >= 100_000, "{}", newest(&mut con));

    let entries: Vec<_> = list(run(&mut con, "RWLOCK.LOG COUNT 100000")).iter().map(map).collect();
    assert_eq!(entries.len() as i64, KEPT);
    for pair in entries.windows(2) {
        assert_eq!(int(&pair[0]["id"]), int(&pair[1]["id"]) + 1);
        assert!(int(&pair[0]["time"]) >= int(&pair[1]["time"]));
    }
    for entry in &entries {
        let owner = text(&entry["owner"]);
        assert_eq!([text(&entry["event"]), text(&entry["key"])], ["wait", "k"]);
        let blockers: Vec<_> = list(&entry["blockers"]).iter().map(map).collect();
        assert!((1..=8).contains(&blockers.len()), "{entry:?}");
        assert!(blockers.iter().all(|blocker| text(&blocker["owner"]) != owner), "{entry:?}");
        // Holders come first.
        let holds: Vec<_> = blockers.iter().map(|blocker| int(&blocker["holding"])).collect();
        assert!(holds.is_sorted_by(|one, next| one >= next), "{entry:?}");
    }
}
