//! BLOCK and RESERVE: who waits, who is served next, and what ends a wait.

mod block;
mod deadlocks;
mod deadlocks_in_queues;
mod freed_by_others;
mod freed_by_scripts;
mod grants_refused;
mod grants_taken_back;
mod handed_over;
mod joint;
mod order;
mod pauses;
mod policies;
mod reservations;
mod reservations_given;
mod reserved_queue;
mod starvation;
mod two_databases;
mod unblock;
mod upgrade;
