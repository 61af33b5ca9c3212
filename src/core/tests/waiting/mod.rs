//! Waiting: the shipped rules and the shipped waiting at work in a small world without a
//! server. What comes of it is held against what must be true of each state.

mod circles;
mod explore;
mod locks;
mod random;
mod rules;
mod step;
mod stories;
mod world;
