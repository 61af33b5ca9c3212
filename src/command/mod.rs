//! The commands: bytes in, request out; outcome in, reply out. One file for
//! each, and [`TABLE`] lists them all.

mod args;
mod docs;
mod downgrade;
mod error;
mod forceunlock;
mod help;
mod inspect;
mod queues;
mod renew;
mod request;
mod rlock;
mod unlock;
mod upgrade;
mod wlock;

use crate::ffi::{CommandDocs, Ctx, Reply, Run, Str};
use crate::server::run;
use args::Args;
use error::Error;

/// A command.
trait Command {
    /// What the server, its clients and HELP know of it.
    const DOCS: CommandDocs;

    /// Runs it.
    fn run(ctx: Ctx<'_>, args: Args<'_>) -> Result<Reply, Error>;
}

/// A line of the table: a command without its type.
struct Row {
    docs: CommandDocs,
    register: fn(Ctx<'_>) -> Result<(), String>,
}

impl Row {
    const fn of<C: Command>() -> Row {
        Row { docs: C::DOCS, register: |ctx| ctx.register::<Called<C>>(&C::DOCS) }
    }
}

/// Every command of the module.
const TABLE: [Row; 10] = [
    Row::of::<rlock::Rlock>(),
    Row::of::<wlock::Wlock>(),
    Row::of::<unlock::Unlock>(),
    Row::of::<renew::Renew>(),
    Row::of::<upgrade::Upgrade>(),
    Row::of::<downgrade::Downgrade>(),
    Row::of::<forceunlock::ForceUnlock>(),
    Row::of::<inspect::Inspect>(),
    Row::of::<queues::Queues>(),
    Row::of::<help::Help>(),
];

/// Registers every command.
pub fn register(ctx: Ctx<'_>) -> Result<(), String> {
    ctx.add_acl_category()?;
    TABLE.iter().try_for_each(|row| (row.register)(ctx))
}

/// A command as the server calls it.
struct Called<C>(std::marker::PhantomData<C>);

impl<C: Command> Run for Called<C> {
    fn run(ctx: Ctx<'_>, args: &[&Str]) -> Reply {
        C::run(ctx, Args::new(args)).unwrap_or_else(|error| Reply::Error(error.text(C::DOCS.name)))
    }
}

/// The version of the module that brought all commands there are.
const SINCE: &str = "0.1.0";
