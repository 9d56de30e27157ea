//! The client side: it coordinates reads and writes.

use core::time::Duration;
use std::collections::BTreeMap;

use serried_actor::{Actor, Context, Coordinate, Group, NodeSet, Settings};
use serried_model::{
    Access, Accessed, Carstamp, Key, NodeId, Operation, Outcome, Output, Token, TxnId, Value,
};
use serried_parts::{Stamped, VersionClock};

use super::{Message, Mutation};

/// The longest wait before a request is repeated, but where a round trip takes longer.
const REPEAT_AT_MOST: Duration = Duration::from_secs(2);

/// Coordinates one client's operations.
#[derive(Debug)]
pub struct Coordinator {
    group: Group,
    clock: VersionClock,
    /// The latest timestamp that a write was given.
    latest: u64,
    /// Requests go to a majority only, the others are there if one of those does not answer.
    thrifty: bool,
    /// Who has let an operation wait since they last answered.
    slow: NodeSet,
    operations: BTreeMap<TxnId, Running>,
    mutation: Option<Mutation>,
}

/// An operation under way.
#[derive(Debug)]
struct Running {
    key: Key,
    /// What is to be written; none for a read.
    write: Option<Option<Value>>,
    phase: Phase,
    asked: NodeSet,
    replied: NodeSet,
    repeated: u32,
}

#[derive(Debug)]
enum Phase {
    /// It learns what replicas hold: the latest so far, and whether all held that.
    First { latest: Option<Stamped>, unanimous: bool },
    /// It has them hold this.
    Second(Stamped),
}

/// Repeats what an operation waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Repeat(TxnId);

type Cx<'a> = Context<'a, Coordinator>;

impl Coordinator {
    /// A coordinator for a client of `group`, which does nothing wrong but `mutation`.
    pub fn new(group: Group, settings: &Settings, mutation: Option<Mutation>) -> Coordinator {
        Coordinator {
            group,
            clock: VersionClock::default(),
            latest: 0,
            thrifty: settings.thrifty,
            slow: NodeSet::EMPTY,
            operations: BTreeMap::new(),
            mutation,
        }
    }

    fn begin(
        &mut self,
        txn: TxnId,
        key: Key,
        access: Access,
        token: Option<Token>,
        cx: &mut Cx<'_>,
    ) {
        let write = match access {
            Access::Read => None,
            Access::Write(value) => Some(value),
            Access::Modify(_) => return cx.output((txn, Output::Outcome(Outcome::NotOffered))),
        };
        let mut phase = Phase::First { latest: None, unanimous: true };
        if let Some(value) = &write {
            let id = token.map_or_else(|| self.clock.next(cx.id(), cx.clock()), |token| token.id);
            cx.output((txn, Output::Began(id)));
            if let Some(carstamp) = token.and_then(|token| token.carstamp) {
                cx.output((txn, Output::Placed(carstamp)));
                phase = Phase::Second(Stamped { value: value.clone(), carstamp });
            }
        }
        let (asked, replied) = (NodeSet::EMPTY, NodeSet::EMPTY);
        let running = Running { key, write, phase, asked, replied, repeated: 0 };
        self.operations.insert(txn, running);
        self.ask(txn, cx);
    }

    /// Begins a phase: asks all replicas, or as few as may do.
    fn ask(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(running) = self.operations.get_mut(&txn) else { return };
        let partition = self.group.partition_of(&running.key);
        running.asked = self.group.all();
        if self.thrifty {
            let nearest = || (0..self.group.size()).map(|i| self.group.choice(partition, i));
            let quick = nearest().filter(|replica| !self.slow.contains(*replica));
            let slow = nearest().filter(|replica| self.slow.contains(*replica));
            running.asked = quick.chain(slow).take(self.group.majority()).collect();
        }
        running.replied = NodeSet::EMPTY;
        running.repeated = 0;
        cx.broadcast(partition, running.asked, running.request(txn));
        cx.set_timer(Repeat(txn), patience(&self.group, 0));
    }

    /// Asks all those who have not answered, now that some of those asked should have.
    fn repeat(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(running) = self.operations.get_mut(&txn) else { return };
        self.slow = self.slow.union(running.asked.without(running.replied));
        running.asked = self.group.all();
        running.repeated += 1;
        let waiting = running.asked.without(running.replied);
        cx.broadcast(self.group.partition_of(&running.key), waiting, running.request(txn));
        cx.set_timer(Repeat(txn), patience(&self.group, running.repeated));
    }

    /// A reply to an operation's present phase, if it is its first.
    fn replied(&mut self, txn: TxnId, from: NodeId) -> Option<&mut Running> {
        self.slow = self.slow.without([from].into_iter().collect());
        let running = self.operations.get_mut(&txn)?;
        let wanted = from.partition() == self.group.partition_of(&running.key);
        (wanted && running.replied.insert(from)).then_some(running)
    }

