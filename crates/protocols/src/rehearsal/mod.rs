//! Stored procedures on one replica, for tests of what is built on this family. It is not in the registry.
//!
//! ```text
//! coordinator ──Request──▶ member 0 of partition 0 ──Reply──▶ coordinator
//! ```
//!
//! The other replicas do nothing. The one replica executes each call atomically, on rows in memory, and remembers every
//! outcome. Its records are the requests that it has executed, so a restart repeats them. Requests are repeated until they
//! are answered, and executed once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serried_actor::{Actor, Context, Coordinate, Group, Protocol, Recover, Settings, Store};
use serried_model::{Guarantee, NodeId, TxnId, Version};
use serried_parts::VersionClock;
use serried_procedures::{
    Call, Datum, Offers, Operation, Outcome, Output, ProcedureSet, Procedures, Registration,
    Results, RowStore, StoredRow,
};

use crate::Mutated;

/// The protocol.
#[derive(Debug)]
pub struct Rehearsal;

impl Protocol for Rehearsal {
    const NAME: &'static str = "rehearsal";
    const SUMMARY: &'static str = "procedures on one replica, for tests";
    const GUARANTEE: Guarantee = Guarantee::StrictSerializable;
    type Family = Procedures;
    const OFFERS: Offers = Offers { merged: true };
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(_: Group, _: &Settings) -> Coordinator {
        Coordinator::default()
    }

    fn replica(_: NodeId, _: Group, _: &Settings) -> Replica {
        Replica::default()
    }
}

/// A variant with a mistake, for tests of checkers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// Every seventh call writes nothing, and is acknowledged all the same.
    WritesForgotten,
}

/// What participants exchange.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// A request of a session, with the number of its recipient.
    Request(u64, Request),
    /// The answer.
    Reply(u64, Reply),
}

/// A request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// A call.
    Call {
        /// Its id.
        id: Version,
        /// The procedure.
        procedure: String,
        /// The inputs.
        inputs: Vec<Datum>,
    },
    /// How did this call end? If it has not begun, it never will.
    Inquire(Version),
    /// A registration.
    Register {
        /// Its id.
        id: Version,
        /// The set.
        set: Arc<ProcedureSet>,
        /// The version that it replaces.
        replaces: Option<u64>,
    },
    /// Which set is registered?
    List,
}

/// An answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// To a call or an inquiry.
    Outcome(Outcome),
    /// To a registration.
    Registered(Registration),
    /// To a list.
    Set(u64, Arc<ProcedureSet>),
}

/// How long to wait for an answer.
const PATIENCE: Duration = Duration::from_millis(500);

fn server() -> NodeId {
    NodeId::replica(0, 0)
}

/// The client side.
#[derive(Debug, Default)]
pub struct Coordinator {
    clock: VersionClock,
    open: BTreeMap<TxnId, Request>,
}

/// Repeats a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Repeat(TxnId);

impl Actor for Coordinator {
    type Message = Message;
    type Timer = Repeat;
    type Record = ();
    type Output = (TxnId, Output);

    fn on_message(&mut self, _: NodeId, message: Message, cx: &mut Context<'_, Self>) {
        let Message::Reply(txn, reply) = message else { return };
        let txn = TxnId(txn);
        if self.open.remove(&txn).is_none() {
            return; // late: it was answered or given up
        }
        cx.cancel_timer(Repeat(txn));
        let output = match reply {
            Reply::Outcome(outcome) => Output::Outcome(outcome),
            Reply::Registered(registration) => Output::Registered(registration),
            Reply::Set(version, set) => Output::Set(version, set),
        };
        cx.output((txn, output));
    }

    fn on_timer(&mut self, Repeat(txn): Repeat, cx: &mut Context<'_, Self>) {
        if let Some(request) = self.open.get(&txn) {
            cx.send(server(), Message::Request(txn.0, request.clone()));
            cx.set_timer(Repeat(txn), PATIENCE);
        }
    }
}

impl Coordinate<Procedures> for Coordinator {
    fn on_operation(&mut self, txn: TxnId, operation: Operation, cx: &mut Context<'_, Self>) {
        let request = match operation {
            Operation::Call { procedure, inputs, .. } => {
                let id = self.clock.next(cx.id(), cx.clock());
                cx.output((txn, Output::Began(id)));
                Request::Call { id, procedure: procedure.to_string(), inputs }
            }
            Operation::Inquire { call } => Request::Inquire(call),
            Operation::Register { set, replaces } => {
                let id = self.clock.next(cx.id(), cx.clock());
                Request::Register { id, set, replaces }
            }
            Operation::List => Request::List,
            Operation::GiveUp => {
                if let Some(Request::Call { .. }) = self.open.remove(&txn) {
                    cx.output((txn, Output::Outcome(Outcome::Unknown)));
                }
                return cx.cancel_timer(Repeat(txn));
            }
        };
        self.open.insert(txn, request);
        self.on_timer(Repeat(txn), cx);
    }
}

/// The server side.
#[derive(Debug, Default)]
pub struct Replica {
    state: State,
}

/// What requests make of nothing.
#[derive(Debug)]
struct State {
    version: u64,
    set: Arc<ProcedureSet>,
    rows: Rows,
    replies: BTreeMap<Version, Reply>,
    mutation: Mutated<Mutation>,
}

impl Default for State {
    fn default() -> State {
        let (set, rows, replies) = (Arc::default(), Rows::default(), BTreeMap::new());
        State { version: 0, set, rows, replies, mutation: Mutated::NONE }
    }
}

