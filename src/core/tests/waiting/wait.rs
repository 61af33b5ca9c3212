//! Into the queue and out of it again: the engine's wait, serve and deadlock.

use super::circles;
use super::step::Reply;
use super::world::{name, Place, Waiter, World};
use crate::core::{
    find_cycle, serve, serve_owner, Blockers, Circle, Ledger, Lineup, Mode, OwnerId, Queue, Turn,
    WaiterId, Want,
};
use hashbrown::HashSet;
use std::collections::{BTreeMap, BTreeSet};

impl World {
    /// Engine::wait.
    pub fn wait(&mut self, waiter: Waiter) -> Reply {
        let Waiter { owner, place, want, .. } = waiter;
        let seen = self.seen(place, owner);
        if want == Want::Write && seen.mode() == Some(Mode::Read) && !seen.own.reads.is_empty() {
            return Reply::Deadlock;
        }
        let name = name(owner);
        let stood = circles::stand(self);
        let queue = &mut self.locks[place].queue;
        if want == Want::Upgrade && queue.other_upgrade(&name).is_some() {
            return Reply::Deadlock;
        }
        self.last_waiter += 1;
        let id = self.last_waiter;
        queue.push(id, want, name.clone());
        self.waiters.insert(id, waiter);
        while let Some(Circle { youngest, .. }) = self.circle_through(&name) {
            self.judge(youngest);
            if !stood && youngest != id {
                let wrong = format!("waiter {youngest} is told of a circle that {id} closes");
                self.wrongs.push(wrong);
            }
            if youngest == id {
                self.strike(id);
                self.leave_queue(id, waiter);
                return Reply::Deadlock;
            }
            self.answer(youngest, Reply::Deadlock);
        }
        self.serve(place);
        match self.answers.iter().position(|(answered, _)| *answered == id) {
            None => Reply::Waiting,
            Some(at) => self.answers.swap_remove(at).1,
        }
    }

    fn judge(&mut self, victim: WaiterId) {
        if !circles::are_closed_by(self, victim) {
            self.wrongs.push(format!("waiter {victim} closes no circle and is told so"));
        }
    }

    /// Engine::answer and Engine::leave_queue.
    pub fn answer(&mut self, id: WaiterId, reply: Reply) {
        match self.strike(id) {
            None => self.wrongs.push(format!("waiter {id} is told {reply:?}, and had left")),
            Some(waiter) => {
                self.answers.push((id, reply));
                self.leave_queue(id, waiter);
            }
        }
    }

    fn strike(&mut self, id: WaiterId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        if self.waits_of(&name(waiter.owner)).next().is_some() {
            self.unsettled.insert(waiter.owner);
        } else {
            self.unsettled.remove(&waiter.owner);
        }
        Some(waiter)
    }

    fn leave_queue(&mut self, id: WaiterId, waiter: Waiter) {
        let lock = &mut self.locks[waiter.place];
        lock.queue.remove(id, waiter.want);
        lock.due |= !lock.queue.is_empty();
    }

    pub fn serve(&mut self, place: Place) {
        self.with_queue(place, |world, queue| {
            let policy = world.policy;
            serve(queue, policy, &mut Turns { world, place }).unwrap_or_default().to_vec()
        });
    }

    pub fn serve_holder(&mut self, place: Place, owner: u8) {
        self.with_queue(place, |world, queue| {
            let owner = name(owner);
            let Ok(()) = serve_owner(queue, &owner, &mut Turns { world, place });
            vec![owner]
        });
    }

    fn with_queue(
        &mut self,
        place: Place,
        serve: impl FnOnce(&mut World, &mut Queue) -> Vec<OwnerId>,
    ) {
        if self.locks[place].queue.is_empty() {
            return;
        }
        let mut queue = std::mem::take(&mut self.locks[place].queue);
        let granted = serve(self, &mut queue);
        self.locks[place].queue = queue;
        for owner in granted {
            self.break_circles(&owner);
        }
        while let Some(owner) = self.unsettled.pop_first() {
            self.break_circles(&name(owner));
        }
    }
}

/// Serving, with all that it takes.
struct Turns<'w> {
    world: &'w mut World,
    place: Place,
}

impl Ledger for Turns<'_> {
    type Error = std::convert::Infallible;

    fn standing(&mut self) -> Result<(Option<Mode>, Option<OwnerId>), Self::Error> {
        let mode = self.world.seen(self.place, u8::MAX).mode();
        Ok((mode, self.world.locks[self.place].reserved.map(|(by, _)| name(by))))
    }

    fn attempt(&mut self, id: WaiterId, _: Want, _: &OwnerId) -> Result<Turn, Self::Error> {
        let waiter = self.world.waiters[&id];
        let (reply, turn) = match self.world.take(waiter, id, false) {
            Ok(true) => (Reply::Held, Turn::Granted),
            Err(reply) => (reply, Turn::Failed),
            Ok(false) => return Ok(Turn::NotYet),
        };
        self.world.strike(id);
        self.world.answers.push((id, reply));
        Ok(turn)
    }
}

/// Engine: deadlock.rs.
impl World {
    fn waits_of(&self, owner: &OwnerId) -> impl Iterator<Item = (WaiterId, Waiter)> + '_ {
        let owner = owner[0];
        let own = self.waiters.iter().filter(move |(_, waiter)| waiter.owner == owner);
        own.map(|(id, waiter)| (*id, *waiter))
    }

    fn circle_through(&self, owner: &OwnerId) -> Option<Circle> {
        self.waits_of(owner).next()?;
        let mut lineups = BTreeMap::new();
        find_cycle(owner, |of| self.blockers(owner, of, &mut lineups))
    }

    fn break_circles(&mut self, owner: &OwnerId) {
        while let Some(Circle { youngest, .. }) = self.circle_through(owner) {
            self.judge(youngest);
            self.answer(youngest, Reply::Deadlock);
        }
    }

    fn blockers(
        &self,
        start: &OwnerId,
        owner: &OwnerId,
        lineups: &mut BTreeMap<Place, Lineup>,
    ) -> Blockers {
        let places = |owner: &OwnerId| {
            let places = self.waits_of(owner).map(|(_, waiter)| (waiter.place, waiter.want));
            places.collect::<BTreeSet<_>>().len()
        };
        let several: HashSet<OwnerId> =
            (0..8).map(name).filter(|owner| places(owner) > 1).collect();
        let mut blockers = Blockers::default();
        let mut met = BTreeSet::new();
        for (id, Waiter { place, want, .. }) in self.waits_of(owner) {
            if !met.insert((place, want)) {
                continue;
            }
            let here = &self.locks[place];
            let lineup = lineups.entry(place).or_insert_with(|| {
                let holders = here.holds.keys().map(|holder| name(*holder));
                let waits = |holder: &OwnerId| self.waits_of(holder).next().is_some();
                let mode = self.seen(place, u8::MAX).mode();
                here.queue.line_up(mode, holders.filter(waits).collect(), &several, self.policy)
            });
            let waiter = (id, want);
            here.queue.add_blockers(waiter, owner, start, lineup, self.policy, &mut blockers);
        }
        blockers
    }
}
