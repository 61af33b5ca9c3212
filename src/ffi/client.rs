//! The clients of the server: what it tells of them, and the end of their connections.

use super::{api, CallReply, Ctx, MainThread, Text};
use redis_module::raw;
use std::cell::Cell;
use std::ffi::{c_int, c_void, CStr};
use std::ptr::null_mut;
use std::sync::OnceLock;

/// Some ids of clients that have, or had, a connection. The server gives no id twice.
static CONNECTED: MainThread<[Cell<u64>; 1024]> = MainThread::new([const { Cell::new(0) }; 1024]);

impl Ctx<'_> {
    /// The id of the client that runs the command. None: there is no client with a connection, for
    /// example because another module calls the command, or the server loads an AOF.
    pub fn client_id(self) -> Option<u64> {
        // SAFETY: the context lives as long as `self`. With null the server only says whether
        // it has the client.
        let (id, known) = unsafe {
            let id = api!(RedisModule_GetClientId)(self.raw());
            (id, api!(RedisModule_GetClientInfoById)(null_mut(), id))
        };
        (known == raw::REDISMODULE_OK as c_int && self.has_connection(id)).then_some(id)
    }

    /// Whether the client of this command, which the server finds, has a connection. The clients of
    /// scripts and of other modules have none, and Valkey 9.1 finds them all the same. There a
    /// client that may block counts as connected: a module's calls may not, unless the module
    /// asks for it. Of any other client this reads CLIENT LIST, which shows only connections. That
    /// takes longer the more clients there are, so it is remembered. Where CLIENT is renamed the
    /// answer is yes.
    fn has_connection(self, id: u64) -> bool {
        if !finds_clients_without_connection() || self.situation().may_block {
            return true;
        }
        let seen = &CONNECTED[id as usize % CONNECTED.len()];
        let is_connected = seen.get() == id
            || self.client_list(&[id]).is_none_or(|lines| !lines.trim().is_empty());
        if is_connected {
            seen.set(id);
        }
        is_connected
    }

    /// The name of a client's connection, as CLIENT SETNAME set it. Empty: it has none, or the client
    /// is gone. Redis before 7.0.3 cannot tell, there it is always empty.
    pub fn client_name(self, id: u64) -> Vec<u8> {
        // SAFETY: nothing writes to the pointer after the load. The context lives as long as `self`,
        // and the reference to the string is the caller's.
        let name = unsafe {
            raw::RedisModule_GetClientNameById
                .and_then(|name_of| Text::adopt(name_of(self.raw(), id)))
        };
        name.map_or(Vec::new(), |name| name.bytes().to_vec())
    }

    /// Closes the connection of a client, if it still exists.
    pub fn close_client(self, id: u64) {
        // SAFETY: the context lives as long as `self`.
        unsafe { api!(RedisModule_DeauthenticateAndCloseClient)(self.raw(), id) };
    }

    /// The address of a client as CLIENT LIST shows it; None: the server has no such client.
    ///
    /// Valkey 9.1 would crash when asked for the address of a client without a connection. So there
    /// this reads CLIENT LIST, which takes some µs.
    pub fn client_address(self, id: u64) -> Option<String> {
        if finds_clients_without_connection() {
            let lines = self.client_list(&[id])?;
            return field(lines.lines().next()?, "addr").map(str::to_owned);
        }
        let info = client_info(id)?;
        let bytes = info.addr.map(|byte| byte as u8);
        let address = CStr::from_bytes_until_nul(&bytes).ok()?.to_string_lossy();
        Some(match address.contains(':') {
            true => format!("[{address}]:{}", info.port),
            false => format!("{address}:{}", info.port),
        })
    }

    /// Whether a client is connected by TLS.
    pub fn is_tls(self, id: u64) -> bool {
        let tls = u64::from(raw::REDISMODULE_CLIENTINFO_FLAG_SSL);
        client_info(id).is_some_and(|info| info.flags & tls != 0)
    }

    /// The client among `clients` that called the running script; None: none of them. To be called
    /// only while a script runs. The module API has no function for it, so this reads CLIENT LIST:
    /// it shows memory for arguments only for a client that runs a command, or that has sent a part
    /// of its next command.
    pub fn script_caller(self, clients: &[u64]) -> Option<u64> {
        caller_in(&self.client_list(clients)?)
    }

    /// The lines of CLIENT LIST about these clients. None also when the context has no client, as
    /// after the client of an answer is gone: the server would crash in a call of a command.
    fn client_list(self, clients: &[u64]) -> Option<String> {
        // SAFETY: the context lives as long as `self`.
        if unsafe { api!(RedisModule_GetClientId)(self.raw()) } == 0 {
            return None;
        }
        let ids: Vec<String> = clients.iter().map(u64::to_string).collect();
        let mut words: Vec<&[u8]> = vec![b"ID"];
        words.extend(ids.iter().map(|id| id.as_bytes()));
        match self.call(c"CLIENT", c"LIST", &words)? {
            CallReply::Text(lines) => Some(String::from_utf8_lossy(&lines).into_owned()),
            _ => None,
        }
    }
}

