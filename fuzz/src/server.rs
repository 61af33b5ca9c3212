//! A small server with the module loaded.

use crate::api::{context, free_string, raise, ClientInfo, Text, STRINGS};
use crate::keys::{Bytes, Key, Keys};
use crate::reply::whole;
pub use crate::reply::Reply;
pub use crate::state::START;
use crate::state::{Event, State, STATE};
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

const FLUSH_DB: u64 = 2;
const LOADING: u64 = 3;
const CLIENT_CHANGE: u64 = 4;
const CRON_LOOP: u64 = 8;
const EVENT_LOOP: u64 = 15;
const FLUSHED: u64 = 1;
const LOADS: u64 = 0;
const LOADED: u64 = 3;
const DISCONNECTED: u64 = 1;
const BEFORE_SLEEP: u64 = 0;
const AFTER_SLEEP: u64 = 1;

/// What the module reads of a flush.
#[repr(C)]
struct FlushInfo {
    version: u64,
    sync: i32,
    db: i32,
}

unsafe extern "C" {
    fn RedisModule_OnLoad(ctx: *mut c_void, argv: *mut *mut c_void, argc: c_int) -> c_int;
    fn RedisModule_OnUnload(ctx: *mut c_void) -> c_int;
}

/// A server with the module loaded. There is one at a time.
pub struct Server {
    strings: isize,
}

thread_local! {
    /// The server that was used last, and for how many inputs. At the end of the process it is not
    /// dropped: its state may be gone by then.
    static USED: RefCell<Option<(ManuallyDrop<Server>, usize)>> = const { RefCell::new(None) };
}

/// For how many inputs a server is used. To load the module takes longer than most inputs do.
const MAX_USES: usize = 1000;

/// Runs an input on a server without keys and clients.
pub fn with_server(run: impl FnOnce(&mut Server)) {
    let (mut server, uses) = match USED.take() {
        Some((server, uses)) if uses < MAX_USES => (server, uses),
        used => {
            drop(used.map(|(server, _)| ManuallyDrop::into_inner(server)));
            (ManuallyDrop::new(Server::start()), 0)
        }
    };
    run(&mut server);
    server.clear();
    USED.set(Some((server, uses + 1)));
}

impl Server {
    fn start() -> Server {
        STATE.set(State::new());
        let strings = STRINGS.load(Ordering::Relaxed);
        let status = unsafe { RedisModule_OnLoad(context(), null_mut(), 0) };
        assert_eq!(status, 0, "the module does not load");
        Server { strings }
    }

    /// Ends all that an input has left behind.
    fn clear(&mut self) {
        let clients = STATE.with_borrow(|s| s.connected.clone());
        clients.into_iter().for_each(|client| self.disconnect(client));
        self.flush();
        self.settle();
        assert_eq!(self.blocked(), 0, "clients that are gone are still blocked");
        self.set("policy", 0);
        STATE.with_borrow_mut(|s| s.notifies = false);
        for command in [b"rwlock.log".as_slice(), b"rwlock.hotlocks"] {
            assert!(!self.call(1, true, &[command, b"RESET"]).is_error());
        }
        self.disconnect(1);
    }

    /// FLUSHALL.
    pub fn flush(&mut self) {
        STATE.with_borrow_mut(|s| {
            s.primary.0.clear();
            s.replica.0.clear();
        });
        let mut info = FlushInfo { version: 1, sync: 1, db: -1 };
        self.raise_event(FLUSH_DB, FLUSHED, (&raw mut info).cast());
    }

    /// CONFIG SET of a setting of the module. The value of a word is its number.
    pub fn set(&mut self, name: &str, value: i64) {
        // The module reads the new value in the callback, and does not come back here.
        let configs = STATE.with_borrow_mut(|s| std::mem::take(&mut s.configs));
        let config = configs.iter().find(|config| config.name == name.as_bytes());
        config.unwrap_or_else(|| panic!("no setting {name}")).set(value);
        STATE.with_borrow_mut(|s| s.configs = configs);
    }

    /// The names of the commands, with their arity as COMMAND INFO has it.
    pub fn commands(&self) -> Vec<(Bytes, i32)> {
        STATE.with_borrow(|s| s.commands.iter().map(|c| (c.name.clone(), c.arity)).collect())
    }

    /// Lets `notify-keyspace-events` ask for all events.
    pub fn notify(&mut self) {
        STATE.with_borrow_mut(|s| s.notifies = true);
    }

