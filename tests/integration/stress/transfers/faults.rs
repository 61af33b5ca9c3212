//! The intruder: it kills clients and deletes locks, a few times for each hundred transfers.

use redis::{Connection, Value};

use super::{balances, lock_name, Bank, Counts, ACCOUNTS, START};
use support::observe::run;
use support::{int, list, map, text, wait_until, Random};

pub struct Faults<'b> {
    bank: &'b Bank<'b>,
    con: Connection,
    random: Random,
    counts: Counts,
}

impl<'b> Faults<'b> {
    pub fn new(bank: &'b Bank<'b>, random: Random) -> Self {
        Self { bank, con: bank.server.connection(), random, counts: Counts::default() }
    }

    /// Disturbs until the transfers are made, and looks at the sum of the balances meanwhile.
    pub fn go_on(mut self) -> Counts {
        while self.bank.goes_on() {
            let next = self.bank.written() + self.random.between(1, 40);
            wait_until("the transfers go on", || {
                self.bank.written() >= next || !self.bank.goes_on()
            });
            self.disturb();
            let sum: i64 = balances(&mut self.con).into_iter().sum();
            assert_eq!(sum, START * ACCOUNTS as i64);
        }
        self.counts
    }

    fn disturb(&mut self) {
        match self.random.below(3) {
            0 => self.kill_waiting(),
            1 => self.kill_holding(),
            _ => self.delete(),
        }
    }

    fn kill_waiting(&mut self) {
        let queues = list(run(&mut self.con, "RWLOCK.QUEUES COUNT 100"));
        if queues.is_empty() {
            return;
        }
        let queue = map(&queues[self.random.below_len(queues.len())]);
        let waiters = self.listed(&text(&queue["key"]), "waiters");
        if !waiters.is_empty() {
            let waiter = map(&waiters[self.random.below_len(waiters.len())]);
            self.kill(int(&waiter["client"]), "killed waiting");
        }
    }

    fn kill_holding(&mut self) {
        let Some(lock) = self.any_held() else {
            return;
        };
        for holder in self.listed(&lock, "holders") {
            // An owner's name begins with the id of its client.
            let owner = text(&map(holder)["owner"]);
            let client = owner.split('-').next().and_then(|id| id.parse().ok());
            self.kill(client.expect("a client's id"), "killed holding");
        }
    }

    fn delete(&mut self) {
        let Some(lock) = self.any_held() else {
            return;
        };
        if int(run(&mut self.con, &format!("DEL {lock}"))) == 1 {
            self.count("deleted");
        }
    }

    fn any_held(&mut self) -> Option<String> {
        let first = self.random.below_len(ACCOUNTS);
        let mut locks = (first..first + ACCOUNTS).map(|account| lock_name(account % ACCOUNTS));
        locks.find(|lock| int(run(&mut self.con, &format!("EXISTS {lock}"))) == 1)
    }

    fn listed(&mut self, lock: &str, what: &str) -> Vec<Value> {
        list(&map(run(&mut self.con, &format!("RWLOCK.INSPECT {lock}")))[what])
    }

    fn kill(&mut self, client: i64, what: &'static str) {
        self.bank.killed.lock().expect("the kills").insert(client);
        if int(run(&mut self.con, &format!("CLIENT KILL ID {client}"))) == 1 {
            self.count(what);
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }
}
