//! Runs what is due: timers, returns of holds, the sweep and the retries.

use super::intervals;
use super::open_locks::OpenNames;
use super::pass::Pass;
use super::state::{Answer, Moment, NextTimer, Timer};
use super::{Engine, Error};
use crate::ffi::{Access, Ctx, Text};
use crate::store::{LockRef, Store};

impl Engine {
    /// Runs what is due, for the length of one pass. Without writes (a replica, a load, CLIENT
    /// PAUSE) only waiters time out.
    pub fn run_due(&mut self, ctx: Ctx<'_>) {
        let pass = Pass::begin(self.now(ctx));
        let situation = ctx.situation();
        let may_write = situation.primary && !situation.loading && !ctx.writes_are_paused();
        self.timers.unfinished = false;
        if !situation.primary {
            self.fail_all_waiters(&pass);
            if !self.timers.unfinished {
                self.retire();
            }
        } else if may_write {
            self.returns.retry(pass.now);
            self.return_holds(ctx, &pass);
            self.go_on_with_sweep(ctx, &pass);
            self.try_unserved(ctx, &pass);
        }
        loop {
            // Without writes, only waiters time out. The same applies until all returns are done: a
            // queue must not be served after only some of them.
            let next = match may_write && !self.returns.has_ready() {
                true => self.timers.next(pass.now),
                false => self.timers.next_waiter(pass.now),
            };
            match next {
                NextTimer::Fires(timer) => self.run_guarded(ctx, timer),
                NextTimer::Moved => {}
                NextTimer::Nothing => break,
            }
            if pass.is_over() {
                self.timers.unfinished = true;
                break;
            }
        }
        if may_write && !self.timers.unfinished && std::mem::take(&mut self.waits.needs_search) {
            // Every waiter that can be granted has been granted. The others may form circles.
            self.step(|engine| engine.break_all_circles(ctx, &pass));
        }
        // Before places change.
        self.end_released(ctx);
        self.collect_garbage(&pass);
        self.timers.writes_from = match may_write {
            true => Moment::PAST,
            false => self.within(ctx, intervals::NO_WRITES),
        };
        self.statistics.longest_pass = self.statistics.longest_pass.max(pass.micros());
    }

    /// Fires all timers that are due. The server must take writes.
    pub(super) fn run_timers(&mut self, ctx: Ctx<'_>, pass: &Pass) {
        loop {
            match self.timers.next(pass.now) {
                NextTimer::Fires(timer) => self.run_guarded(ctx, timer),
                NextTimer::Moved => {}
                NextTimer::Nothing => return,
            }
        }
    }

    fn run_guarded(&mut self, ctx: Ctx<'_>, timer: Timer) {
        if self.step(|engine| engine.run_timer(ctx, timer)).is_none() {
            self.retry_timer(ctx, timer);
        }
    }

    fn run_timer(&mut self, ctx: Ctx<'_>, timer: Timer) {
        match timer {
            Timer::Waiter(id) => self.time_out(ctx, id),
            Timer::Session(id) => {
                // On an error the hold is not renewed. It then ends with its lease.
                let _ = self.renew_session(ctx, id);
            }
            Timer::Lock(place) => {
                let Some(known) = self.memory.at_mut(place) else {
                    return;
                };
                known.set_due(None);
                let key = Text::new(known.name());
                let lock = LockRef { db: place.db, name: key.bytes() };
                let names = OpenNames::default();
                let opened = Store::open(ctx.in_db(place.db), &key, Access::Write);
                match opened {
                    Ok(mut store) => {
                        let _ = self.on_store(&mut store, &names).refresh();
                    }
                    Err(error) if error.is_unserved() => {
                        self.handle_unserved(ctx.in_db(place.db), &key, error);
                    }
                    // The name is not one that a lock can have.
                    Err(_) => {
                        self.memory.lose(lock);
                        self.forget_if_idle(lock);
                    }
                }
            }
        }
    }

    /// When `run_due` has to run next. None: nothing is scheduled.
    pub fn next_due(&self) -> Option<Moment> {
        let mut next = self.timers.first_waiter();
        let mut not_later = |at: Moment| next = Some(next.map_or(at, |next| next.min(at)));
        if let Some(at) = self.timers.first_other() {
            not_later(at.max(self.timers.writes_from));
        }
        if let Some(at) = self.sweep.due() {
            not_later(at.max(self.timers.writes_from));
        }
        if let Some(at) = self.unserved.next() {
            not_later(at.max(self.timers.writes_from));
        }
        if self.returns.has_ready() || self.waits.needs_search {
            not_later(self.timers.writes_from);
        }
        if let Some(at) = self.returns.retry_at() {
            not_later(at.max(self.timers.writes_from));
        }
        if self.timers.unfinished || self.has_garbage() {
            not_later(Moment::PAST);
        }
        next
    }

    /// Answers all waiters of a server that is not a primary with an error. Most servers have
    /// unblocked them by now. Valkey 9 in a cluster has not: it only redirects clients that wait
    /// for a key in a command of its own.
    fn fail_all_waiters(&mut self, pass: &Pass) {
        while let Some(id) = self.waits.first() {
            if pass.is_over() {
                self.timers.unfinished = true;
                return;
            }
            if let Some(waiter) = self.remove_waiter(id) {
                self.answer(id, waiter, Answer::Failed(Error::Elsewhere(UNBLOCKED.into())));
            }
        }
    }
}

/// The error that a server sends to blocked clients when it becomes a replica.
const UNBLOCKED: &str = "UNBLOCKED force unblock from blocking operation, \
                         instance state changed (master -> replica?)";
