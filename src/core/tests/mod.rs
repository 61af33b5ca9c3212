//! The rules, each by itself and against a second, simpler telling of them.

mod announcements;
mod model;
mod properties;
mod waiting;
mod walk;
mod world;
