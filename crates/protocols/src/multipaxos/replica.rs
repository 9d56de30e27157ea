//! The server side: it has operations put into the log, and applies what was chosen.

use core::time::Duration;
use std::collections::VecDeque;

use serried_actor::{Actor, Context, Group, Recover, Settings, Standing, Store};
use serried_model::{Access, Key, NodeId, Value};
use serried_parts::{Cells, decode_cell_of_another, encode_cell};

use super::Mutation;
use super::message::{Answer, Message, Record, Request, Update};
use super::register::{Executed, Register};
use crate::Mutated;
use crate::frameworks::replicated_log::{
    self, Ballot, Chosen, Clocks, Host, Log, Machine, Span, Time,
};

/// How often what was applied is put into the store, and what is not needed any more trimmed.
const STORE_EVERY: Duration = Duration::from_millis(20);
/// How many keys at a time; more where there are very many.
const STORED_AT_ONCE: usize = 512;
/// For how many times of [`STORE_EVERY`] a key stays out of the store after a change: one that is written often
/// goes there once in that time.
const STORED_AFTER: usize = 50;
/// How many times of [`STORE_EVERY`] lie between marks in the log.
const TRIM_EVERY: usize = 10;
/// How many requests wait for a leader; more are forgotten, and come again.
const PENDING_AT_MOST: usize = 4096;

/// One replica of a partition.
#[derive(Debug)]
pub struct Replica {
    log: Log<Update>,
    registers: Registers,
    /// Requests that nobody leads for, or that the leader has no room for.
    pending: VecDeque<Client>,
    /// The ballot in which it leads, as far as those that wait were told.
    leads: Option<Ballot>,
    clock_bound_us: u64,
    clocks: Clocks,
    group: Group,
    /// Where the durable log was at each of the last times that something was stored.
    positions: VecDeque<u64>,
    /// Until it is trimmed.
    untrimmed: usize,
    mutation: Mutated<Mutation>,
}

/// The keys, and who waits for what is done to them.
#[derive(Debug)]
struct Registers {
    cells: Cells<Register>,
    remembered_us: u64,
    /// Who waits for which slot, in their order.
    waiting: VecDeque<(u64, Client)>,
    /// The ballot in which those slots were proposed.
    ballot: Option<Ballot>,
}

/// A client that waits.
#[derive(Debug)]
struct Client {
    node: NodeId,
    request: Request,
    /// By how much its update's token is ahead of the clock, in microseconds, if the update is refused for that.
    ahead_us: Option<i64>,
}

impl Client {
    fn new(node: NodeId, request: Request) -> Client {
        Client { node, request, ahead_us: None }
    }
}

/// What a replica does by the clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// That of the log.
    Log(replicated_log::Timer),
    /// Put into the store what was applied.
    Store,
}

type Cx<'a> = Context<'a, Replica>;

impl Host for Replica {
    type Entry = Update;

    fn message(message: replicated_log::Message<Update>) -> Message {
        Message::Log(message)
    }

    fn record(record: Record) -> Record {
        record
    }

    fn timer(timer: replicated_log::Timer) -> Timer {
        Timer::Log(timer)
    }
}

impl Machine<Replica> for Registers {
    fn apply(&mut self, chosen: Chosen<'_, Update>, cx: &mut Cx<'_>) {
        let Chosen { slot, position, entry, led_in } = chosen;
        let executed = entry.map(|update| {
            cx.charge(1);
            let register = self.cells.change(&update.key, position, cx.store());
            register.execute(slot, update, self.remembered_us)
        });
        let is_waited_for = self.waiting.front().is_some_and(|(first, _)| *first == slot);
        if !is_waited_for || led_in != self.ballot {
            return;
        }
        let (_, client) = self.waiting.pop_front().expect("somebody waits");
        let Client { node, request, ahead_us } = client;
        // What was proposed in this ballot is what was chosen, so this is the client's own.
        let answer = match executed {
            Some(Executed::Done(stamped)) => Answer::Done(stamped),
            Some(Executed::Refused) => Answer::ClockSkew { ahead_us: ahead_us.unwrap_or(0) },
            Some(Executed::Forgotten) => Answer::Forgotten,
            None => Answer::Done(self.cells.get(&request.key, cx.store()).read()),
        };
        cx.send(node, Message::Reply { request: request.number, answer });
    }

    fn store_all(&mut self, store: &mut dyn Store) {
        self.cells.store_some(usize::MAX, store);
    }

    fn needs_log_from(&self) -> Option<u64> {
        self.cells.needs_log_from()
    }

    fn take_over(&mut self, key: &Key, state: &[u8], store: &mut dyn Store) -> bool {
        let Some(register) = decode_cell_of_another::<Register>(state) else { return false };
        if register.is_as_late_as(self.cells.get(key, store)) {
            self.cells.put(key, register, store);
        }
        true
    }
}

