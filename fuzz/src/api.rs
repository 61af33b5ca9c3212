//! The functions of the module API, on the state of the small server. Each does what the server's
//! does, as far as the module can tell. What the module must never do aborts the process.
//!
//! A function that is not here is one that the server lacks: so the module takes its memory from
//! the system, and Rust's and the sanitizer's checks see it.

use crate::keys::{Bytes, Key, Value};
use crate::server::{Blocked, Command, Token, STATE};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_longlong, c_ulonglong, c_void, CStr};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicIsize, Ordering};

const OK: c_int = 0;
const ERR: c_int = 1;
const NO_EXPIRE: i64 = -1;
const WRITE: c_int = 1 << 1;
/// The value by which HashSet deletes a field.
const DELETION: *mut Text = std::ptr::without_provenance_mut(1);

const CTX_MULTI: c_int = 1 << 1;
const CTX_MASTER: c_int = 1 << 2;

type Ctx = c_void;

/// How many strings there are. None may be left when the module is unloaded, but for those that
/// its statics keep.
pub static STRINGS: AtomicIsize = AtomicIsize::new(0);

/// A string of the server.
pub struct Text {
    references: usize,
    bytes: Bytes,
}

impl Text {
    pub fn make(bytes: &[u8]) -> *mut Text {
        STRINGS.fetch_add(1, Ordering::Relaxed);
        Box::into_raw(Box::new(Text { references: 1, bytes: bytes.to_vec() }))
    }
}

/// The bytes of a string.
unsafe fn bytes<'a>(text: *const Text) -> &'a [u8] {
    unsafe { &(*text).bytes }
}

/// A key that the module has open.
pub struct Handle {
    db: i32,
    name: Bytes,
    may_write: bool,
}

unsafe extern "C" fn create_string(_: *mut Ctx, start: *const c_char, len: usize) -> *mut Text {
    Text::make(unsafe { std::slice::from_raw_parts(start.cast(), len) })
}

extern "C" fn create_string_from_long_long(_: *mut Ctx, number: c_longlong) -> *mut Text {
    Text::make(number.to_string().as_bytes())
}

unsafe extern "C" fn retain_string(_: *mut Ctx, text: *mut Text) {
    unsafe { (*text).references += 1 };
}

pub unsafe extern "C" fn free_string(_: *mut Ctx, text: *mut Text) {
    unsafe {
        (*text).references -= 1;
        if (*text).references == 0 {
            STRINGS.fetch_sub(1, Ordering::Relaxed);
            drop(Box::from_raw(text));
        }
    }
}

unsafe extern "C" fn string_ptr_len(text: *const Text, len: *mut usize) -> *const c_char {
    let bytes = unsafe { bytes(text) };
    if !len.is_null() {
        unsafe { *len = bytes.len() };
    }
    bytes.as_ptr().cast()
}

unsafe extern "C" fn open_key(_: *mut Ctx, name: *const Text, mode: c_int) -> *mut Handle {
    let name = unsafe { bytes(name) }.to_vec();
    let (db, now) = STATE.with_borrow(|s| (s.selected, s.now));
    let has_lapsed = |key: &Key| key.expiry.is_some_and(|at| now > at);
    let found = STATE.with_borrow(|s| s.primary.get(db, &name).map(has_lapsed));
    let may_write = mode & WRITE != 0;
    if found == Some(true) && may_write {
        expire(db, &name);
    }
    if found != Some(false) && !may_write {
        return null_mut();
    }
    STATE.with_borrow_mut(|s| s.handles += 1);
    Box::into_raw(Box::new(Handle { db, name, may_write }))
}

/// Removes a lapsed key, as the server does when it meets one.
fn expire(db: i32, name: &[u8]) {
    STATE.with_borrow_mut(|s| {
        s.primary.remove(db, name);
        s.replica.remove(db, name);
    });
    raise(db, c"expired", name);
}

/// Tells the module of a change of a key.
pub fn raise(db: i32, event: &CStr, name: &[u8]) {
    let Some(callback) = STATE.with_borrow(|s| s.key_events) else {
        return;
    };
    let selected = STATE.with_borrow_mut(|s| std::mem::replace(&mut s.selected, db));
    let text = Text::make(name);
    unsafe {
        callback(context(), 0, event.as_ptr(), text.cast());
        free_string(null_mut(), text);
    }
    STATE.with_borrow_mut(|s| s.selected = selected);
}