    /// Runs a command for a client. In a transaction it cannot block the client.
    pub fn call(&mut self, client: u64, in_transaction: bool, args: &[&[u8]]) -> Reply {
        let name = args[0].to_ascii_lowercase();
        let (run, arity) = STATE.with_borrow(|s| {
            let command = s.commands.iter().find(|command| command.name == name);
            command.map(|command| (command.run, command.arity)).expect("a command of the module")
        });
        let count = args.len() as c_int;
        if arity > 0 && count != arity || count < -arity {
            return Reply::Error("ERR wrong number of arguments".into());
        }
        STATE.with_borrow_mut(|s| {
            s.connected.insert(client);
            s.may_block = !in_transaction;
            s.client = client;
            s.reply.clear();
        });
        let blocked = self.blocked();
        let mut argv: Vec<*mut Text> = args.iter().map(|arg| Text::make(arg)).collect();
        unsafe { run(context(), argv.as_mut_ptr(), count) };
        argv.into_iter().for_each(|arg| unsafe { free_string(null_mut(), arg) });
        self.check();
        let tokens = STATE.with_borrow_mut(|s| std::mem::take(&mut s.reply));
        // The client may be blocked and unblocked again in the same command.
        let waits = self.blocked() > blocked
            || STATE.with_borrow(|s| s.unblocked.iter().any(|(b, _)| b.client == client));
        match tokens.is_empty() && waits {
            true => Reply::Blocked,
            false => whole(&tokens),
        }
    }

    /// Where the command says that its keys are, as COMMAND GETKEYS asks; only for commands that
    /// the server has to ask.
    pub fn key_positions(&mut self, args: &[&[u8]]) -> Vec<usize> {
        let name = args[0].to_ascii_lowercase();
        let run = STATE.with_borrow_mut(|s| {
            s.key_positions = Some(Vec::new());
            s.commands.iter().find(|command| command.name == name).map(|command| command.run)
        });
        let run = run.expect("a command of the module");
        let mut argv: Vec<*mut Text> = args.iter().map(|arg| Text::make(arg)).collect();
        unsafe { run(context(), argv.as_mut_ptr(), argv.len() as c_int) };
        argv.into_iter().for_each(|arg| unsafe { free_string(null_mut(), arg) });
        STATE.with_borrow_mut(|s| s.key_positions.take()).expect("it was set above")
    }

    /// How many clients are blocked.
    pub fn blocked(&self) -> usize {
        STATE.with_borrow(|s| s.blocked.len())
    }

    /// Whether this client is blocked, or its answer is on its way.
    pub fn is_blocked(&self, client: u64) -> bool {
        STATE.with_borrow(|s| {
            s.blocked.iter().any(|blocked| blocked.client == client)
                || s.unblocked.iter().any(|(blocked, _)| blocked.client == client)
        })
    }

    /// Writes a key, as a client does who is no lock's. The replica gets it too.
    pub fn put(&mut self, name: &[u8], key: Key) {
        STATE.with_borrow_mut(|s| {
            s.primary.put(0, name, key.clone());
            s.replica.put(0, name, key);
        });
    }

    /// Sets or deletes a field of a hash, as a script does. Another type stays as it is. The module
    /// does not hear of it.
    pub fn put_field(&mut self, name: &[u8], field: &[u8], value: Option<&[u8]>) {
        STATE.with_borrow_mut(|s| {
            s.primary.set_field(0, name, field, value);
            s.replica.set_field(0, name, field, value);
        });
    }

    /// Tells the module that the server has loaded its keys from a file.
    pub fn load(&mut self) {
        for what in [LOADS, LOADED] {
            self.raise_event(LOADING, what, null_mut());
        }
    }

    /// Deletes a key, as DEL does.
    pub fn delete(&mut self, name: &[u8]) {
        let deleted = STATE.with_borrow_mut(|s| {
            s.replica.remove(0, name);
            s.primary.remove(0, name)
        });
        if deleted.is_some() {
            raise(0, c"del", name);
        }
    }

    /// Sets when a key ends, as PEXPIREAT and PERSIST do.
    pub fn expire_at(&mut self, name: &[u8], at: Option<i64>) {
        let found = STATE.with_borrow_mut(|s| {
            let keys = [s.primary.get_mut(0, name), s.replica.get_mut(0, name)];
            keys.into_iter().flatten().map(|key| key.expiry = at).count() > 0
        });
        if found {
            raise(0, if at.is_some() { c"expire" } else { c"persist" }, name);
        }
    }

    /// Lets time pass, in ms.
    pub fn elapse(&mut self, ms: i64) {
        STATE.with_borrow_mut(|s| s.now = s.now.saturating_add(ms));
    }

    pub fn now(&self) -> i64 {
        STATE.with_borrow(|s| s.now)
    }

