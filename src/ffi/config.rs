//! Settings for CONFIG GET, SET and REWRITE, and for the server's configuration file.
//!
//! `redis-module` has these too, but it keeps each value in a variable of its own and does not
//! guard the callbacks against panics. Here the caller has a table of settings: a setting is its
//! number in the table, and the value of each kind of setting is one integer.

use super::{api, guard, Ctx};
use redis_module::raw;
use std::ffi::{c_char, c_int, c_longlong, c_void, CStr};
use std::ptr::null_mut;

/// The possible values of a setting.
#[derive(Clone, Copy, Debug)]
pub enum ConfigKind {
    /// One of these words. The value is its index, from 0.
    Word(&'static [&'static CStr]),
    /// A number from the first to the second.
    Number(i64, i64),
    /// No (0) or yes (1).
    YesNo,
}

/// The callbacks for settings. `number` identifies the setting.
pub trait OnConfig {
    /// Returns the value of the setting.
    fn get(number: usize) -> i64;

    /// Sets the setting to a value of its kind. The server may set the old value again at once, if
    /// it refuses another setting of the same CONFIG SET.
    fn set(number: usize, value: i64);

    /// CONFIG SET has set all its settings.
    fn changed();
}

impl Ctx<'_> {
    /// Registers a setting, while the module is being loaded. False: the server refuses it.
    pub fn register_config<C: OnConfig>(
        self,
        number: usize,
        name: &CStr,
        kind: ConfigKind,
        default: i64,
    ) -> bool {
        let (ctx, name, data) = (self.raw(), name.as_ptr(), number as *mut c_void);
        let flags = raw::REDISMODULE_CONFIG_DEFAULT;
        let small = c_int::try_from(default).unwrap_or(0);
        // SAFETY: the context lives as long as `self`, and the server copies the strings. It
        // forgets a setting with its module, and so never calls what is gone. `data` is a
        // number, which nobody follows.
        let status = unsafe {
            match kind {
                ConfigKind::Word(words) => {
                    let mut names: Vec<*const c_char> = words.iter().map(|w| w.as_ptr()).collect();
                    let values: Vec<c_int> = (0..).take(words.len()).collect();
                    raw::RedisModule_RegisterEnumConfig.map(|register| {
                        register(
                            ctx,
                            name,
                            small,
                            flags,
                            names.as_mut_ptr(),
                            values.as_ptr(),
                            values.len() as c_int,
                            Some(get_int::<C>),
                            Some(set_int::<C>),
                            Some(changed::<C>),
                            data,
                        )
                    })
                }
                ConfigKind::Number(min, max) => {
                    raw::RedisModule_RegisterNumericConfig.map(|register| {
                        register(
                            ctx,
                            name,
                            default,
                            flags,
                            min,
                            max,
                            Some(get_long::<C>),
                            Some(set_long::<C>),
                            Some(changed::<C>),
                            data,
                        )
                    })
                }
                ConfigKind::YesNo => raw::RedisModule_RegisterBoolConfig.map(|register| {
                    register(
                        ctx,
                        name,
                        small,
                        flags,
                        Some(get_int::<C>),
                        Some(set_int::<C>),
                        Some(changed::<C>),
                        data,
                    )
                }),
            }
        };
        status == Some(raw::REDISMODULE_OK as c_int)
    }

    /// Sets the registered settings to the values in the server's configuration, else to their
    /// defaults. False: the configuration has a value that is not possible; the server's log names
    /// it.
    pub fn load_configs(self) -> bool {
        // SAFETY: the context lives as long as `self`.
        unsafe { api!(RedisModule_LoadConfigs)(self.raw()) == raw::REDISMODULE_OK as c_int }
    }
}

fn get<C: OnConfig>(data: *mut c_void) -> i64 {
    // A panic is in the log already.
    guard::guarded(|| C::get(data as usize)).unwrap_or(0)
}

/// # Safety
/// `error` is null or the place for an error's text.
unsafe fn set<C: OnConfig>(
    data: *mut c_void,
    value: i64,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    let Err(panic) = guard::callback(|| C::set(data as usize, value)) else {
        return raw::REDISMODULE_OK as c_int;
    };
    if !error.is_null() {
        // SAFETY: `error` is the place for a string, as the caller promises.
        unsafe {
            *error = api!(RedisModule_CreateString)(null_mut(), panic.as_ptr().cast(), panic.len());
        }
    }
    raw::REDISMODULE_ERR as c_int
}

unsafe extern "C" fn get_int<C: OnConfig>(_name: *const c_char, data: *mut c_void) -> c_int {
    c_int::try_from(get::<C>(data)).unwrap_or(0)
}

unsafe extern "C" fn get_long<C: OnConfig>(_name: *const c_char, data: *mut c_void) -> c_longlong {
    get::<C>(data)
}

unsafe extern "C" fn set_int<C: OnConfig>(
    _name: *const c_char,
    value: c_int,
    data: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server passes a place for the text of an error.
    unsafe { set::<C>(data, value.into(), error) }
}

unsafe extern "C" fn set_long<C: OnConfig>(
    _name: *const c_char,
    value: c_longlong,
    data: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server passes a place for the text of an error.
    unsafe { set::<C>(data, value, error) }
}

unsafe extern "C" fn changed<C: OnConfig>(
    _ctx: *mut raw::RedisModuleCtx,
    _data: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    let _ = guard::callback(C::changed);
    raw::REDISMODULE_OK as c_int
}
