//! What operators see: INFO, the dashboard, and memory.

pub mod figures;
pub mod info;
mod memory_returns;
mod night;
mod pages;
