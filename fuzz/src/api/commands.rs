//! The commands of the module: how it registers them, where their keys are, their replies.

use super::{Ctx, OK};
use crate::reply::Token;
use crate::state::{Command, Run, STATE};
use std::ffi::{c_char, c_int, c_longlong, c_void, CStr};
use std::ptr::null_mut;

pub(super) unsafe extern "C" fn create_command(
    _: *mut Ctx,
    name: *const c_char,
    run: Run,
    _: *const c_char,
    _: c_int,
    _: c_int,
    _: c_int,
) -> c_int {
    let name = unsafe { CStr::from_ptr(name) }.to_bytes().to_vec();
    STATE.with_borrow_mut(|s| s.commands.push(Box::new(Command { name, run, arity: 0 })));
    OK
}

pub(super) unsafe extern "C" fn get_command(_: *mut Ctx, name: *const c_char) -> *mut Command {
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    STATE.with_borrow_mut(|s| {
        let command = s.commands.iter_mut().find(|command| command.name == name);
        command.map_or(null_mut(), |command| std::ptr::from_mut(&mut **command))
    })
}

/// The start of RedisModuleCommandInfo.
#[repr(C)]
pub(super) struct CommandInfo {
    texts: [*const c_void; 6],
    arity: c_int,
}

pub(super) unsafe extern "C" fn set_command_info(
    command: *mut Command,
    info: *const CommandInfo,
) -> c_int {
    unsafe { (*command).arity = (*info).arity };
    OK
}

pub(super) extern "C" fn is_keys_position_request(_: *mut Ctx) -> c_int {
    STATE.with_borrow(|s| c_int::from(s.key_positions.is_some()))
}

pub(super) extern "C" fn key_at_pos_with_flags(_: *mut Ctx, position: c_int, _: c_int) {
    STATE.with_borrow_mut(|s| {
        if let Some(positions) = &mut s.key_positions {
            positions.push(usize::try_from(position).expect("a position"));
        }
    });
}

pub(super) fn reply(token: Token) -> c_int {
    STATE.with_borrow_mut(|s| s.reply.push(token));
    OK
}

pub(super) extern "C" fn reply_with_long_long(_: *mut Ctx, number: c_longlong) -> c_int {
    reply(Token::Integer(number))
}

pub(super) extern "C" fn reply_with_null(_: *mut Ctx) -> c_int {
    reply(Token::Null)
}

pub(super) unsafe extern "C" fn reply_with_buffer(
    _: *mut Ctx,
    start: *const c_char,
    len: usize,
) -> c_int {
    reply(Token::Bulk(unsafe { std::slice::from_raw_parts(start.cast(), len) }.to_vec()))
}

pub(super) unsafe extern "C" fn reply_with_simple_string(
    _: *mut Ctx,
    text: *const c_char,
) -> c_int {
    reply(Token::Status(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()))
}

pub(super) unsafe extern "C" fn reply_with_error(_: *mut Ctx, text: *const c_char) -> c_int {
    reply(Token::Error(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()))
}

pub(super) extern "C" fn reply_with_array(_: *mut Ctx, len: c_longlong) -> c_int {
    reply(Token::Array(usize::try_from(len).expect("a length")))
}

pub(super) extern "C" fn reply_with_map(_: *mut Ctx, len: c_longlong) -> c_int {
    reply(Token::Map(usize::try_from(len).expect("a length")))
}