unsafe extern "C" fn close_key(key: *mut Handle) {
    if !key.is_null() {
        STATE.with_borrow_mut(|s| s.handles -= 1);
        drop(unsafe { Box::from_raw(key) });
    }
}

/// Reads an open key.
unsafe fn read<T>(key: *mut Handle, of: impl FnOnce(Option<&Key>) -> T) -> T {
    let key = unsafe { &*key };
    STATE.with_borrow(|s| of(s.primary.get(key.db, &key.name)))
}

unsafe extern "C" fn key_type(key: *mut Handle) -> c_int {
    if key.is_null() {
        return 0;
    }
    unsafe {
        read(key, |key| match key.map(|key| &key.value) {
            None => 0,
            Some(Value::String(_)) => 1,
            Some(Value::Hash(_)) => 3,
            Some(Value::Other) => 2,
        })
    }
}

unsafe extern "C" fn value_length(key: *mut Handle) -> usize {
    unsafe {
        read(key, |key| match key.map(|key| &key.value) {
            Some(Value::Hash(fields)) => fields.len(),
            Some(Value::String(text)) => text.len(),
            Some(Value::Other) => 1,
            None => 0,
        })
    }
}

unsafe extern "C" fn get_abs_expire(key: *mut Handle) -> c_longlong {
    unsafe { read(key, |key| key.and_then(|key| key.expiry).unwrap_or(NO_EXPIRE)) }
}

unsafe extern "C" fn set_abs_expire(key: *mut Handle, at: c_longlong) -> c_int {
    let handle = unsafe { &*key };
    if !handle.may_write {
        return ERR;
    }
    STATE.with_borrow_mut(|s| match s.primary.get_mut(handle.db, &handle.name) {
        Some(key) => {
            key.expiry = (at != NO_EXPIRE).then_some(at);
            OK
        }
        None => ERR,
    })
}

#[no_mangle]
unsafe extern "C" fn fuzz_hash_get(
    key: *mut Handle,
    field: *const Text,
    value: *mut *mut Text,
) -> c_int {
    unsafe {
        let found = read(key, |key| match key.map(|key| &key.value) {
            Some(Value::Hash(fields)) => fields.get(bytes(field)).cloned(),
            _ => None,
        });
        *value = found.map_or(null_mut(), |found| Text::make(&found));
    }
    OK
}

#[no_mangle]
unsafe extern "C" fn fuzz_hash_set(
    key: *mut Handle,
    field: *const Text,
    value: *mut Text,
) -> c_int {
    let handle = unsafe { &*key };
    let is_hash = unsafe { read(key, |key| key.is_none_or(|k| matches!(k.value, Value::Hash(_)))) };
    if !handle.may_write || !is_hash {
        return 0;
    }
    let value = (value != DELETION).then(|| unsafe { bytes(value) });
    STATE.with_borrow_mut(|s| {
        s.primary.set_field(handle.db, &handle.name, unsafe { bytes(field) }, value)
    });
    1
}

unsafe extern "C" fn string_set(key: *mut Handle, text: *const Text) -> c_int {
    let handle = unsafe { &*key };
    let value = Key::string(unsafe { bytes(text) });
    STATE.with_borrow_mut(|s| s.primary.put(handle.db, &handle.name, value));
    OK
}

unsafe extern "C" fn string_truncate(key: *mut Handle, len: usize) -> c_int {
    let handle = unsafe { &*key };
    STATE.with_borrow_mut(|s| {
        let name = (handle.db, handle.name.clone());
        match &mut s.primary.0.entry(name).or_insert_with(|| Key::string(b"")).value {
            Value::String(text) => {
                text.resize(len, 0);
                OK
            }
            _ => ERR,
        }
    })
}

unsafe extern "C" fn string_dma(key: *mut Handle, len: *mut usize, _: c_int) -> *mut c_char {
    let handle = unsafe { &*key };
    STATE.with_borrow_mut(|s| match s.primary.get_mut(handle.db, &handle.name) {
        Some(Key { value: Value::String(text), .. }) => {
            unsafe { *len = text.len() };
            text.as_mut_ptr().cast()
        }
        Some(_) => null_mut(),
        None => {
            unsafe { *len = 0 };
            c"".as_ptr().cast_mut()
        }
    })
}

