//! Replies of the module.

use crate::keys::Bytes;

/// A part of a reply, in the order in which the module sends it.
#[derive(Clone, Debug)]
pub(crate) enum Token {
    Integer(i64),
    Null,
    Bulk(Bytes),
    Status(String),
    Error(String),
    Array(usize),
    Map(usize),
}

/// A whole reply. A map is an array of names and values in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Integer(i64),
    Null,
    Bulk(Bytes),
    Status(String),
    Error(String),
    Array(Vec<Reply>),
    /// The client is blocked.
    Blocked,
}

impl Reply {
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }

    /// Whether it is an error whose text begins so.
    pub fn is_error_of(&self, begin: &str) -> bool {
        matches!(self, Reply::Error(text) if text.starts_with(begin))
    }

    /// The value of a name in a map.
    pub fn field(&self, name: &str) -> &Reply {
        let Reply::Array(items) = self else {
            panic!("no map: {self:?}");
        };
        let pair = items.chunks(2).find(|pair| pair[0] == Reply::Bulk(name.into()));
        &pair.unwrap_or_else(|| panic!("no {name}: {self:?}"))[1]
    }

    pub fn integer(&self) -> i64 {
        match self {
            Reply::Integer(number) => *number,
            _ => panic!("no integer: {self:?}"),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Reply::Bulk(bytes) => bytes,
            _ => panic!("no text: {self:?}"),
        }
    }

    pub fn items(&self) -> &[Reply] {
        match self {
            Reply::Array(items) => items,
            _ => panic!("no array: {self:?}"),
        }
    }
}

/// The reply that the parts make. There must be one reply, and no more.
pub(crate) fn whole(tokens: &[Token]) -> Reply {
    let mut rest = tokens;
    let reply = one(&mut rest).unwrap_or_else(|| panic!("half a reply: {tokens:?}"));
    assert!(rest.is_empty(), "more than one reply: {tokens:?}");
    reply
}

fn one(rest: &mut &[Token]) -> Option<Reply> {
    let (first, others) = rest.split_first()?;
    *rest = others;
    let mut many = |count: usize| (0..count).map(|_| one(rest)).collect::<Option<Vec<_>>>();
    Some(match first {
        Token::Integer(number) => Reply::Integer(*number),
        Token::Null => Reply::Null,
        Token::Bulk(bytes) => Reply::Bulk(bytes.clone()),
        Token::Status(text) => Reply::Status(text.clone()),
        Token::Error(text) => Reply::Error(text.clone()),
        Token::Array(count) => Reply::Array(many(*count)?),
        Token::Map(count) => Reply::Array(many(2 * count)?),
    })
}