    /// The keys that live now.
    pub fn keys(&self) -> Keys {
        STATE.with_borrow(|s| s.primary.live(s.now))
    }

    /// Closes the connection of a client.
    pub fn disconnect(&mut self, client: u64) {
        let blocked = STATE.with_borrow_mut(|s| {
            let blocked = s.blocked.iter_mut().find(|blocked| blocked.client == client);
            blocked.map(|blocked| (std::ptr::from_mut(&mut **blocked), blocked.disconnect))
        });
        if let Some((blocked, Some(callback))) = blocked {
            unsafe { callback(context(), blocked) };
        }
        let mut info = ClientInfo::of(client);
        self.raise_event(CLIENT_CHANGE, DISCONNECTED, (&raw mut info).cast());
        STATE.with_borrow_mut(|s| s.connected.remove(&client));
    }

    /// CLIENT UNBLOCK. The reply of the client, if it was blocked.
    pub fn unblock(&mut self, client: u64) -> Option<Reply> {
        let run = STATE.with_borrow_mut(|s| {
            let blocked = s.blocked.iter_mut().find(|blocked| blocked.client == client)?;
            s.handle = std::ptr::from_mut(&mut **blocked);
            s.client = client;
            s.reply.clear();
            Some(blocked.timeout)
        })?;
        unsafe { run(context(), null_mut(), 0) };
        let tokens = STATE.with_borrow_mut(|s| std::mem::take(&mut s.reply));
        // The server forgets a client that it has answered.
        STATE.with_borrow_mut(|s| {
            s.unblocked
                .iter_mut()
                .filter(|(b, _)| b.client == client)
                .for_each(|(b, _)| b.client = 0)
        });
        Some(whole(&tokens))
    }

    /// A turn of the event loop: the timer fires, what is due is done, and unblocked clients get
    /// their replies, which are returned.
    pub fn turn(&mut self) -> Vec<(u64, Reply)> {
        self.raise_event(CRON_LOOP, 0, null_mut());
        if let Some((fd, callback, data)) = STATE.with_borrow(|s| s.timer) {
            unsafe { callback(fd, data, 1) };
        }
        let mut replies = self.answer();
        self.raise_event(EVENT_LOOP, BEFORE_SLEEP, null_mut());
        replies.extend(self.answer());
        self.raise_event(EVENT_LOOP, AFTER_SLEEP, null_mut());
        self.check();
        replies
    }

    /// Turns the event loop until nothing happens any more.
    pub fn settle(&mut self) -> Vec<(u64, Reply)> {
        let mut replies = Vec::new();
        for _ in 0..3 {
            replies.extend(self.turn());
        }
        replies
    }

    fn answer(&mut self) -> Vec<(u64, Reply)> {
        let mut replies = Vec::new();
        loop {
            let unblocked = STATE.with_borrow_mut(|s| std::mem::take(&mut s.unblocked));
            if unblocked.is_empty() {
                return replies;
            }
            for (mut blocked, private) in unblocked {
                let client = blocked.client;
                let is_there = STATE.with_borrow_mut(|s| {
                    s.handle = std::ptr::from_mut(&mut *blocked);
                    s.private = private;
                    s.client = client;
                    s.reply.clear();
                    s.connected.contains(&client)
                });
                if is_there {
                    unsafe { (blocked.reply)(context(), null_mut(), 0) };
                    let tokens = STATE.with_borrow_mut(|s| std::mem::take(&mut s.reply));
                    replies.push((client, whole(&tokens)));
                }
                if !private.is_null() {
                    unsafe { (blocked.free)(context(), private) };
                }
            }
        }
    }

    fn raise_event(&mut self, id: u64, what: u64, data: *mut c_void) {
        if let Some(callback) = STATE.with_borrow(|s| s.events.get(&id).copied()) {
            unsafe { callback(context(), Event { id, version: 1 }, what, data) };
        }
    }

    /// Checks what holds between two commands: no key is open, and a replica that has no module
    /// has the same keys.
    fn check(&self) {
        STATE.with_borrow(|s| {
            assert_eq!(s.handles, 0, "the module has keys open");
            let (primary, replica) = (s.primary.live(s.now), s.replica.live(s.now));
            assert_eq!(primary, replica, "the replica has other keys than the primary");
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let status = unsafe { RedisModule_OnUnload(context()) };
        assert_eq!(status, 0, "the module does not unload");
        let strings = STRINGS.load(Ordering::Relaxed) - self.strings;
        // The first server makes those of the module's statics.
        assert!((0..16).contains(&strings), "{strings} strings are left");
    }
}
