//! The functions of the module API, on the state of the small server. Each does what the server's
//! does, as far as the module can tell. What the module must never do aborts the process.
//!
//! A function that is not here is one that the server lacks: so the module takes its memory from
//! the system, and Rust's and the sanitizer's checks see it.

mod blocking;
mod commands;
mod context;
mod effects;
mod events;
mod keys;
mod settings;
mod strings;

pub use context::ClientInfo;
pub use keys::raise;
pub use settings::Config;
pub use strings::{free_string, Text, STRINGS};

use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr::null;

const OK: c_int = 0;
const ERR: c_int = 1;

type Ctx = c_void;

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
        "CreateString" => strings::create_string,
        "CreateStringFromLongLong" => strings::create_string_from_long_long,
        "RetainString" => strings::retain_string,
        "FreeString" => strings::free_string,
        "StringPtrLen" => strings::string_ptr_len,
        "OpenKey" => keys::open_key,
        "CloseKey" => keys::close_key,
        "KeyType" => keys::key_type,
        "ValueLength" => keys::value_length,
        "GetAbsExpire" => keys::get_abs_expire,
        "SetAbsExpire" => keys::set_abs_expire,
        "HashGet" => fuzz_variadic_hash_get,
        "HashSet" => fuzz_variadic_hash_set,
        "StringSet" => keys::string_set,
        "StringTruncate" => keys::string_truncate,
        "StringDMA" => keys::string_dma,
        "DeleteKey" => keys::delete_key,
        "ScanCursorCreate" => keys::scan_cursor_create,
        "ScanCursorDestroy" => keys::scan_cursor_destroy,
        "ScanKey" => keys::scan_key,
        "Scan" => keys::scan,
        "DbSize" => keys::db_size,
        "Call" => fuzz_variadic_call,
        "CallReplyType" => effects::call_reply_type,
        "CallReplyStringPtr" => effects::call_reply_string,
        "FreeCallReply" => ok,
        "Replicate" => fuzz_variadic_replicate,
        "ReplicateVerbatim" => effects::replicate_verbatim,
        "Log" => fuzz_variadic_log,
        "GetContextFlags" => context::get_context_flags,
        "GetSelectedDb" => context::get_selected_db,
        "SelectDb" => context::select_db,
        "Milliseconds" => context::milliseconds,
        "CachedMicroseconds" => context::cached_microseconds,
        "GetServerVersion" => context::get_server_version,
        "AvoidReplicaTraffic" => context::avoid_replica_traffic,
        "GetOpenKeyModesAll" => context::get_open_key_modes_all,
        "GetNotifyKeyspaceEvents" => context::get_notify_keyspace_events,
        "NotifyKeyspaceEvent" => effects::notify_keyspace_event,
        "GetClientId" => context::get_client_id,
        "GetClientInfoById" => context::get_client_info_by_id,
        "GetClientNameById" => context::get_client_name_by_id,
        "DeauthenticateAndCloseClient" => effects::close_client,
        "PublishMessage" => effects::publish,
        "PublishMessageShard" => effects::publish,
        "SignalModifiedKey" => effects::signal_modified_key,
        "CreateCommand" => commands::create_command,
        "GetCommand" => commands::get_command,
        "SetCommandInfo" => commands::set_command_info,
        "SetCommandACLCategories" => ok,
        "AddACLCategory" => ok,
        "IsKeysPositionRequest" => commands::is_keys_position_request,
        "KeyAtPosWithFlags" => commands::key_at_pos_with_flags,
        "SubscribeToServerEvent" => events::subscribe_to_server_event,
        "SubscribeToKeyspaceEvents" => events::subscribe_to_keyspace_events,
        "EventLoopAdd" => events::event_loop_add,
        "EventLoopDel" => events::event_loop_del,
        "GetDetachedThreadSafeContext" => events::detached_context,
        "FreeThreadSafeContext" => ok,
        "BlockClient" => blocking::block_client,
        "SetDisconnectCallback" => blocking::set_disconnect_callback,
        "UnblockClient" => blocking::unblock_client,
        "GetBlockedClientHandle" => blocking::blocked_client_handle,
        "GetBlockedClientPrivateData" => blocking::blocked_client_private_data,
        "ReplyWithLongLong" => commands::reply_with_long_long,
        "ReplyWithNull" => commands::reply_with_null,
        "ReplyWithStringBuffer" => commands::reply_with_buffer,
        "ReplyWithSimpleString" => commands::reply_with_simple_string,
        "ReplyWithError" => commands::reply_with_error,
        "ReplyWithArray" => commands::reply_with_array,
        "ReplyWithMap" => commands::reply_with_map,
        "GetServerInfo" => context::server_info,
        "ServerInfoGetField" => context::server_info_field,
        "FreeServerInfo" => ok,
        "GetCurrentUserName" => context::current_user_name,
        "GetModuleUserFromUserName" => something,
        "FreeModuleUser" => ok,
        "ACLCheckKeyPermissions" => ok,
        "ACLCheckCommandPermissions" => ok,
        "RegisterInfoFunc" => ok,
        "RegisterEnumConfig" => settings::register_enum_config,
        "RegisterNumericConfig" => settings::register_numeric_config,
        "RegisterBoolConfig" => settings::register_bool_config,
        "LoadConfigs" => ok,
        "SetModuleAttribs" => ok,
        "SetModuleOptions" => ok,
    }
}