unsafe extern "C" fn delete_key(key: *mut Handle) -> c_int {
    let handle = unsafe { &*key };
    if !handle.may_write {
        return ERR;
    }
    STATE.with_borrow_mut(|s| s.primary.remove(handle.db, &handle.name));
    OK
}

extern "C" fn scan_cursor_create() -> *mut c_void {
    Box::into_raw(Box::new(0_u8)).cast()
}

unsafe extern "C" fn scan_cursor_destroy(cursor: *mut c_void) {
    drop(unsafe { Box::from_raw(cursor.cast::<u8>()) });
}

type ScanKeyCallback = unsafe extern "C" fn(*mut Handle, *mut Text, *mut Text, *mut c_void);

unsafe extern "C" fn scan_key(
    key: *mut Handle,
    _: *mut c_void,
    callback: ScanKeyCallback,
    data: *mut c_void,
) -> c_int {
    let fields = unsafe {
        read(key, |key| match key.map(|key| &key.value) {
            Some(Value::Hash(fields)) => fields.clone(),
            _ => BTreeMap::new(),
        })
    };
    for (field, value) in fields {
        let (field, value) = (Text::make(&field), Text::make(&value));
        unsafe {
            callback(key, field, value, data);
            free_string(null_mut(), field);
            free_string(null_mut(), value);
        }
    }
    0
}

type ScanCallback = unsafe extern "C" fn(*mut Ctx, *mut Text, *mut Handle, *mut c_void);

unsafe extern "C" fn scan(
    ctx: *mut Ctx,
    _: *mut c_void,
    callback: ScanCallback,
    data: *mut c_void,
) -> c_int {
    let (db, names) = STATE.with_borrow(|s| {
        let here = s.primary.0.keys().filter(|(db, _)| *db == s.selected);
        (s.selected, here.map(|(_, name)| name.clone()).collect::<Vec<_>>())
    });
    for name in names {
        let text = Text::make(&name);
        let mut handle = Handle { db, name, may_write: false };
        unsafe {
            callback(ctx, text, &mut handle, data);
            free_string(null_mut(), text);
        }
    }
    0
}

extern "C" fn db_size(_: *mut Ctx) -> c_ulonglong {
    STATE.with_borrow(|s| s.primary.0.keys().filter(|(db, _)| *db == s.selected).count() as u64)
}

/// A call of a command of the server. The module makes such calls only to ask something, and a
/// null reply means yes, or that there is nothing to tell.
#[no_mangle]
extern "C" fn fuzz_call(_: *const c_char) -> *mut c_void {
    unsafe { *libc_errno() = 22 };
    null_mut()
}

unsafe extern "C" {
    #[cfg_attr(target_os = "linux", link_name = "__errno_location")]
    #[cfg_attr(not(target_os = "linux"), link_name = "__error")]
    fn libc_errno() -> *mut c_int;
}

#[no_mangle]
unsafe extern "C" fn fuzz_replicate(
    command: *const c_char,
    argv: *const *const Text,
    argc: usize,
) -> c_int {
    let command = unsafe { CStr::from_ptr(command) }.to_str().expect("a plain name");
    let args = unsafe { std::slice::from_raw_parts(argv, argc) };
    let args: Vec<Bytes> = args.iter().map(|arg| unsafe { bytes(*arg) }.to_vec()).collect();
    STATE.with_borrow_mut(|s| s.replica.apply(s.selected, command, &args));
    OK
}

/// The module logs each of its faults with this word. Its hook also logs each panic, so this ends
/// the process for a panic in a fuzz target as well.
#[no_mangle]
unsafe extern "C" fn fuzz_log(_: *const c_char, line: *const c_char) {
    let line = unsafe { CStr::from_ptr(line) }.to_string_lossy();
    if line.contains("bug") || line.contains("not loaded") || line.contains("not unloaded") {
        eprintln!("{line}\n{}", std::backtrace::Backtrace::force_capture());
        std::process::abort();
    }
}

extern "C" fn get_context_flags(_: *mut Ctx) -> c_int {
    STATE.with_borrow(|s| CTX_MASTER | if s.may_block { 0 } else { CTX_MULTI })
}

