//! Answers to waiters: queued, in flight, delivered or lost.

use super::state::{
    Answer, Delivery, Grant, Grants, InFlight, LockId, Tracked, TrackedId, WaitEnd, Waiter,
};
use super::Engine;
use crate::core::{OwnerId, WaiterId};
use crate::ffi::{Ctx, Version};

impl Engine {
    /// Queues the answer of a waiter, and tracks what it was granted. The waiter must be out of the
    /// wait list already.
    pub(super) fn answer(&mut self, id: WaiterId, waiter: Waiter, mut answer: Answer) {
        self.cancel_timer(id, &waiter);
        let end = answer.end();
        let mut granted = Grants::new();
        if let Answer::Held(grants) = &mut answer {
            for (grant, place) in grants.iter_mut().zip(&waiter.places) {
                self.track_answer(grant, &place.lock, &waiter.owner);
            }
            granted = grants.clone();
        }
        self.deliveries.add(id, answer, InFlight { waiter, grants: granted, end });
    }

    /// Whether there are answers to send.
    pub fn has_answers(&self) -> bool {
        !self.deliveries.unsent.is_empty()
    }

    /// Takes the answers to send.
    pub fn take_answers(&mut self) -> Vec<(WaiterId, Answer)> {
        std::mem::take(&mut self.deliveries.unsent)
    }

    /// The server reports what became of an answer. It is `delivered`, or it is lost.
    pub fn answered(&mut self, ctx: Ctx<'_>, id: WaiterId, delivered: bool) {
        if let Some(in_flight) = self.deliveries.remove(id) {
            let end = if delivered { &in_flight.end } else { &WaitEnd::Lost };
            self.wait_is_over(ctx, &in_flight.waiter, end);
            if delivered {
                in_flight.grants.iter().for_each(|grant| self.confirm(grant));
            } else {
                // Before 7.2, CLIENT UNBLOCK in this moment leaves the client without a reply. The
                // client would take the reply to its next command for this one. So its connection
                // is closed.
                let is_closing = ctx.version().is_none_or(|version| version < KEEPS_REPLIES);
                if is_closing {
                    ctx.close_client(in_flight.waiter.request.client);
                }
                self.undelivered(&in_flight, is_closing);
            }
        }
    }

    /// Tracks the hold of a granted waiter until its answer is delivered.
    pub(super) fn track_answer(&mut self, grant: &mut Grant, lock: &LockId, owner: &OwnerId) {
        match grant.tracked {
            Some(id) if grant.is_new => self.tracked.set_delivery(id, Delivery::InFlight),
            Some(id) => self.tracked.set_delivery(id, Delivery::ReliedOn),
            None if grant.is_new => {
                let id = self.tracked.add(lock.clone(), owner.clone(), grant.hold);
                self.tracked.set_delivery(id, Delivery::InFlight);
                grant.tracked = Some(id);
            }
            None => {}
        }
    }

    /// The answer was delivered: the hold needs no tracking for it any more.
    pub(super) fn confirm(&mut self, grant: &Grant) {
        if let Some(id) = grant.tracked {
            self.tracked.set_delivery(id, Delivery::Delivered);
            self.untrack_if_plain(id);
        }
    }

    /// The answer was lost. A new hold that it granted is returned, unless it has ended or another request relies
    /// on it. A hold that stays must not be bound to a connection that got another answer, so the
    /// binding goes. A connection that is closing keeps its binding: its close returns the hold.
    pub(super) fn undelivered(&mut self, in_flight: &InFlight, is_closing: bool) {
        let client = in_flight.waiter.request.client;
        for id in in_flight.grants.iter().filter_map(|grant| grant.tracked) {
            self.not_confirmed(id, client, is_closing);
        }
    }

    fn not_confirmed(&mut self, id: TrackedId, client: u64, is_closing: bool) {
        let Some(tracked) = self.tracked.get(id) else {
            return;
        };
        if tracked.delivery == Delivery::InFlight {
            self.tracked.set_lost(id, true);
            self.returns.add(id);
            return;
        }
        let is_bound = tracked.session.is_some_and(|session| session.client == client);
        if is_bound && !is_closing && !self.returns.closed_clients.contains(&client) {
            self.bind(id, None);
        }
        self.tracked.set_delivery(id, Delivery::Delivered);
        self.untrack_if_plain(id);
    }

    fn untrack_if_plain(&mut self, id: TrackedId) {
        // A lost hold stays tracked: it is returned when its slot is served again.
        let is_plain = |tracked: &Tracked| tracked.session.is_none() && !tracked.is_lost;
        if self.tracked.get(id).is_some_and(is_plain) {
            self.untrack(id);
        }
    }
}

/// From this version on, CLIENT UNBLOCK leaves a client alone that has its answer.
const KEEPS_REPLIES: Version = Version { major: 7, minor: 2, patch: 0 };
