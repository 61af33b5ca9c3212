//! What clients hear: announcements and key events.

mod announced_owners;
mod announcements;
mod key_events;
mod key_events_plain;
mod meddling;