extern "C" fn get_selected_db(_: *mut Ctx) -> c_int {
    STATE.with_borrow(|s| s.selected)
}

extern "C" fn select_db(_: *mut Ctx, db: c_int) -> c_int {
    if !(0..16).contains(&db) {
        return ERR;
    }
    STATE.with_borrow_mut(|s| s.selected = db);
    OK
}

extern "C" fn milliseconds() -> c_longlong {
    STATE.with_borrow(|s| s.now)
}

extern "C" fn cached_microseconds() -> c_longlong {
    STATE.with_borrow(|s| s.now.saturating_mul(1000))
}

extern "C" fn get_server_version() -> c_int {
    8 << 16
}

extern "C" fn avoid_replica_traffic() -> c_int {
    0
}

extern "C" fn get_open_key_modes_all() -> c_int {
    c_int::MAX
}

extern "C" fn get_notify_keyspace_events() -> c_int {
    STATE.with_borrow(|s| if s.notifies { c_int::MAX } else { 0 })
}

extern "C" fn notify_keyspace_event(
    _: *mut Ctx,
    _: c_int,
    _: *const c_char,
    _: *mut Text,
) -> c_int {
    OK
}

extern "C" fn get_client_id(_: *mut Ctx) -> c_ulonglong {
    STATE.with_borrow(|s| s.client)
}

/// What the module reads of a client.
#[repr(C)]
pub struct ClientInfo {
    version: u64,
    flags: u64,
    id: u64,
    addr: [c_char; 46],
    port: u16,
    db: u16,
}

impl ClientInfo {
    pub fn of(id: u64) -> ClientInfo {
        ClientInfo { version: 1, flags: 0, id, addr: [0; 46], port: 1, db: 0 }
    }
}

unsafe extern "C" fn get_client_info_by_id(info: *mut ClientInfo, id: u64) -> c_int {
    if !STATE.with_borrow(|s| s.connected.contains(&id)) {
        return ERR;
    }
    if !info.is_null() {
        unsafe { *info = ClientInfo::of(id) };
    }
    OK
}

extern "C" fn get_client_name_by_id(_: *mut Ctx, id: u64) -> *mut Text {
    Text::make(id.to_string().as_bytes())
}

extern "C" fn close_client(_: *mut Ctx, _: u64) -> c_int {
    eprintln!("the module closes a connection");
    std::process::abort();
}

extern "C" fn replicate_verbatim(_: *mut Ctx) -> c_int {
    eprintln!("the module propagates a command of its own");
    std::process::abort();
}

extern "C" fn publish(_: *mut Ctx, _: *mut Text, _: *mut Text) -> c_int {
    OK
}

extern "C" fn signal_modified_key(_: *mut Ctx, _: *mut Text) -> c_int {
    OK
}

unsafe extern "C" fn create_command(
    _: *mut Ctx,
    name: *const c_char,
    run: crate::server::Run,
    _: *const c_char,
    _: c_int,
    _: c_int,
    _: c_int,
) -> c_int {
    let name = unsafe { CStr::from_ptr(name) }.to_bytes().to_vec();
    STATE.with_borrow_mut(|s| s.commands.push(Box::new(Command { name, run, arity: 0 })));
    OK
}

unsafe extern "C" fn get_command(_: *mut Ctx, name: *const c_char) -> *mut Command {
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    STATE.with_borrow_mut(|s| {
        let command = s.commands.iter_mut().find(|command| command.name == name);
        command.map_or(null_mut(), |command| std::ptr::from_mut(&mut **command))
    })
}

/// The start of RedisModuleCommandInfo.
#[repr(C)]
struct CommandInfo {
    texts: [*const c_void; 6],
    arity: c_int,
}

unsafe extern "C" fn set_command_info(command: *mut Command, info: *const CommandInfo) -> c_int {
    unsafe { (*command).arity = (*info).arity };
    OK
}

extern "C" fn is_keys_position_request(_: *mut Ctx) -> c_int {
    STATE.with_borrow(|s| c_int::from(s.key_positions.is_some()))
}

extern "C" fn key_at_pos_with_flags(_: *mut Ctx, position: c_int, _: c_int) {
    STATE.with_borrow_mut(|s| {
        if let Some(positions) = &mut s.key_positions {
            positions.push(usize::try_from(position).expect("a position"));
        }
    });
}

