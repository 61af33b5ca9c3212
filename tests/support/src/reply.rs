//! Sending commands and reading replies.

use std::collections::BTreeMap;

use redis::{Cmd, Connection, ConnectionLike, RedisError, RedisResult, ServerError, Value};

/// Sends a command of any arguments that the `redis` crate can turn into bytes:
/// `call!(con, "SET", key, b"\xff", "PX", 1000)`.
///
/// `con` is a `Connection` or a `&mut Connection`. The result is an `Err` only
/// if the reply itself is an error: one inside the array that EXEC answers
/// stays where it is, as a `Value::ServerError`.
#[macro_export]
macro_rules! call {
    ($con:expr, $($argument:expr),+ $(,)?) => {{
        use $crate::Call as _;
        let mut command = ::redis::Cmd::new();
        $(command.arg($argument);)+
        $con.call(&command)
    }};
}

/// What [`call!`] needs of a connection.
pub trait Call {
    fn call(&mut self, command: &Cmd) -> RedisResult<Value>;
}

impl Call for Connection {
    fn call(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self.req_command(command)? {
            Value::ServerError(error) => Err(error.into()),
            reply => Ok(reply),
        }
    }
}

/// [`call!`] for arguments that are known only at run time.
pub fn send<A: AsRef<[u8]>>(
    con: &mut Connection,
    arguments: impl IntoIterator<Item = A>,
) -> RedisResult<Value> {
    let mut command = Cmd::new();
    for argument in arguments {
        command.arg(argument.as_ref());
    }
    con.call(&command)
}

/// The error line as on the wire, without the leading `-`: `ERR syntax error`.
///
/// Panics if this is not an error that the server replied: a lost connection,
/// a time-out, or a reply that the `redis` crate cannot read (among them error
/// lines that are not UTF-8).
#[track_caller]
pub fn error_text(error: &RedisError) -> String {
    let reply = match ServerError::try_from(error.clone()) {
        Ok(reply) => reply,
        Err(other) => panic!("not an error reply: {other}"),
    };
    match reply.details() {
        Some(details) => format!("{} {details}", reply.code()),
        None => reply.code().to_owned(),
    }
}

/// Asserts that the reply is an error whose text starts with `start`, a code
/// or more (`NOTHELD`, `ERR syntax error`), and gives back the whole text.
#[track_caller]
pub fn assert_error(result: RedisResult<Value>, start: &str) -> String {
    let text = match result {
        Ok(reply) => panic!("expected error {start:?}, got {reply:?}"),
        Err(error) => error_text(&error),
    };
    // ERR must not match ERRATIC.
    let whole_words = text
        .strip_prefix(start)
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()));
    assert!(whole_words, "expected error {start:?}, got {text:?}");
    text
}

/// Asserts that the reply is the status `OK`.
#[track_caller]
pub fn assert_ok(reply: impl Reply) {
    assert_eq!(reply.value(), Value::Okay);
}

/// A reply, or a result that is expected to be one.
pub trait Reply {
    /// Panics with the text of the error if there is no reply.
    fn value(self) -> Value;
}

impl Reply for Value {
    fn value(self) -> Value {
        self
    }
}

impl Reply for &Value {
    fn value(self) -> Value {
        self.clone()
    }
}

impl Reply for RedisResult<Value> {
    #[track_caller]
    fn value(self) -> Value {
        self.unwrap_or_else(|error| panic!("expected a reply, got {error}"))
    }
}

/// An integer reply.
#[track_caller]
pub fn int(reply: impl Reply) -> i64 {
    match reply.value() {
        Value::Int(number) => number,
        other => panic!("expected an integer, got {other:?}"),
    }
}

/// The bytes of a string reply of any kind.
#[track_caller]
pub fn bytes(reply: impl Reply) -> Vec<u8> {
    match reply.value() {
        Value::BulkString(bytes) => bytes,
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.into_bytes(),
        Value::Okay => b"OK".to_vec(),
        other => panic!("expected a string, got {other:?}"),
    }
}

/// A string reply of any kind that is UTF-8.
#[track_caller]
pub fn text(reply: impl Reply) -> String {
    match String::from_utf8(bytes(reply)) {
        Ok(text) => text,
        Err(error) => panic!("expected UTF-8: {error}"),
    }
}

/// The elements of an array or a set.
#[track_caller]
pub fn list(reply: impl Reply) -> Vec<Value> {
    match reply.value() {
        Value::Array(elements) | Value::Set(elements) => elements,
        other => panic!("expected an array, got {other:?}"),
    }
}

/// A map, be it RESP3's or the flat array that RESP2 has for it.
#[track_caller]
pub fn map(reply: impl Reply) -> BTreeMap<String, Value> {
    let pairs: Vec<(Value, Value)> = match reply.value() {
        Value::Map(pairs) => pairs,
        Value::Array(flat) => {
            let pairs = flat.chunks_exact(2);
            assert!(pairs.remainder().is_empty(), "a key without a value in {flat:?}");
            pairs.map(|pair| (pair[0].clone(), pair[1].clone())).collect()
        }
        other => panic!("expected a map, got {other:?}"),
    };
    let mut map = BTreeMap::new();
    for (key, value) in pairs {
        let key = text(key);
        assert!(!map.contains_key(&key), "{key:?} twice in a map");
        map.insert(key, value);
    }
    map
}

/// The reply to TIME, unix time in µs.
#[track_caller]
pub fn micros(reply: impl Reply) -> i64 {
    let parts: Vec<i64> = list(reply)
        .into_iter()
        .map(|part| text(part).parse().unwrap_or_else(|error| panic!("TIME: {error}")))
        .collect();
    let [seconds, micros] = parts[..] else {
        panic!("TIME: {parts:?}");
    };
    seconds * 1_000_000 + micros
}