impl Replica {
    /// An empty replica, which does nothing wrong but `mutation`.
    pub fn new(
        id: NodeId,
        group: Group,
        settings: &Settings,
        mutation: Mutated<Mutation>,
    ) -> Replica {
        let mut log = Log::new(id, group.clone(), settings);
        if mutation.is(Mutation::AcknowledgedByLeaderAlone) {
            log = log.with_quorum(1);
        }
        let registers = Registers {
            cells: Cells::new(settings.resident_keys),
            remembered_us: settings.outcomes_ms * 1000,
            waiting: VecDeque::new(),
            ballot: None,
        };
        Replica {
            log,
            registers,
            pending: VecDeque::new(),
            leads: None,
            clock_bound_us: settings.clock_bound_ms.saturating_mul(1000),
            clocks: Clocks::new(group.size(), id.member()),
            group,
            positions: VecDeque::new(),
            untrimmed: 0,
            mutation,
        }
    }

    fn on_request(&mut self, client: Client, cx: &mut Cx<'_>) {
        // Whoever waits comes first.
        let at_once = self.pending.is_empty() && self.log.leads().is_some();
        let waits = if at_once { self.propose(client, cx) } else { Some(client) };
        waits.into_iter().for_each(|client| self.wait(client));
    }

    fn wait(&mut self, client: Client) {
        if self.pending.len() < PENDING_AT_MOST {
            self.pending.push_back(client);
        }
    }

    /// Puts a request into the log, or its refusal. Returns the request if there is no room, or the time is not known yet. If
    /// it is not clear whether the client's clock is off, since the clocks of two replicas of three disagree, the request
    /// gets no answer, and the client sends it again.
    ///
    /// A leader can't know whether the log already contains an update that it refuses, or will contain it under another
    /// leader, because the request may have been sent twice. So the order in the log decides, and the client is told once
    /// that is known.
    fn propose(&mut self, mut client: Client, cx: &mut Cx<'_>) -> Option<Client> {
        let request = &client.request;
        let entry = match &request.access {
            Access::Read => None,
            access => {
                let time = self.clocks.time(cx.clock().midpoint_us(), cx.now());
                let Some(Span { earliest_us, latest_us }) = time else { return Some(client) };
                let (us, bound_us) = (request.token.timestamp_us, self.clock_bound_us);
                let is_refused = us > latest_us.saturating_add(bound_us);
                if !is_refused && us > earliest_us.saturating_add(bound_us) {
                    return None;
                }
                let ahead_us = i64::try_from(us.saturating_sub(latest_us)).unwrap_or(i64::MAX);
                client.ahead_us = is_refused.then_some(ahead_us);
                let access = if is_refused { Access::Read } else { access.clone() };
                let (key, token, settled) = (request.key.clone(), request.token, request.settled);
                Some(Update { key, token, settled, access })
            }
        };
        let Some(slot) = self.log.propose(entry, cx) else { return Some(client) };
        self.registers.waiting.push_back((slot, client));
        None
    }

    /// After the log has gone on: those who wait may have to wait for another leader.
    fn after_log(&mut self, cx: &mut Cx<'_>) {
        let leads = self.log.leads();
        if leads != self.leads {
            self.leads = leads;
            if leads.is_some() {
                self.ask_clocks(cx);
            }
            self.registers.ballot = leads;
            for (_, client) in core::mem::take(&mut self.registers.waiting) {
                self.wait(client);
            }
        }
        if leads.is_some() {
            while let Some(client) = self.pending.pop_front() {
                if let Some(client) = self.propose(client, cx) {
                    self.pending.push_front(client);
                    break;
                }
            }
            self.log.choose_alone(&mut self.registers, cx);
        } else if let Some(leader) = self.log.leader(cx.now()) {
            for Client { node, request, .. } in self.pending.drain(..) {
                cx.send_before_durable(leader, Message::Forward { client: node, request });
            }
        }
    }

    /// Asks the other replicas what their clocks say, unless they were asked lately.
    fn ask_clocks(&mut self, cx: &mut Cx<'_>) {
        let Some(question) = self.clocks.question(self.group.round_trip(), cx) else { return };
        let others = self.group.all().without([cx.id()].into_iter().collect());
        cx.broadcast(cx.id().partition(), others, Message::Time(question));
    }

    fn on_time(&mut self, from: NodeId, time: Time, cx: &mut Cx<'_>) {
        if !self.group.contains(from) || from.partition() != cx.id().partition() {
            return cx.reject(|| format!("{from} has sent what only replicas of a partition send"));
        }
        if let Some(answer) = self.clocks.on_time(from, time, cx) {
            cx.send_before_durable(from, Message::Time(answer));
        }
    }

