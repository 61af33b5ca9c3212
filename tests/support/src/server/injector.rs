//! A library that loads the module under test and has it panic where a test says:
//! `tests/modules/injector.c`.

use std::path::PathBuf;
use std::sync::LazyLock;

use redis::Connection;

use super::builder::{built_module, Builder};
use super::meddler::compile;
use crate::{call, int};

static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| compile("injector"));

impl Builder {
    /// Loads the module under test by way of the injector; see [`arm`].
    pub fn injector(self) -> Self {
        self.module(&*LIBRARY)
            .module_arguments(built_module().display())
            // Each panic is in the log.
            .tolerate_in_log("panicked at")
    }
}

/// The command after which the module panics at its next call of the module API but `calls`.
/// Send it together with what is to panic: the server calls the module now and then.
pub fn arm(calls: usize) -> redis::Cmd {
    let mut arm = redis::cmd("INJECTOR.ARM");
    arm.arg(calls);
    arm
}

/// Takes back what [`arm`] has asked for, if that has not come yet. How often the module
/// has panicked so far.
#[track_caller]
pub fn disarm(con: &mut Connection) -> i64 {
    int(call!(con, "INJECTOR.DISARM"))
}