    fn on_held(&mut self, txn: TxnId, from: NodeId, held: Stamped, cx: &mut Cx<'_>) {
        let majority = self.group.majority();
        let once = self.mutation == Some(Mutation::SecondReadRoundSkipped);
        let in_first = |running: &Running| matches!(running.phase, Phase::First { .. });
        if !self.operations.get(&txn).is_some_and(in_first) {
            return;
        }
        let Some(running) = self.replied(txn, from) else { return };
        let Phase::First { latest, unanimous } = &mut running.phase else { unreachable!("seen") };
        match latest {
            Some(latest) if latest.carstamp == held.carstamp => {}
            Some(latest) => {
                *unanimous = false;
                if latest.carstamp < held.carstamp {
                    *latest = held;
                }
            }
            None => *latest = Some(held),
        }
        if running.replied.len() < majority {
            return;
        }
        let (latest, unanimous) = (latest.take().expect("it is there"), *unanimous || once);
        let second = match running.write.clone() {
            None if unanimous => return self.finish(txn, latest, cx),
            None => latest,
            Some(value) => {
                // Of two writes that found the same, one has to be later.
                self.latest = self.latest.max(latest.carstamp.timestamp) + 1;
                let carstamp = Carstamp { timestamp: self.latest, writer: cx.id(), rmwc: 0 };
                cx.output((txn, Output::Placed(carstamp)));
                Stamped { value, carstamp }
            }
        };
        let running = self.operations.get_mut(&txn).expect("an operation that goes on");
        running.phase = Phase::Second(second);
        self.ask(txn, cx);
    }

    fn on_applied(&mut self, txn: TxnId, from: NodeId, cx: &mut Cx<'_>) {
        let majority = match self.mutation {
            Some(Mutation::WriteAcknowledgedByOne) => 1,
            _ => self.group.majority(),
        };
        let in_second = |running: &Running| matches!(running.phase, Phase::Second(_));
        if !self.operations.get(&txn).is_some_and(in_second) {
            return;
        }
        let Some(running) = self.replied(txn, from) else { return };
        let Phase::Second(stamped) = &running.phase else { unreachable!("seen") };
        if running.replied.len() == majority {
            let stamped = stamped.clone();
            self.finish(txn, stamped, cx);
        }
    }

    fn give_up(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(running) = self.operations.remove(&txn) else { return };
        cx.cancel_timer(Repeat(txn));
        // A write that has no place yet is nowhere.
        let outcome = match running.phase {
            Phase::Second(_) if running.write.is_some() => Outcome::Unknown,
            _ => Outcome::Aborted { conflicts: Vec::new() },
        };
        cx.output((txn, Output::Outcome(outcome)));
    }

    fn finish(&mut self, txn: TxnId, stamped: Stamped, cx: &mut Cx<'_>) {
        let running = self.operations.remove(&txn).expect("an operation that ends");
        cx.cancel_timer(Repeat(txn));
        let found = if running.write.is_none() { stamped.value } else { None };
        let accessed = Accessed { found, carstamp: stamped.carstamp };
        cx.output((txn, Output::Accessed(accessed)));
        cx.output((txn, Output::Outcome(Outcome::Committed)));
    }
}

impl Running {
    /// What it asks replicas in its present phase.
    fn request(&self, txn: TxnId) -> Message {
        let (request, key) = (txn.0, self.key.clone());
        match &self.phase {
            Phase::Second(stamped) => Message::Apply { request, key, stamped: stamped.clone() },
            Phase::First { .. } if self.write.is_some() => Message::Write1 { request, key },
            Phase::First { .. } => Message::Read1 { request, key },
        }
    }
}

/// How long to wait for the answer to a request that was repeated `times` times before repeating it
/// again.
fn patience(group: &Group, times: u32) -> Duration {
    let first = 2 * group.round_trip() + Duration::from_millis(20);
    (first * (1 << times.min(10))).min(first.max(REPEAT_AT_MOST))
}

impl Actor for Coordinator {
    type Message = Message;
    type Timer = Repeat;
    type Record = ();
    type Output = (TxnId, Output);

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        match message {
            Message::Read1Reply { request, held } => self.on_held(TxnId(request), from, held, cx),
            Message::Write1Reply { request, carstamp } => {
                let held = Stamped { value: None, carstamp };
                self.on_held(TxnId(request), from, held, cx);
            }
            Message::Applied { request } => self.on_applied(TxnId(request), from, cx),
            // No replica sends a client anything else.
            _ => {}
        }
    }

    fn on_timer(&mut self, Repeat(txn): Repeat, cx: &mut Cx<'_>) {
        self.repeat(txn, cx);
    }
}

impl Coordinate for Coordinator {
    fn on_operation(&mut self, txn: TxnId, operation: Operation, cx: &mut Cx<'_>) {
        match operation {
            Operation::Access { key, access, token } => self.begin(txn, key, access, token, cx),
            Operation::Rollback => self.give_up(txn, cx),
            _ => unreachable!("a keyspace of registers has no transactions"),
        }
    }
}
