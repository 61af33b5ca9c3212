//! The commands. Each has a file that turns arguments into a request and the outcome into a
//! reply. [`TABLE`] lists them all.

mod args;
mod clauses;
mod dangerous;
mod definition;
mod docs;
mod downgrade;
mod error;
mod forceunlock;
mod help;
mod hotlocks;
mod inspect;
mod list;
mod log;
mod mlock;
mod mrenew;
mod munlock;
mod queues;
mod renew;
mod request;
mod rlock;
mod unlock;
mod upgrade;
mod wlock;

use crate::ffi::Ctx;
use crate::server::run;
use args::Args;
use definition::{Command, Row, SINCE};
use error::Error;

/// Every command of the module.
const TABLE: [Row; 16] = [
    Row::of::<rlock::Rlock>(),
    Row::of::<wlock::Wlock>(),
    Row::of::<unlock::Unlock>(),
    Row::of::<renew::Renew>(),
    Row::of::<upgrade::Upgrade>(),
    Row::of::<downgrade::Downgrade>(),
    Row::of::<mlock::Mlock>(),
    Row::of::<munlock::Munlock>(),
    Row::of::<mrenew::Mrenew>(),
    Row::of::<forceunlock::ForceUnlock>(),
    Row::of::<inspect::Inspect>(),
    Row::of::<list::List>(),
    Row::of::<queues::Queues>(),
    Row::of::<log::Log>(),
    Row::of::<hotlocks::HotLocks>(),
    Row::of::<help::Help>(),
];

/// Registers every command.
pub fn register(ctx: Ctx<'_>) -> Result<(), String> {
    ctx.add_acl_category()?;
    help::set_lines(TABLE.iter().map(|row| &row.docs));
    TABLE.iter().try_for_each(|row| (row.register)(ctx))
}
