//! The keys of the small server, and the plain commands that a replica applies.

use std::collections::BTreeMap;

/// The bytes of a key, a field or a value.
pub type Bytes = Vec<u8>;

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Hash(BTreeMap<Bytes, Bytes>),
    String(Bytes),
    /// Any type that a lock has no use for.
    Other,
}

/// A key's value and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub value: Value,
    /// Unix time in ms; None: never.
    pub expiry: Option<i64>,
}

impl Key {
    pub fn hash<'a>(fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Key {
        let fields = fields.into_iter().map(|(field, value)| (field.to_vec(), value.to_vec()));
        Key { value: Value::Hash(fields.collect()), expiry: None }
    }

    pub fn string(value: &[u8]) -> Key {
        Key { value: Value::String(value.to_vec()), expiry: None }
    }

    pub fn until(self, expiry: Option<i64>) -> Key {
        Key { expiry, ..self }
    }
}

/// The keys of all databases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys(pub BTreeMap<(i32, Bytes), Key>);

impl Keys {
    pub fn get(&self, db: i32, name: &[u8]) -> Option<&Key> {
        self.0.get(&(db, name.to_vec()))
    }

    pub fn get_mut(&mut self, db: i32, name: &[u8]) -> Option<&mut Key> {
        self.0.get_mut(&(db, name.to_vec()))
    }

    pub fn put(&mut self, db: i32, name: &[u8], key: Key) {
        self.0.insert((db, name.to_vec()), key);
    }

    pub fn remove(&mut self, db: i32, name: &[u8]) -> Option<Key> {
        self.0.remove(&(db, name.to_vec()))
    }

    /// The fields of a hash; None: there is no such key, or it is no hash.
    pub fn fields(&self, db: i32, name: &[u8]) -> Option<&BTreeMap<Bytes, Bytes>> {
        match self.get(db, name) {
            Some(Key { value: Value::Hash(fields), .. }) => Some(fields),
            _ => None,
        }
    }

    /// A copy without the keys that have lapsed.
    pub fn live(&self, now: i64) -> Keys {
        let lives = |key: &Key| key.expiry.is_none_or(|at| now <= at);
        Keys(
            self.0
                .iter()
                .filter(|(_, key)| lives(key))
                .map(|(n, k)| (n.clone(), k.clone()))
                .collect(),
        )
    }

    /// Sets a field of a hash, or deletes it. A hash comes and goes with its fields.
    pub fn set_field(&mut self, db: i32, name: &[u8], field: &[u8], value: Option<&[u8]>) {
        let key = self.0.entry((db, name.to_vec())).or_insert_with(|| Key::hash([]));
        let Value::Hash(fields) = &mut key.value else {
            return;
        };
        match value {
            Some(value) => drop(fields.insert(field.to_vec(), value.to_vec())),
            None => drop(fields.remove(field)),
        }
        if fields.is_empty() {
            self.remove(db, name);
        }
    }

    /// Applies a propagated command, as a replica does. A command that no change of a lock needs
    /// is a fault.
    pub fn apply(&mut self, db: i32, command: &str, args: &[Bytes]) {
        let time = |text: &Bytes| -> i64 {
            std::str::from_utf8(text).expect("a time").parse().expect("a time")
        };
        match (command, args) {
            ("PUBLISH", [_, _]) => {}
            ("HSET", [key, pairs @ ..]) if !pairs.is_empty() && pairs.len() % 2 == 0 => {
                for pair in pairs.chunks(2) {
                    self.set_field(db, key, &pair[0], Some(&pair[1]));
                }
            }
            ("HDEL", [key, fields @ ..]) if !fields.is_empty() => {
                for field in fields {
                    self.set_field(db, key, field, None);
                }
            }
            ("DEL", keys) if !keys.is_empty() => {
                keys.iter().for_each(|key| drop(self.remove(db, key)))
            }
            ("PEXPIREAT", [key, at]) => {
                let at = time(at);
                if let Some(key) = self.get_mut(db, key) {
                    key.expiry = Some(at);
                }
            }
            ("PERSIST", [key]) => {
                if let Some(key) = self.get_mut(db, key) {
                    key.expiry = None;
                }
            }
            ("SET", [key, value]) => self.put(db, key, Key::string(value)),
            ("SET", [key, value, word, at]) if word == b"PXAT" => {
                self.put(db, key, Key::string(value).until(Some(time(at))));
            }
            _ => panic!("a replica gets {command} {args:?}"),
        }
    }
}
