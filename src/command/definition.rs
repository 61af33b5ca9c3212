//! What a command is.

use super::args::Args;
use super::error::Error;
use crate::ffi::{CommandDocs, Ctx, Reply, Run, Str};

/// A command.
pub trait Command {
    /// What the server, its clients and HELP know of it.
    const DOCS: CommandDocs;

    /// Runs it.
    fn run(ctx: Ctx<'_>, args: Args<'_>) -> Result<Reply, Error>;
}

/// A line of the table: a command without its type.
pub struct Row {
    /// What is known of it.
    pub docs: CommandDocs,
    /// Makes it known to the server.
    pub register: fn(Ctx<'_>) -> Result<(), String>,
}

impl Row {
    /// The line of a command.
    pub const fn of<C: Command>() -> Row {
        Row { docs: C::DOCS, register: |ctx| ctx.register::<Called<C>>(&C::DOCS) }
    }
}

/// A command as the server calls it.
struct Called<C>(std::marker::PhantomData<C>);

impl<C: Command> Run for Called<C> {
    fn run(ctx: Ctx<'_>, args: &[&Str]) -> Reply {
        C::run(ctx, Args::new(args)).unwrap_or_else(|error| Reply::Error(error.text(C::DOCS.name)))
    }
}

/// The version of the module that brought all commands there are.
pub const SINCE: &str = "0.1.0";
