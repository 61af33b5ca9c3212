//! Waiting (SPEC section 4): the real rules at work in a small world without a
//! server, held against a second telling of what they have to be.

mod circles;
mod explore;
mod random;
mod rules;
mod step;
mod stories;
mod wait;
mod world;
