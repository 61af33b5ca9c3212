//! The timer, and the work that is due when it fires.
//!
//! The timers of the module API go by the wall clock: if that is set back by an hour, they fire
//! an hour late. So the module uses a timer of the kernel, which goes by the steady clock.
//!
//! When it fires, it wakes the event loop, but a module must not write there. So the work is done
//! when the loop is about to sleep again. The module subscribes to the events of the loop only
//! until then, because these cost time in each turn.

use super::state::{with_server, Server, SERVER};
use crate::engine::Moment;
use crate::ffi::{Ctx, Event, OnTimer};
use crate::store;

/// The callback of the timer.
pub(super) struct DueTimer;

impl OnTimer for DueTimer {
    fn fired(ctx: Ctx<'_>) {
        if let Some(server) = SERVER.borrow_mut().as_mut() {
            server.fire(ctx);
        }
    }
}

/// The event loop is about to sleep: does what is due, or propagates announcements. It does not
/// do both, because the server would propagate them together as a transaction.
pub(super) fn before_sleep(ctx: Ctx<'_>) {
    let is_due = SERVER.borrow_mut().as_mut().is_some_and(|server| {
        let is_due = std::mem::take(&mut server.due);
        if is_due {
            // The timer fires at once, so the loop turns again without a sleep. Announcements
            // are propagated in that turn. The subscription to the loop may end in it, too: a
            // subscription must not end inside an event.
            server.timer.set(0);
        }
        is_due
    });
    if !is_due {
        store::loop_is_done(ctx);
        return;
    }
    // This is between commands, so it cannot fail as busy. After a stop there is nothing to do.
    let _ = with_server(ctx, |server| {
        server.engine.run_due(ctx);
        if server.engine.take_panicked() {
            server.match_clients();
        }
        Ok(())
    });
}

/// The event loop is awake, and has not run any command yet.
pub(super) fn after_sleep(ctx: Ctx<'_>) {
    // From here on announcements are held back until the loop has run the commands. So the
    // event of that moment has to be certain.
    if SERVER.borrow().as_ref().is_some_and(|server| server.follows_loop) {
        store::loop_is_done(ctx);
        store::loop_awakes();
    }
}

impl Server {
    /// The timer has fired. Keys must not be written here.
    fn fire(&mut self, ctx: Ctx<'_>) {
        self.engine.read_clocks(ctx);
        self.armed = None;
        let next = self.engine.next_due().map(|at| self.engine.sleeps(ctx, at));
        self.due |= next.is_some_and(|(ms, _)| ms == 0);
        if self.due {
            self.armed = Some(Moment::PAST);
            if !self.follows_loop && !self.follows_loop_for_now {
                self.follows_loop_for_now = (self.subscribe.event_loop)(ctx);
            }
            return;
        }
        self.ignore_loop(ctx);
        if let Some((ms, at)) = next {
            self.timer.set(ms);
            self.armed = Some(at);
        }
    }

    /// A tick of the server. If a clock was set, the timer is set anew: a wall clock that was
    /// set forward has ended leases, and clients may wait for those locks.
    pub(super) fn tick(&mut self, ctx: Ctx<'_>) {
        if self.engine.read_clocks(ctx) && !self.due {
            self.armed = None;
            self.arm(ctx);
        }
    }

    /// Ends the subscription to the event loop if it was only made for work that was due.
    fn ignore_loop(&mut self, ctx: Ctx<'_>) {
        let situation = ctx.situation();
        // During a long script or a load the loop also turns, perhaps in the middle of an event.
        if self.follows_loop_for_now && !situation.script && !situation.loading {
            if !self.follows_loop {
                ctx.unsubscribe(Event::Loop);
            }
            self.follows_loop_for_now = false;
        }
    }

    /// Sets the timer for the next thing that the engine has to do.
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

    /// Has the work that is due done, and the inbox read, in the next turn of the event loop.
    pub(super) fn wake_soon(&mut self) {
        if !self.due {
            self.wake_after(0);
        }
    }

    /// Has the work that is due done, and the inbox read, in `ms` milliseconds at the latest.
    pub(super) fn wake_after(&mut self, ms: u64) {
        self.due = true;
        self.timer.set(ms);
        self.armed = Some(Moment::PAST);
    }
}
