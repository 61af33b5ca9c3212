//! Tests of the rules: each rule by itself, and all rules against a simple model.

mod announcements;
mod hot_locks;
mod model;
mod properties;
mod waiting;
mod walk;
mod world;