extern "C" fn subscribe_to_server_event(
    _: *mut Ctx,
    event: crate::server::Event,
    callback: Option<crate::server::EventCallback>,
) -> c_int {
    STATE.with_borrow_mut(|s| match callback {
        Some(callback) => drop(s.events.insert(event.id, callback)),
        None => drop(s.events.remove(&event.id)),
    });
    OK
}

extern "C" fn subscribe_to_keyspace_events(
    _: *mut Ctx,
    _: c_int,
    callback: crate::server::KeyEventCallback,
) -> c_int {
    STATE.with_borrow_mut(|s| s.key_events = Some(callback));
    OK
}

extern "C" fn event_loop_add(
    fd: c_int,
    _: c_int,
    callback: crate::server::TimerCallback,
    data: *mut c_void,
) -> c_int {
    STATE.with_borrow_mut(|s| s.timer = Some((fd, callback, data)));
    OK
}

extern "C" fn event_loop_del(_: c_int, _: c_int) -> c_int {
    STATE.with_borrow_mut(|s| s.timer = None);
    OK
}

extern "C" fn detached_context(_: *mut Ctx) -> *mut Ctx {
    context()
}

extern "C" fn block_client(
    _: *mut Ctx,
    reply: crate::server::Run,
    timeout: crate::server::Run,
    free: crate::server::FreeCallback,
    _: c_longlong,
) -> *mut Blocked {
    STATE.with_borrow_mut(|s| {
        let client = s.client;
        let blocked = Blocked { client, reply, timeout, free, disconnect: None };
        s.blocked.push(Box::new(blocked));
        s.blocked.last_mut().map_or(null_mut(), |blocked| std::ptr::from_mut(&mut **blocked))
    })
}

unsafe extern "C" fn set_disconnect_callback(
    blocked: *mut Blocked,
    callback: crate::server::DisconnectCallback,
) {
    unsafe { (*blocked).disconnect = Some(callback) };
}

extern "C" fn unblock_client(blocked: *mut Blocked, data: *mut c_void) -> c_int {
    STATE.with_borrow_mut(|s| {
        let at = s.blocked.iter().position(|other| std::ptr::eq(&**other, blocked));
        let at = at.expect("a blocked client that is not unblocked yet");
        let blocked = s.blocked.remove(at);
        s.unblocked.push((blocked, data));
    });
    OK
}

extern "C" fn blocked_client_handle(_: *mut Ctx) -> *mut Blocked {
    STATE.with_borrow(|s| s.handle)
}

extern "C" fn blocked_client_private_data(_: *mut Ctx) -> *mut c_void {
    STATE.with_borrow(|s| s.private)
}

fn reply(token: Token) -> c_int {
    STATE.with_borrow_mut(|s| s.reply.push(token));
    OK
}

extern "C" fn reply_with_long_long(_: *mut Ctx, number: c_longlong) -> c_int {
    reply(Token::Integer(number))
}

extern "C" fn reply_with_null(_: *mut Ctx) -> c_int {
    reply(Token::Null)
}

unsafe extern "C" fn reply_with_buffer(_: *mut Ctx, start: *const c_char, len: usize) -> c_int {
    reply(Token::Bulk(unsafe { std::slice::from_raw_parts(start.cast(), len) }.to_vec()))
}

unsafe extern "C" fn reply_with_simple_string(_: *mut Ctx, text: *const c_char) -> c_int {
    reply(Token::Status(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()))
}

unsafe extern "C" fn reply_with_error(_: *mut Ctx, text: *const c_char) -> c_int {
    reply(Token::Error(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()))
}

extern "C" fn reply_with_array(_: *mut Ctx, len: c_longlong) -> c_int {
    reply(Token::Array(usize::try_from(len).expect("a length")))
}

extern "C" fn reply_with_map(_: *mut Ctx, len: c_longlong) -> c_int {
    reply(Token::Map(usize::try_from(len).expect("a length")))
}

extern "C" fn server_info(_: *mut Ctx, _: *const c_char) -> *mut c_void {
    std::ptr::without_provenance_mut(16)
}

