//! What a protocol is.

use core::fmt::Debug;

use serried_model::{Family, Guarantee, NodeId, TxnId, Value};

use crate::{Context, Group, Settings, Standing, Store, Wire};

/// A pure state machine that handles one event at a time.
///
/// Handlers return nothing. A malformed message stops in the driver, an operating error is a message
/// to the participants concerned, and a broken invariant panics with the transaction's version.
pub trait Actor: Sized + Send + 'static {
    /// What it exchanges with the other participants.
    type Message: Wire;
    /// Names its timers. Setting a timer that is set already moves it.
    type Timer: Copy + Ord + Debug + Send + 'static;
    /// What it makes durable.
    type Record: Wire;
    /// What it tells its driver.
    type Output: Debug + Send + 'static;

    /// The node has started, or has started again after a crash and has been given its records back.
    fn on_start(&mut self, _cx: &mut Context<'_, Self>) {}

    /// A message has arrived.
    fn on_message(&mut self, from: NodeId, message: Self::Message, cx: &mut Context<'_, Self>);

    /// A message has arrived while the log can't be written, for want of room mostly. Answers it, with
    /// [`Context::send_before_durable`], if that neither rests on what is not durable yet nor leaves
    /// anything behind; else it is lost. Returns whether it was answered.
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

    /// Everything is durable that had been appended when the actor first called [`Context::await_durable`] since the last time
    /// that this was called.
    fn on_durable(&mut self, _cx: &mut Context<'_, Self>) {}

    /// Shows what an operator may want to know of its state: names, in the words of metrics, and values.
    fn gauges(&self, _each: &mut dyn FnMut(&'static str, u64)) {}
}

/// A client-side actor: it carries out what the sessions of one client ask for.
pub trait Coordinate<F: Family>: Actor<Output = (TxnId, F::Output)> {
    /// The session `txn` asks for `operation`. Answers are outputs that name the session.
    fn on_operation(&mut self, txn: TxnId, operation: F::Operation, cx: &mut Context<'_, Self>);

    /// All operations that were requested together have been handed over: their messages can leave together.
    fn on_batch_end(&mut self, _cx: &mut Context<'_, Self>) {}
}

/// A server-side actor: it has durable records, and its memory can be rebuilt from them.
pub trait Recover: Actor {
    /// Takes back one record that it appended before a crash. Records come in the order in which
    /// they were appended, from where the log was trimmed; nothing can be sent from here.
    fn replay(&mut self, record: Self::Record, store: &mut dyn Store);

    /// The node has started for the first time, in the place of one whose disk was lost. It must break
    /// no promise that the other made, which it does not know: it takes part in nothing in which the
    /// other may have. [`Actor::on_start`] follows.
    fn rejoin(&mut self, cx: &mut Context<'_, Self>);

    /// The node is about to stop. The replica should hand over what only it does, such as leading a partition. Messages
    /// still arrive until [`Recover::may_stop`] returns true, or the node has waited for too long.
    fn on_stop(&mut self, _cx: &mut Context<'_, Self>) {}

    /// Whether the replica may stop now, because the others can do without it at once.
    fn may_stop(&self) -> bool {
        true
    }

    /// How far the replica takes part. Operators need this before they stop another replica.
    fn standing(&self) -> Standing {
        Standing::Full
    }

    /// How a value that is there before the first transaction lies in the store.
    fn stored(value: &Value) -> Vec<u8> {
        value.as_bytes().to_vec()
    }
}

/// A protocol: its two actors, and what they promise together.
pub trait Protocol: 'static {
    /// Its name in configurations, on the command line and in reports.
    const NAME: &'static str;
    /// One line on what it does.
    const SUMMARY: &'static str;
    /// What it promises; it chooses the checker that judges its histories.
    const GUARANTEE: Guarantee;
    /// What can be asked of its keyspaces.
    type Family: Family;
    /// Which of that it has a way for.
    const OFFERS: <Self::Family as Family>::Offers;
    /// What its actors exchange.
    type Message: Wire;
    /// The client side.
    type Coordinator: Coordinate<Self::Family, Message = Self::Message>;
    /// The server side.
    type Replica: Recover<Message = Self::Message>;

    /// A coordinator for a client of `group`.
    fn coordinator(group: Group, settings: &Settings) -> Self::Coordinator;

    /// The replica of `group` that is called `id`, empty.
    fn replica(id: NodeId, group: Group, settings: &Settings) -> Self::Replica;
}
