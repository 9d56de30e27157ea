//! The state machine of a replica: its registers, and the clients that wait for what is done to them.

use std::collections::VecDeque;

use serried_actor::{Context, Settings, Store};
use serried_model::{Key, NodeId};
use serried_parts::{Cells, decode_cell_of_another};

use super::message::{Answer, Message, Request, Update};
use super::register::{Executed, Register};
use super::replica::Replica;
use crate::frameworks::replicated_log::{Ballot, Chosen, StateMachine};

/// The registers, and the clients that wait for what is done to them.
#[derive(Debug)]
pub(super) struct Registers {
    cells: Cells<Register>,
    remembered_us: u64,
    /// The clients that wait, by slot, in the order of the slots.
    waiting: VecDeque<(u64, Client)>,
    /// The ballot in which those slots were proposed.
    ballot: Option<Ballot>,
}

/// A client that waits.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) node: NodeId,
    pub(super) request: Request,
    /// By how much its update's token is ahead of the clock, in microseconds, if the update is refused for that.
    pub(super) ahead_us: Option<i64>,
}

impl Client {
    pub(super) fn new(node: NodeId, request: Request) -> Client {
        Client { node, request, ahead_us: None }
    }
}

impl Registers {
    /// Registers that nothing was done to.
    pub(super) fn new(settings: &Settings) -> Registers {
        Registers {
            cells: Cells::new(settings.resident_keys),
            remembered_us: settings.outcomes_ms * 1000,
            waiting: VecDeque::new(),
            ballot: None,
        }
    }

    pub(super) fn cells(&self) -> &Cells<Register> {
        &self.cells
    }

    pub(super) fn cells_mut(&mut self) -> &mut Cells<Register> {
        &mut self.cells
    }

    /// A client waits for a slot, which comes after those of the others.
    pub(super) fn wait(&mut self, slot: u64, client: Client) {
        self.waiting.push_back((slot, client));
    }

    /// This replica leads in another ballot, or does not lead. Returns the clients that wait.
    pub(super) fn lead(&mut self, ballot: Option<Ballot>) -> impl Iterator<Item = Client> + use<> {
        self.ballot = ballot;
        core::mem::take(&mut self.waiting).into_iter().map(|(_, client)| client)
    }
}

impl StateMachine<Replica> for Registers {
    fn apply(&mut self, chosen: Chosen<'_, Update>, cx: &mut Context<'_, Replica>) {
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
        let (_, client) = self.waiting.pop_front().expect("a client waits");
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

#[cfg(test)]
mod tests {
    use serried_actor::MemoryStore;
    use serried_model::{Access, Modification, Value, Version};
    use serried_parts::encode_cell;

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
        let mut registers = Registers::new(&Settings::default());
        let (key, mut store) = (Key::from("x"), MemoryStore::default());
        for (shown, value) in [(2, "2"), (1, "2"), (3, "3"), (0, "3")] {
            assert!(registers.take_over(&key, &after(shown), &mut store), "{shown}");
            let found = registers.cells.get(&key, &store).read().value;
            assert_eq!(found, Some(Value::from(value)), "after it was shown {shown}");
        }
        assert!(!registers.take_over(&key, b"something else", &mut store));
    }
}
