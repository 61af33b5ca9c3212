//! The load generator: connections, pipelining, and clients that contend.

mod clients;
mod net;
mod pipe;
mod protocol;
mod transfers;

pub use clients::Load;
pub use net::Net;
pub use pipe::Pipe;
pub use protocol::Protocol;
pub use transfers::{Moved, Transfers};