#[derive(Debug, Default)]
struct Rows(BTreeMap<(u16, Vec<Datum>), StoredRow>);

impl RowStore for Rows {
    fn read(&mut self, table: u16, key: &[Datum]) -> Option<StoredRow> {
        self.0.get(&(table, key.to_vec())).cloned()
    }

    fn write(&mut self, table: u16, key: &[Datum], row: StoredRow) {
        self.0.insert((table, key.to_vec()), row);
    }

    fn delete(&mut self, table: u16, key: &[Datum]) {
        self.0.remove(&(table, key.to_vec()));
    }
}

/// Rows that forget what is written.
struct Forgetful<'a>(&'a mut Rows);

impl RowStore for Forgetful<'_> {
    fn read(&mut self, table: u16, key: &[Datum]) -> Option<StoredRow> {
        self.0.read(table, key)
    }

    fn write(&mut self, _: u16, _: &[Datum], _: StoredRow) {}

    fn delete(&mut self, _: u16, _: &[Datum]) {}
}

impl State {
    fn execute(&mut self, request: &Request) -> Reply {
        match request {
            Request::Call { id, procedure, inputs } => {
                let reply = Reply::Outcome(self.call(procedure, inputs));
                self.replies.insert(*id, reply.clone());
                reply
            }
            Request::Inquire(id) => {
                let never = Reply::Outcome(Outcome::NoEffect);
                self.replies.entry(*id).or_insert(never).clone()
            }
            Request::Register { id, set, replaces } => {
                let version = self.version;
                let registration = match replaces {
                    Some(replaces) if *replaces != version => Registration::Superseded { version },
                    _ if version > 0 && !set.tables.starts_with(&self.set.tables) => {
                        Registration::Unfit("a table is missing or is another".to_owned())
                    }
                    _ => {
                        (self.version, self.set) = (version + 1, set.clone());
                        Registration::InUse { version: version + 1 }
                    }
                };
                let reply = Reply::Registered(registration);
                self.replies.insert(*id, reply.clone());
                reply
            }
            Request::List => Reply::Set(self.version, self.set.clone()),
        }
    }

    fn call(&mut self, name: &str, inputs: &[Datum]) -> Outcome {
        let set = self.set.clone();
        let Some(procedure) = set.procedures.iter().find(|procedure| procedure.name == name) else {
            let known = set.procedures.iter().map(|procedure| procedure.name.clone()).collect();
            return Outcome::NoSuchProcedure { version: self.version, known };
        };
        let mut call = match Call::new(procedure, inputs.to_vec()) {
            Ok(call) => call,
            Err(invalid) => return Outcome::InvalidInputs(invalid),
        };
        let forgets =
            self.mutation.is(Mutation::WritesForgotten) && self.replies.len().is_multiple_of(7);
        while !call.has_executed_all() {
            let started = match call.start(procedure) {
                Ok(started) => started,
                Err(refused) => return Outcome::Refused(refused),
            };
            for start in started {
                let piece = &procedure.pieces[usize::from(start.piece.0)];
                let rows: &mut dyn RowStore =
                    if forgets { &mut Forgetful(&mut self.rows) } else { &mut self.rows };
                let outputs = match piece.execute(&set.tables, &start.arguments, rows) {
                    Ok(outputs) => outputs,
                    Err(refused) => return Outcome::Refused(refused),
                };
                call.executed(procedure, (start.piece, start.occurrence), outputs)
                    .expect("a body returns outputs of its types");
            }
        }
        match call.results(procedure) {
            Ok(data) => {
                let fields = procedure.returns.iter().map(|returned| returned.field.clone());
                Outcome::Done(Results { fields: fields.collect(), data })
            }
            Err(refused) => Outcome::Refused(refused),
        }
    }
}

impl Actor for Replica {
    type Message = Message;
    type Timer = ();
    type Record = Request;
    type Output = ();

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Context<'_, Self>) {
        let Message::Request(txn, request) = message else { return };
        let answered = match &request {
            Request::Call { id, .. } | Request::Register { id, .. } | Request::Inquire(id) => {
                self.state.replies.get(id).cloned()
            }
            Request::List => None,
        };
        let reply = answered.unwrap_or_else(|| {
            if request != Request::List {
                cx.append(request.clone());
            }
            self.state.execute(&request)
        });
        cx.send(from, Message::Reply(txn, reply));
    }

    fn on_timer(&mut self, (): (), _: &mut Context<'_, Self>) {}
}

impl Recover for Replica {
    fn replay(&mut self, request: Request, _: &mut dyn Store) {
        self.state.execute(&request);
    }

    fn rejoin(&mut self, _: &mut Context<'_, Self>) {
        panic!("the one replica can't be replaced");
    }
}

/// The protocol with the mistake [`Mutation::WritesForgotten`].
#[cfg(feature = "mutations")]
#[derive(Debug)]
pub struct Forgetting;

#[cfg(feature = "mutations")]
impl Protocol for Forgetting {
    const NAME: &'static str = "forgetting";
    const SUMMARY: &'static str = Rehearsal::SUMMARY;
    const GUARANTEE: Guarantee = Rehearsal::GUARANTEE;
    type Family = Procedures;
    const OFFERS: Offers = Offers { merged: true };
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, settings: &Settings) -> Coordinator {
        Rehearsal::coordinator(group, settings)
    }

    fn replica(_: NodeId, _: Group, _: &Settings) -> Replica {
        let mutation = Mutated::by(Mutation::WritesForgotten);
        Replica { state: State { mutation, ..State::default() } }
    }
}
