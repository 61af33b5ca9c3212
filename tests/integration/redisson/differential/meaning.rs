//! What replies mean, whichever side they come from.

use redis::Value;

/// What a command on a lock answered, whichever side it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Held, or renewed.
    Done,
    /// Ms, or one of the numbers of UNLOCK and FORCEUNLOCK.
    Number(i64),
    /// The owner has no such hold.
    NotHeld,
    /// Anything else.
    Odd(String),
}

impl Meaning {
    pub fn of(reply: &Value) -> Self {
        match reply {
            Value::Okay => Self::Done,
            // With a fencing token.
            Value::Array(items) if matches!(items[..], [Value::Okay, Value::Int(_)]) => Self::Done,
            Value::SimpleString(text) if text == "NOTHELD" => Self::NotHeld,
            Value::Int(number) => Self::Number(*number),
            Value::ServerError(error) if error.code() == "NOTHELD" => Self::NotHeld,
            other => Self::Odd(format!("{other:?}")),
        }
    }
}