unsafe extern "C" fn server_info_field(
    _: *mut Ctx,
    _: *mut c_void,
    field: *const c_char,
) -> *mut Text {
    Text::make(match unsafe { CStr::from_ptr(field) }.to_bytes() {
        b"connected_slaves" | b"repl_backlog_active" => b"1",
        b"maxmemory_policy" => b"noeviction",
        _ => b"0",
    })
}

type SetInt = unsafe extern "C" fn(*const c_char, c_int, *mut c_void, *mut *mut Text) -> c_int;
type SetLong =
    unsafe extern "C" fn(*const c_char, c_longlong, *mut c_void, *mut *mut Text) -> c_int;
type Apply = unsafe extern "C" fn(*mut Ctx, *mut c_void, *mut *mut Text) -> c_int;

/// How to set a setting.
#[derive(Clone, Copy)]
pub enum SetConfig {
    Int(SetInt),
    Long(SetLong),
}

/// A setting of the module.
pub struct Config {
    pub name: Bytes,
    set: SetConfig,
    apply: Apply,
    data: *mut c_void,
}

impl Config {
    /// CONFIG SET. The value is the number of a word.
    pub fn set(&self, value: i64) {
        let mut error = null_mut();
        unsafe {
            match self.set {
                SetConfig::Int(set) => set(null(), value as c_int, self.data, &mut error),
                SetConfig::Long(set) => set(null(), value, self.data, &mut error),
            };
            (self.apply)(context(), self.data, &mut error);
        }
    }
}

unsafe fn register(name: *const c_char, set: SetConfig, apply: Apply, data: *mut c_void) -> c_int {
    let name = unsafe { CStr::from_ptr(name) }.to_bytes().to_vec();
    STATE.with_borrow_mut(|s| s.configs.push(Config { name, set, apply, data }));
    OK
}

unsafe extern "C" fn register_enum_config(
    _: *mut Ctx,
    name: *const c_char,
    _: c_int,
    _: c_int,
    _: *const c_void,
    _: *const c_void,
    _: c_int,
    _: *const c_void,
    set: SetInt,
    apply: Apply,
    data: *mut c_void,
) -> c_int {
    unsafe { register(name, SetConfig::Int(set), apply, data) }
}

unsafe extern "C" fn register_numeric_config(
    _: *mut Ctx,
    name: *const c_char,
    _: c_longlong,
    _: c_int,
    _: c_longlong,
    _: c_longlong,
    _: *const c_void,
    set: SetLong,
    apply: Apply,
    data: *mut c_void,
) -> c_int {
    unsafe { register(name, SetConfig::Long(set), apply, data) }
}

unsafe extern "C" fn register_bool_config(
    _: *mut Ctx,
    name: *const c_char,
    _: c_int,
    _: c_int,
    _: *const c_void,
    set: SetInt,
    apply: Apply,
    data: *mut c_void,
) -> c_int {
    unsafe { register(name, SetConfig::Int(set), apply, data) }
}

extern "C" fn current_user_name(_: *mut Ctx) -> *mut Text {
    Text::make(b"default")
}

/// For functions with up to 12 arguments whose success is all that counts.
extern "C" fn ok() -> c_int {
    OK
}

/// For functions that return a pointer which is only passed on.
extern "C" fn something() -> *mut c_void {
    std::ptr::without_provenance_mut(16)
}

unsafe extern "C" {
    fn fuzz_variadic_hash_get();
    fn fuzz_variadic_hash_set();
    fn fuzz_variadic_call();
    fn fuzz_variadic_replicate();
    fn fuzz_variadic_log();
}

/// The context of every call: its first word is GetApi, by which a module finds the other
/// functions.
#[repr(C)]
struct Context {
    get_api: unsafe extern "C" fn(*const c_char, *mut *const c_void) -> c_int,
}

static CONTEXT: Context = Context { get_api };

pub fn context() -> *mut Ctx {
    (&raw const CONTEXT).cast_mut().cast()
}

unsafe extern "C" fn get_api(name: *const c_char, found: *mut *const c_void) -> c_int {
    let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap_or_default();
    let function = function(name.strip_prefix("RedisModule_").unwrap_or_default());
    if function.is_null() {
        return ERR;
    }
    unsafe { *found = function };
    OK
}

