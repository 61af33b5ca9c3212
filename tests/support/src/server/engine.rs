//! Which server program runs, and what it can do.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

/// Names the server program that tests run against by default.
const VARIABLE: &str = "RWLOCK_SERVER";

/// What a running server says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    pub valkey: bool,
    pub major: u32,
    pub minor: u32,
}

impl Engine {
    /// Reads it from the answer to `INFO server`.
    pub(super) fn from_info(info: &BTreeMap<String, String>) -> Self {
        // Valkey reports the Redis version it is compatible with besides its own.
        let valkey = info.get("server_name").is_some_and(|name| name == "valkey");
        let field = if valkey { "valkey_version" } else { "redis_version" };
        let version =
            info.get(field).unwrap_or_else(|| panic!("no {field} in INFO server: {info:?}"));
        let mut numbers = version.split('.').map(|part| {
            part.parse::<u32>().unwrap_or_else(|error| panic!("{field} {version:?}: {error}"))
        });
        let mut next =
            || numbers.next().unwrap_or_else(|| panic!("{field} {version:?}: too short"));
        Self { valkey, major: next(), minor: next() }
    }

    /// Is this at least that version of Redis, or that version of Valkey?
    pub fn at_least(self, redis: (u32, u32), valkey: (u32, u32)) -> bool {
        let wanted = if self.valkey { valkey } else { redis };
        (self.major, self.minor) >= wanted
    }
}

/// The program that `RWLOCK_SERVER` names, else `redis-server`, else
/// `valkey-server` from the search path.
pub(super) fn default_program() -> PathBuf {
    if let Some(program) = env::var_os(VARIABLE).filter(|program| !program.is_empty()) {
        return PathBuf::from(program);
    }
    ["redis-server", "valkey-server"].iter().find_map(|name| in_search_path(name)).unwrap_or_else(
        || {
            panic!(
                "no redis-server or valkey-server in PATH: install one, or name one in {VARIABLE}"
            )
        },
    )
}

fn in_search_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|dir| dir.join(name))
        .find(|program| Path::is_file(program))
}
