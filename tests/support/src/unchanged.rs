//! What must not change: the whole content of a database, before and after.

use std::collections::BTreeMap;

use redis::Connection;

use crate::{bytes, call, int, list};

/// Every key with its serialized value and the unix time at which it expires.
pub type Snapshot = BTreeMap<Vec<u8>, (Vec<u8>, i64)>;

const EVERYTHING: &str = "local all = {}
    for _, key in ipairs(redis.call('KEYS', '*')) do
        local value = redis.call('DUMP', key)
        if value then
            table.insert(all, {key, value, redis.call('PEXPIRETIME', key)})
        end
    end
    return all";

/// All keys of the connection's database, as they are now.
#[track_caller]
pub fn snapshot(con: &mut Connection) -> Snapshot {
    list(call!(con, "EVAL", EVERYTHING, 0))
        .into_iter()
        .map(|row| {
            let row = list(row);
            (bytes(&row[0]), (bytes(&row[1]), int(&row[2])))
        })
        .collect()
}

/// Runs `command` and asserts that it left every key of the database as it
/// was, value and expiry.
#[track_caller]
pub fn assert_unchanged<T>(con: &mut Connection, command: impl FnOnce(&mut Connection) -> T) -> T {
    let before = snapshot(con);
    let result = command(con);
    let after = snapshot(con);
    let names: Vec<String> = before
        .keys()
        .chain(after.keys())
        .filter(|key| before.get(*key) != after.get(*key))
        .map(|key| shown(key))
        .collect();
    assert!(names.is_empty(), "these keys changed: {names:?}");
    result
}

/// A name for people, whatever its bytes and however long.
pub fn shown(name: &[u8]) -> String {
    name.iter().take(100).flat_map(|byte| byte.escape_ascii()).map(char::from).collect()
}

/// Sends a command, asserts that the reply is an error that starts so, that
/// nothing has changed and that the connection is still in step; gives back
/// the error's text.
#[macro_export]
macro_rules! refused {
    ($con:expr, $error:expr, $($argument:expr),+ $(,)?) => {{
        let text = $crate::unchanged::assert_unchanged($con, |con| {
            $crate::assert_error($crate::call!(con, $($argument),+), $error)
        });
        assert_eq!($crate::text($crate::call!($con, "PING")), "PONG");
        text
    }};
}