fn function(name: &str) -> *const c_void {
    macro_rules! table {
        ($($name:literal => $function:expr,)*) => {
            match name {
                $($name => $function as *const c_void,)*
                _ => null(),
            }
        };
    }
    table! {
        "CreateString" => create_string,
        "CreateStringFromLongLong" => create_string_from_long_long,
        "RetainString" => retain_string,
        "FreeString" => free_string,
        "StringPtrLen" => string_ptr_len,
        "OpenKey" => open_key,
        "CloseKey" => close_key,
        "KeyType" => key_type,
        "ValueLength" => value_length,
        "GetAbsExpire" => get_abs_expire,
        "SetAbsExpire" => set_abs_expire,
        "HashGet" => fuzz_variadic_hash_get,
        "HashSet" => fuzz_variadic_hash_set,
        "StringSet" => string_set,
        "StringTruncate" => string_truncate,
        "StringDMA" => string_dma,
        "DeleteKey" => delete_key,
        "ScanCursorCreate" => scan_cursor_create,
        "ScanCursorDestroy" => scan_cursor_destroy,
        "ScanKey" => scan_key,
        "Scan" => scan,
        "DbSize" => db_size,
        "Call" => fuzz_variadic_call,
        "Replicate" => fuzz_variadic_replicate,
        "ReplicateVerbatim" => replicate_verbatim,
        "Log" => fuzz_variadic_log,
        "GetContextFlags" => get_context_flags,
        "GetSelectedDb" => get_selected_db,
        "SelectDb" => select_db,
        "Milliseconds" => milliseconds,
        "CachedMicroseconds" => cached_microseconds,
        "GetServerVersion" => get_server_version,
        "AvoidReplicaTraffic" => avoid_replica_traffic,
        "GetOpenKeyModesAll" => get_open_key_modes_all,
        "GetNotifyKeyspaceEvents" => get_notify_keyspace_events,
        "NotifyKeyspaceEvent" => notify_keyspace_event,
        "GetClientId" => get_client_id,
        "GetClientInfoById" => get_client_info_by_id,
        "GetClientNameById" => get_client_name_by_id,
        "DeauthenticateAndCloseClient" => close_client,
        "PublishMessage" => publish,
        "PublishMessageShard" => publish,
        "SignalModifiedKey" => signal_modified_key,
        "CreateCommand" => create_command,
        "GetCommand" => get_command,
        "SetCommandInfo" => set_command_info,
        "SetCommandACLCategories" => ok,
        "AddACLCategory" => ok,
        "IsKeysPositionRequest" => is_keys_position_request,
        "KeyAtPosWithFlags" => key_at_pos_with_flags,
        "SubscribeToServerEvent" => subscribe_to_server_event,
        "SubscribeToKeyspaceEvents" => subscribe_to_keyspace_events,
        "EventLoopAdd" => event_loop_add,
        "EventLoopDel" => event_loop_del,
        "GetDetachedThreadSafeContext" => detached_context,
        "FreeThreadSafeContext" => ok,
        "BlockClient" => block_client,
        "SetDisconnectCallback" => set_disconnect_callback,
        "UnblockClient" => unblock_client,
        "GetBlockedClientHandle" => blocked_client_handle,
        "GetBlockedClientPrivateData" => blocked_client_private_data,
        "ReplyWithLongLong" => reply_with_long_long,
        "ReplyWithNull" => reply_with_null,
        "ReplyWithStringBuffer" => reply_with_buffer,
        "ReplyWithSimpleString" => reply_with_simple_string,
        "ReplyWithError" => reply_with_error,
        "ReplyWithArray" => reply_with_array,
        "ReplyWithMap" => reply_with_map,
        "GetServerInfo" => server_info,
        "ServerInfoGetField" => server_info_field,
        "FreeServerInfo" => ok,
        "GetCurrentUserName" => current_user_name,
        "GetModuleUserFromUserName" => something,
        "FreeModuleUser" => ok,
        "ACLCheckKeyPermissions" => ok,
        "ACLCheckCommandPermissions" => ok,
        "RegisterInfoFunc" => ok,
        "RegisterEnumConfig" => register_enum_config,
        "RegisterNumericConfig" => register_numeric_config,
        "RegisterBoolConfig" => register_bool_config,
        "LoadConfigs" => ok,
        "SetModuleAttribs" => ok,
        "SetModuleOptions" => ok,
    }
}
