//! Holds that end by time.

mod clock;
mod lapses;
mod lapses_paused;
mod on_time;
mod outlive;
mod persisted;
mod sweep_untouched;
