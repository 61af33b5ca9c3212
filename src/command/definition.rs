//! The definition of a command.

use super::args::Args;
use super::error::Error;
use crate::ffi::{CommandDocs, Ctx, Keys, Reply, Run, Str};
use crate::planted::{is_planted, Bug};

/// A command.
pub trait Command {
    /// The description for the server, COMMAND DOCS and HELP.
    const DOCS: CommandDocs;

    /// Runs the command. `args` begins behind the name. An error becomes an error reply.
    fn run(ctx: Ctx<'_>, args: Args<'_>) -> Result<Reply, Error>;

    /// The positions of the keys, for a command whose keys follow words. The name has position 0.
    fn key_positions(_args: Args<'_>) -> Result<Vec<usize>, Error> {
        Ok(Vec::new())
    }
}

/// A row of the table of commands. It stands for a type that implements [`Command`].
pub struct Row {
    /// [`Command::DOCS`].
    pub docs: CommandDocs,
    /// Registers the command with the server.
    pub register: fn(Ctx<'_>) -> Result<(), String>,
}

impl Row {
    /// The row of a command.
    pub const fn of<C: Command>() -> Row {
        Row { docs: C::DOCS, register: |ctx| ctx.register::<Adapter<C>>(&shipped(C::DOCS)) }
    }
}

/// The description with which the command is registered.
fn shipped(docs: CommandDocs) -> CommandDocs {
    match docs.flags {
        "write deny-oom blocking" if is_planted(Bug::GrantOnReplica) => {
            CommandDocs { flags: "deny-oom blocking", ..docs }
        }
        _ => docs,
    }
}

/// Adapts a [`Command`] to [`Run`], which the server calls.
struct Adapter<C>(std::marker::PhantomData<C>);

impl<C: Command> Run for Adapter<C> {
    const KEYS: Keys = C::DOCS.keys;

    fn run(ctx: Ctx<'_>, args: &[&Str]) -> Reply {
        C::run(ctx, Args::new(args)).unwrap_or_else(|error| Reply::Error(error.text(C::DOCS.name)))
    }

    fn key_positions(args: &[&Str]) -> Option<Vec<usize>> {
        C::key_positions(Args::new(args)).ok()
    }
}

/// The version of the module that added the commands, for COMMAND DOCS. All are from the same
/// version so far.
pub const SINCE: &str = "0.1.0";
