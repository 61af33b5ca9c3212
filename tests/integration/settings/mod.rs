//! Settings, and the module as a part of a server: loading, unloading, redis.conf.

mod live;
pub mod loading;
mod operations;
mod sources;
