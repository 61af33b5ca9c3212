//! Many clients and random faults, for as long as a test may take.

pub mod chaos;
mod clock_storm;
mod fence_storm;
mod fuzz;
mod joint_fairness;
mod listing;
mod log_load;
mod memory;
mod panics;
mod philosophers;
mod thousand;
mod transfers;
