//! Replicas, promotion, files and crashes.

mod async_loading;
mod crash;
mod failover;
mod joint;
mod persistence;
mod propagation;
mod replicas;