/// What the module API tells of a client; None: the server has no such client.
fn client_info(id: u64) -> Option<raw::RedisModuleClientInfo> {
    let mut info = raw::RedisModuleClientInfo {
        version: u64::from(raw::REDISMODULE_CLIENTINFO_VERSION),
        flags: 0,
        id: 0,
        addr: [0; 46],
        port: 0,
        db: 0,
    };
    // SAFETY: `info` is a struct of the version that it says, and the server writes into it only
    // for this call.
    let found = unsafe { api!(RedisModule_GetClientInfoById)((&raw mut info).cast(), id) };
    (found == raw::REDISMODULE_OK as c_int).then_some(info)
}

/// Whether the server may find a client without a connection by its id. Valkey 9.1 does, and has
/// this function, which Valkey 8.1 and Redis do not have.
fn finds_clients_without_connection() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let mut found: *mut c_void = null_mut();
        let name = c"ValkeyModule_ACLCheckKeyPrefixPermissions".as_ptr();
        // SAFETY: nothing writes to the pointer after the load. The server writes a function's
        // address into `found`, or nothing.
        unsafe {
            raw::RedisModule_GetApi.is_some_and(|get| get(name, (&raw mut found).cast()) == 0)
        }
    })
}

/// Finds the client that runs a script in the lines of CLIENT LIST.
fn caller_in(lines: &str) -> Option<u64> {
    const RUN_SCRIPTS: [&str; 4] = ["eval", "evalsha", "fcall", "exec"];
    lines.lines().find_map(|line| {
        let field = |name| field(line, name);
        let is_script = RUN_SCRIPTS.contains(&field("cmd")?);
        let executes = field("argv-mem")? != "0" && !field("flags")?.contains('b');
        field("id")?.parse().ok().filter(|_| is_script && executes)
    })
}

/// The value of a field in a line of CLIENT LIST.
fn field<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    line.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_of_a_script_is_the_one_that_executes_one() {
        let idle = "id=1 addr=a:1 flags=N argv-mem=0 cmd=eval user=default\n";
        let waits = "id=2 addr=a:2 flags=b argv-mem=22 cmd=exec user=default\n";
        let reads = "id=3 addr=a:3 flags=N argv-mem=22 cmd=get user=default\n";
        let runs = "id=4 addr=a:4 flags=N argv-mem=10 cmd=evalsha user=default\n";
        assert_eq!(caller_in(&[idle, waits, reads].concat()), None);
        assert_eq!(caller_in(&[idle, waits, reads, runs].concat()), Some(4));
        assert_eq!(caller_in(""), None);
        assert_eq!(caller_in("nothing of the kind\n"), None);
    }
}
