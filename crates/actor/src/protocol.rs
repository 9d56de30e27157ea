//! What a protocol consists of.

use core::fmt::Debug;

use serried_model::{Family, Guarantee, NodeId, TxnId, Value};

use crate::{Contention, Context, Group, Settings, Standing, Store, Wire};

/// A pure state machine that handles one event at a time.
///
/// Handlers return nothing. The driver drops malformed messages. An operating error is a message to the participants
/// concerned. A broken invariant panics with the transaction's version.
pub trait Actor: Sized + Send + 'static {
    /// The messages that it exchanges with other participants.
    type Message: Wire;
    /// The names of its timers. Setting a timer that is set already moves it.
    type Timer: Copy + Ord + Debug + Send + 'static;
    /// The records that it makes durable.
    type Record: Wire;
    /// Its outputs to the driver.
    type Output: Debug + Send + 'static;

    /// The node has started, for the first time or after a crash. After a crash its records have been replayed.
    fn on_start(&mut self, _cx: &mut Context<'_, Self>) {}

    /// A message has arrived.
    fn on_message(&mut self, from: NodeId, message: Self::Message, cx: &mut Context<'_, Self>);

    /// A message has arrived while the log can't be written, mostly because the disk is full. The actor answers it with
    /// [`Context::send_before_durable`] if the answer depends on nothing that is not durable yet and changes no state.
    /// Otherwise the message is lost. Returns whether it was answered.
    fn on_message_read_only(
        &mut self,
        _from: NodeId,
        _message: Self::Message,
        _cx: &mut Context<'_, Self>,
    ) -> bool {
        false
    }

    /// A timer is due.
    fn on_timer(&mut self, timer: Self::Timer, cx: &mut Context<'_, Self>);

    /// Everything is durable that had been appended when the actor called [`Context::await_durable`]. If it called that
    /// several times since the last [`Actor::on_durable`], the first call counts.
    fn on_durable(&mut self, _cx: &mut Context<'_, Self>) {}

    /// Passes numbers that interest an operator to `each`: their names, which become names of metrics, and their
    /// values.
    fn gauges(&self, _each: &mut dyn FnMut(&'static str, u64)) {}
}

/// A client-side actor: it carries out the requests of one client's sessions.
pub trait Coordinate<F: Family>: Actor<Output = (TxnId, F::Output)> {
    /// The session `txn` requests `operation`. Answers are outputs that name the session.
    fn on_operation(&mut self, txn: TxnId, operation: F::Operation, cx: &mut Context<'_, Self>);

    /// All operations that were requested together have been passed on, so their messages can leave together.
    fn on_batch_end(&mut self, _cx: &mut Context<'_, Self>) {}
}

/// A server-side actor. It has durable records, and can rebuild its memory from them.
pub trait Recover: Actor {
    /// Replays one record that was appended before a crash. Records come in the order in which they were appended, from
    /// the position that the log was trimmed to. Nothing can be sent from here.
    fn replay(&mut self, record: Self::Record, store: &mut dyn Store);

    /// The node has started for the first time, in place of a node whose disk was lost. It must not break promises of
    /// the other node, although it does not know them. So it takes part in nothing that the other node may have taken
    /// part in. [`Actor::on_start`] follows.
    fn rejoin(&mut self, cx: &mut Context<'_, Self>);

    /// The node is about to stop. The replica should hand over the tasks that only it has, such as leading a partition.
    /// Messages still arrive until [`Recover::may_stop`] returns true, or the node has waited for too long.
    fn on_stop(&mut self, _cx: &mut Context<'_, Self>) {}

    /// Whether the replica may stop now: the others can continue without it at once.
    fn may_stop(&self) -> bool {
        true
    }

    /// How far the replica takes part. Operators need this before they stop another replica.
    fn standing(&self) -> Standing {
        Standing::Full
    }

    /// The stored form of a value that exists before the first transaction.
    fn stored(value: &Value) -> Vec<u8> {
        value.as_bytes().to_vec()
    }
}

/// A protocol: its two actors, and the guarantee that they give together.
pub trait Protocol: 'static {
    /// Its name in configurations, on the command line and in reports.
    const NAME: &'static str;
    /// One line on what it does.
    const SUMMARY: &'static str;
    /// Its guarantee, which determines the checker of its histories.
    const GUARANTEE: Guarantee;
    /// The family of its keyspaces.
    type Family: Family;
    /// Which optional operations it offers.
    const OFFERS: <Self::Family as Family>::Offers;
    /// Whether each partition has a leader. Then the gauge `leads` of a replica is 1 if it leads, and 0 otherwise.
    const HAS_LEADERS: bool = false;
    /// Whether each partition is on all nodes. Otherwise each is on one of them, and is lost with the node's disk.
    const KEEPS_COPIES: bool = true;
    /// Whether replicas forget the results of updates by the clocks of clients. Then each update has a token with the time of
    /// its client's clock, and its result is forgotten when another update has a token that is later by more than
    /// [`Settings::outcomes_ms`]. Tokens as early as that are not executed any more, because they may have been executed.
    ///
    /// For such a protocol `outcomes_ms` has to exceed the differences that are allowed between the clocks of clients.
    /// Otherwise a new update of a client whose clock is behind looks like an old one. So nodes check the configuration.
    const FORGETS_BY_CLIENT_CLOCKS: bool = false;
    /// Whether its order of transactions agrees with real time only if clocks are within [`Settings::uncertainty_us`] of it.
    /// Otherwise a transaction may not see what another one wrote that ended shortly before. All else holds whatever clocks
    /// show.
    const RELIES_ON_CLOCKS: bool = false;
    /// The first format of data directories whose records it can read: what `format` was in a directory's
    /// `identity.toml` when its records took their present form. Nodes refuse earlier data by name.
    const FIRST_FORMAT: u32 = 1;
    /// What it does with hot keys. `None` if nothing is known of that: then no advice names it.
    const CONTENTION: Option<Contention> = None;
    /// The messages that its actors exchange.
    type Message: Wire;
    /// The client side.
    type Coordinator: Coordinate<Self::Family, Message = Self::Message>;
    /// The server side.
    type Replica: Recover<Message = Self::Message>;

    /// A coordinator for a client of `group`.
    fn coordinator(group: Group, settings: &Settings) -> Self::Coordinator;

    /// The replica `id` of `group`, without any data.
    fn replica(id: NodeId, group: Group, settings: &Settings) -> Self::Replica;
}
