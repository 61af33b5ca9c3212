//! Slots, the nodes that serve them, and slots that move.

mod atomic;
mod joint;
mod migration;
mod moved_in;
mod nodes;
mod probes;
mod slots;
mod topology;
mod waiters_moved;
