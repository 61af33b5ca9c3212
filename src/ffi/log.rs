//! The server's log.

use redis_module::raw;
use std::ffi::{c_char, CStr};

/// Writes a line to the server's log, if the server has a function for it. `ctx` may be null.
///
/// The functions of `redis-module` are not used: they give the line to the server as a format, and
/// a name in it with `%n` or `%s` would crash the server.
pub fn write(ctx: *mut raw::RedisModuleCtx, level: &CStr, line: &str) {
    let mut shown = String::with_capacity(line.len() + 1);
    for char in line.chars() {
        match char.is_control() {
            true => shown.extend(char.escape_default()),
            false => shown.push(char),
        }
    }
    shown.push('\0');
    // SAFETY: nothing writes to the pointer after the load. The caller lends the context for this
    // call, or it is null, which the server allows. The format has one place, for the text, which
    // ends with 0.
    unsafe {
        if let Some(log) = raw::RedisModule_Log {
            log(ctx, level.as_ptr(), c"%s".as_ptr(), shown.as_ptr().cast::<c_char>());
        }
    }
}
