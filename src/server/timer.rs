//! Has the engine do what is due.
//!
//! The server runs a module's timers by its wall clock: one that is pending while
//! that is set back waits for as long as it was set back. So there are none. A
//! timer of the kernel's, which goes by the steady clock, wakes the event loop;
//! and what is due is done when the loop is about to sleep again, where the server
//! lets a module write. The server tells of that only for so long: to hear of each
//! turn of the loop would cost every command.

use super::state::{with_server, Server, SERVER};
use crate::engine::Moment;
use crate::ffi::{Ctx, Event, OnTimer};
use crate::store;

/// What the timer is for.
pub(super) struct Wakes;

impl OnTimer for Wakes {
    fn fired(ctx: Ctx<'_>) {
        if let Some(server) = SERVER.borrow_mut().as_mut() {
            server.wake(ctx);
        }
    }
}

/// The event loop is about to sleep: does what is due, or hands on what was
/// announced. Not both: together they would make a transaction.
pub(super) fn before_sleep(ctx: Ctx<'_>) {
    let is_due = SERVER.borrow_mut().as_mut().is_some_and(|server| {
        let is_due = std::mem::take(&mut server.due);
        if is_due {
            // It will sleep no moment. What was announced is handed on when it awakes;
            // and the events of the loop are ended then, which cannot be done in one of
            // them.
            server.timer.set(0);
        }
        is_due
    });
    if !is_due {
        store::loop_is_done(ctx);
        return;
    }
    // Never busy: this is between commands. After a stop there is nothing to do.
    let _ = with_server(ctx, |server| {
        server.engine.run_due(ctx);
        if server.engine.take_panicked() {
            server.match_clients();
        }
        Ok(())
    });
}

/// The event loop awakes, and has not looked at any command yet.
pub(super) fn after_sleep(ctx: Ctx<'_>) {
    // Only if it is sure that the loop will be heard of when it has done them.
    if SERVER.borrow().as_ref().is_some_and(|server| server.follows_loop) {
        store::loop_is_done(ctx);
        store::loop_awakes();
    }
}

impl Server {
    /// The timer woke the event loop. Nothing can be written here.
    fn wake(&mut self, ctx: Ctx<'_>) {
        self.engine.read_clocks(ctx);
        self.armed = None;
        let next = self.engine.next_due().map(|at| self.engine.sleeps(ctx, at));
        self.due |= next.is_some_and(|(ms, _)| ms == 0);
        if self.due {
            self.armed = Some(Moment::PAST);
            if !self.follows_loop && !self.listens {
                self.listens = (self.subscribe.event_loop)(ctx);
            }
            return;
        }
        self.ignore_loop(ctx);
        if let Some((ms, at)) = next {
            self.timer.set(ms);
            self.armed = Some(at);
        }
    }

    /// The server does its regular work. A clock that was set is noticed in passing:
    /// forward, it has ended leases that somebody may wait for.
    pub(super) fn tick(&mut self, ctx: Ctx<'_>) {
        if self.engine.read_clocks(ctx) && !self.due {
            self.armed = None;
            self.arm(ctx);
        }
    }

    /// Hears no more of the event loop, if that was only for the timer.
    fn ignore_loop(&mut self, ctx: Ctx<'_>) {
        let situation = ctx.situation();
        // A long script or a load lets the loop turn in the middle of anything,
        // perhaps of an event.
        if self.listens && !situation.script && !situation.loading {
            if !self.follows_loop {
                ctx.unsubscribe(Event::Loop);
            }
            self.listens = false;
        }
    }

    /// Sets the timer to what the engine has to do next.
    pub(super) fn arm(&mut self, ctx: Ctx<'_>) {
        let Some(at) = self.engine.next_due() else {
            return;
        };
        if self.armed.is_some_and(|armed| armed <= at) {
            return;
        }
        let (ms, armed) = self.engine.sleeps(ctx, at);
        self.timer.set(ms);
        self.armed = Some(armed);
    }

    /// Has the inbox read as soon as may be.
    pub(super) fn wake_soon(&mut self) {
        if !self.due {
            self.wake_after(0);
        }
    }

    /// Has the inbox read in so many ms at the latest.
    pub(super) fn wake_after(&mut self, ms: u64) {
        self.due = true;
        self.timer.set(ms);
        self.armed = Some(Moment::PAST);
    }
}
