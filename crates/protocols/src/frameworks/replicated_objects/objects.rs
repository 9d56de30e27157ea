//! The state machine of a replica: its objects, and the clients that wait for results.

use std::collections::VecDeque;

use serried_actor::{Context, Settings, Store};
use serried_model::{Key, NodeId};
use serried_parts::{Cells, decode_cell_of_another};

use super::message::{Answer, Message, Read, Request, Update};
use super::object::{Object, Operation};
use super::replica::Replica;
use super::state::{Executed, State};
use crate::frameworks::replicated_log::{Ballot, Chosen, StateMachine};

/// The objects, and the clients that wait for results.
#[derive(Debug)]
pub(super) struct Objects<O: Object> {
    cells: Cells<State<O>>,
    remembered_us: u64,
    /// The clients that wait, by slot, in the order of the slots.
    waiting: VecDeque<(u64, Client<O::Operation>)>,
    /// The ballot in which those slots were proposed.
    ballot: Option<Ballot>,
}

/// A client that waits.
#[derive(Debug)]
pub(super) struct Client<P> {
    pub(super) node: NodeId,
    pub(super) asked: Asked<P>,
    /// By how much its update's token is ahead of the clock, in microseconds, if the update is refused for that.
    pub(super) ahead_us: Option<i64>,
}

/// What a client has asked for.
#[derive(Debug)]
pub(super) enum Asked<P> {
    /// An operation.
    Operation(Request<P>),
    /// To read keys.
    Read(Read),
}

impl<P> Client<P> {
    pub(super) fn new(node: NodeId, request: Request<P>) -> Client<P> {
        Client { node, asked: Asked::Operation(request), ahead_us: None }
    }

    pub(super) fn reads(node: NodeId, read: Read) -> Client<P> {
        Client { node, asked: Asked::Read(read), ahead_us: None }
    }
}

impl<O: Object> Objects<O> {
    /// Objects that nothing was done to.
    pub(super) fn new(settings: &Settings) -> Objects<O> {
        Objects {
            cells: Cells::new(settings.resident_keys),
            remembered_us: settings.outcomes_ms * 1000,
            waiting: VecDeque::new(),
            ballot: None,
        }
    }

    pub(super) fn cells(&self) -> &Cells<State<O>> {
        &self.cells
    }

    pub(super) fn cells_mut(&mut self) -> &mut Cells<State<O>> {
        &mut self.cells
    }

    /// A client waits for a slot, which comes after those of the others.
    pub(super) fn wait(&mut self, slot: u64, client: Client<O::Operation>) {
        self.waiting.push_back((slot, client));
    }

    /// This replica leads in another ballot, or does not lead. Returns the clients that wait.
    pub(super) fn lead(
        &mut self,
        ballot: Option<Ballot>,
    ) -> impl Iterator<Item = Client<O::Operation>> + use<O> {
        self.ballot = ballot;
        core::mem::take(&mut self.waiting).into_iter().map(|(_, client)| client)
    }
}

impl<O: Object> StateMachine<Replica<O>> for Objects<O> {
    fn apply(
        &mut self,
        chosen: Chosen<'_, Update<O::Operation>>,
        cx: &mut Context<'_, Replica<O>>,
    ) {
        let Chosen { slot, position, entry, led_in } = chosen;
        let executed = entry.map(|update| {
            cx.charge(1);
            let state = self.cells.change(&update.key, position, cx.store());
            state.execute(slot, update, self.remembered_us)
        });
        let is_waited_for = self.waiting.front().is_some_and(|(first, _)| *first == slot);
        if !is_waited_for || led_in != self.ballot {
            return;
        }
        let (_, client) = self.waiting.pop_front().expect("a client waits");
        let Client { node, asked, ahead_us } = client;
        let request = match asked {
            Asked::Operation(request) => request,
            Asked::Read(Read { number, keys }) => {
                cx.charge(keys.len());
                let read = |key: &Key| {
                    let state = self.cells.get(key, cx.store());
                    state.object().read(&Operation::REFUSAL)
                };
                let found = keys.iter().map(read).collect();
                return cx.send(node, Message::Found { number, found });
            }
        };
        // What was proposed in this ballot is what was chosen, so this is the client's own.
        let answer = match executed {
            Some(Executed::Done(found)) => Answer::Done(found),
            Some(Executed::Refused) => Answer::ClockSkew { ahead_us: ahead_us.unwrap_or(0) },
            Some(Executed::Forgotten) => Answer::Forgotten,
            None => {
                let state = self.cells.get(&request.key, cx.store());
                Answer::Done(state.object().read(&request.operation))
            }
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
        let Some(state) = decode_cell_of_another::<State<O>>(state) else { return false };
        if state.is_as_late_as(self.cells.get(key, store)) {
            self.cells.put(key, state, store);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use serried_actor::MemoryStore;
    use serried_parts::encode_cell;

    use super::super::counter::{Count, Counter, up};
    use super::*;

    /// What a store has for a key after so many updates.
    fn after(updates: u64) -> Vec<u8> {
        let mut state = State::<Counter>::default();
        for slot in 0..updates {
            state.execute(slot, &up(slot + 1), 1000);
        }
        encode_cell(&state)
    }

    #[test]
    fn what_another_has_of_a_key_replaces_nothing_that_is_later() {
        let mut objects = Objects::<Counter>::new(&Settings::default());
        let (key, mut store) = (Key::from("x"), MemoryStore::default());
        for (shown, count) in [(2, 2), (1, 2), (3, 3), (0, 3)] {
            assert!(objects.take_over(&key, &after(shown), &mut store), "{shown}");
            let found = objects.cells.get(&key, &store).object().read(&Count::Read);
            assert_eq!(found, count, "after it was shown {shown}");
        }
        assert!(!objects.take_over(&key, b"something else", &mut store));
    }
}