    fn store_soon(&self, cx: &mut Cx<'_>) {
        cx.set_timer(Timer::Store, STORE_EVERY);
    }

    fn store_some(&mut self, cx: &mut Cx<'_>) {
        self.positions.push_back(cx.log_position());
        if self.positions.len() > STORED_AFTER {
            let before = self.positions.pop_front().expect("there are many");
            if !cx.store().is_behind() {
                let cells = &mut self.registers.cells;
                let mut left = STORED_AT_ONCE.max(cells.unstored() / STORED_AFTER);
                while left > 0 && cells.needs_log_from().is_some_and(|first| first < before) {
                    cells.store_some(1, cx.store());
                    left -= 1;
                }
            }
        }
        self.untrimmed += 1;
        if self.untrimmed >= TRIM_EVERY {
            self.untrimmed = 0;
            self.log.trim(&self.registers, cx);
        }
        self.store_soon(cx);
    }
}

impl Actor for Replica {
    type Message = Message;
    type Timer = Timer;
    type Record = Record;
    type Output = ();

    fn on_start(&mut self, cx: &mut Cx<'_>) {
        self.log.on_start(&mut self.registers, cx);
        self.ask_clocks(cx);
        self.after_log(cx);
        self.store_soon(cx);
    }

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        cx.charge(1);
        match message {
            Message::Request(request) => self.on_request(Client::new(from, request), cx),
            // It would not do to send it back and forth.
            Message::Forward { .. }
                if self.log.leader(cx.now()).is_some_and(|leader| leader != cx.id()) => {}
            Message::Forward { client, request } => {
                self.on_request(Client::new(client, request), cx);
            }
            Message::Log(message) => {
                self.log.on_message(from, message, &mut self.registers, cx);
            }
            Message::Time(time) => self.on_time(from, time, cx),
            Message::Reply { .. } => {
                cx.reject(|| format!("{from} has sent a replica what only clients are sent"));
            }
        }
        self.after_log(cx);
    }

    fn on_durable(&mut self, cx: &mut Cx<'_>) {
        self.log.on_durable(&mut self.registers, cx);
        self.after_log(cx);
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_>) {
        match timer {
            Timer::Log(timer) => {
                self.log.on_timer(timer, &mut self.registers, cx);
                self.after_log(cx);
            }
            Timer::Store => {
                if self.leads.is_some() {
                    self.ask_clocks(cx);
                }
                self.store_some(cx);
            }
        }
    }

    fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("resident_keys", self.registers.cells.resident() as u64);
        each("unstored_keys", self.registers.cells.unstored() as u64);
        each("log_slots", self.log.kept() as u64);
        each("applied_slots", self.log.applied());
        each("leads", u64::from(self.log.leads().is_some()));
        each("catching_up", u64::from(self.log.is_behind()));
    }
}

impl Recover for Replica {
    fn replay(&mut self, record: Record, _: &mut dyn Store) {
        self.log.replay(record);
    }

    fn rejoin(&mut self, cx: &mut Cx<'_>) {
        if !self.mutation.is(Mutation::RejoinsAtOnce) {
            self.log.rejoin(cx);
        }
    }

    fn on_stop(&mut self, cx: &mut Cx<'_>) {
        self.log.stop(cx);
        self.after_log(cx);
    }

    fn may_stop(&self) -> bool {
        self.log.may_stop()
    }

    fn standing(&self) -> Standing {
        self.log.standing()
    }

    fn stored(value: &Value) -> Vec<u8> {
        encode_cell(&Register::holding(value.clone()))
    }
}

#[cfg(test)]
mod tests {
    use serried_actor::MemoryStore;
    use serried_model::{Modification, Version};

    use super::*;

    /// What a store has for a key after so many additions.
    fn after(additions: u64) -> Vec<u8> {
        let mut register = Register::default();
        for slot in 0..additions {
            let (key, token) = (Key::from("x"), Version::at(slot + 1));
            let access = Access::Modify(Modification::add(1));
            register.execute(slot, &Update { key, token, settled: Version::INITIAL, access }, 1000);
        }
        encode_cell(&register)
    }

    #[test]
    fn what_another_has_of_a_key_replaces_nothing_that_is_later() {
        let cells = Cells::new(9);
        let waiting = VecDeque::new();
        let mut registers = Registers { cells, remembered_us: 1000, waiting, ballot: None };
        let (key, mut store) = (Key::from("x"), MemoryStore::default());
        for (shown, value) in [(2, "2"), (1, "2"), (3, "3"), (0, "3")] {
            assert!(registers.take_over(&key, &after(shown), &mut store), "{shown}");
            let found = registers.cells.get(&key, &store).read().value;
            assert_eq!(found, Some(Value::from(value)), "after it was shown {shown}");
        }
        assert!(!registers.take_over(&key, b"something else", &mut store));
    }
}
