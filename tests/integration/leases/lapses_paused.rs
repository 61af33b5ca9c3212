//! Leases that run out while writes are paused: nothing is written then, and
//! what ended is announced when the pause is over.

use support::observe::{info_number, Subscriber};
use support::{assert_ok, call, int, wait_until, Crowd, Server};

/// The hold that lapses, what comes first when the pause is over (if anything,
/// it waits for that), and the announcement.
const CASES: [(&str, &str, &str); 10] = [
    ("WLOCK k a 200", "", "1"),
    ("RLOCK k a 200", "", "0"),
    ("WLOCK k a 200", "WLOCK k b 60000", "1"),
    ("WLOCK k a 200", "RLOCK k b 60000", "1"),
    ("WLOCK k a 200", "WLOCK k a 60000", "1"),
    ("WLOCK k a 200", "UNLOCK k a", "1"),
    ("RLOCK k a 200", "WLOCK k b 60000", "0"),
    ("RLOCK k a 200", "RLOCK k b 60000", "0"),
    ("RLOCK k a 200", "RENEW k a 60000", "0"),
    ("WLOCK k a 200", "FORCEUNLOCK k", "1"),
];

#[test]
fn a_lapse_is_announced_when_the_pause_is_over() {
    let server = Server::builder().config("notify-keyspace-events", "Kd").start();
    let mut crowd = Crowd::on(&server);
    let mut announced = Subscriber::channel(&server, b"redisson_rwlock:{k}");
    let mut events = Subscriber::channel(&server, b"__keyspace@0__:k");
    for (hold, next, expected) in CASES {
        let lapsed = info_number(&server, "rwlock", "rwlock_lapsed");
        crowd.ok(hold);
        assert_ok(call!(crowd.con, "CLIENT", "PAUSE", 100_000, "WRITE"));
        wait_until("it has lapsed", || int(crowd.plain("EXISTS k")) == 0);
        // Until it has been looked at in vain.
        std::thread::sleep(std::time::Duration::from_millis(30));
        let mut client = crowd.client();
        if !next.is_empty() {
            client.send(next);
            wait_until("it waits for the end of the pause", || {
                info_number(&server, "clients", "blocked_clients") == 1
            });
        }
        assert_ok(call!(crowd.con, "CLIENT", "UNPAUSE"));
        if !next.is_empty() {
            drop(client.reply());
        }
        let case = format!("{hold}, then {next}");
        wait_until(&case, || info_number(&server, "rwlock", "rwlock_lapsed") == lapsed + 1);
        crowd.plain("DEL k {k}:a:rwlock_timeout:1 {k}:b:rwlock_timeout:1");
        crowd.plain("PUBLISH redisson_rwlock:{k} end");
        crowd.plain("PUBLISH __keyspace@0__:k end");
        assert_eq!(announced.until("end"), [expected], "{case}");
        let heard = events.until("end");
        assert_eq!(heard[..2], ["rwlock.acquire", "rwlock.expire"], "{case}: {heard:?}");
    }
}
