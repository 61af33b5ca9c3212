//! Session holds, which end with a connection.

mod bindings;
mod closes;
mod holds;
mod moves;
mod renewals;
mod slots;

use redis::Connection;

use support::observe::{ends_at, inspect, run};
use support::{assert_ok, call, int, list, local_clock, map, text, wait_until};

pub fn client_id(con: &mut Connection) -> i64 {
    int(call!(con, "CLIENT", "ID"))
}

/// The holders as INSPECT shows them: owner, kind, holds, session.
pub fn holders(con: &mut Connection, lock: &str) -> Vec<(String, String, i64, i64)> {
    list(inspect(con, lock, "holders"))
        .into_iter()
        .map(|holder| {
            let holder = map(holder);
            (
                text(&holder["owner"]),
                text(&holder["kind"]),
                int(&holder["holds"]),
                int(&holder["session"]),
            )
        })
        .collect()
}

/// The ends of an owner's read holds in the order of their numbers, as hours
/// from now: tests tell holds apart by them.
pub fn hours(con: &mut Connection, lock: &str, owner: &str) -> Vec<i64> {
    let ends = (1..).map(|n| ends_at(con, &format!("{{{lock}}}:{owner}:rwlock_timeout:{n}")));
    let ends: Vec<i64> = ends.take_while(|end| *end != -2).collect();
    let now = local_clock();
    ends.into_iter().map(|end| (end - now + 1_800_000) / 3_600_000).collect()
}

#[track_caller]
pub fn ok(con: &mut Connection, line: &str) {
    assert_ok(run(con, &format!("RWLOCK.{line}")));
}

pub fn unlock(con: &mut Connection, line: &str) -> i64 {
    int(run(con, &format!("RWLOCK.UNLOCK {line}")))
}

/// An hour, in ms. A lease of several tells a hold from others.
pub const HOUR: &str = "3600000";
pub const TWO: &str = "7200000";
pub const THREE: &str = "10800000";
pub const FOUR: &str = "14400000";

/// Closes the connection and waits until the server has noticed.
pub fn close(mut con: Connection, other: &mut Connection) {
    let id = client_id(&mut con);
    drop(con);
    wait_until("the connection is closed", || {
        text(call!(other, "CLIENT", "LIST", "ID", id)).is_empty()
    });
    // Its holds go when the server is done with what it did then.
    call!(other, "PING").expect("pass");
}

/// The same, and waits until no key is left.
#[track_caller]
pub fn close_last(con: Connection, other: &mut Connection) {
    close(con, other);
    wait_until("it is given back", || int(run(other, "DBSIZE")) == 0);
}
