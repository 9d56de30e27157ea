//! Coordinators at a client, with their types erased.

use std::any::Any;
use std::sync::Arc;

use serried_actor::{
    Coordinate, Durable, Group, Malformed, MemoryStore, Protocol, Settings, Timestamp, Wire,
};
use serried_model::{Family, NodeId, TxnId};
use serried_protocols::{Catalogue, Erase};
use serried_wire::{Driven, ErasedActor, Host, Moment, Outbox, Role};

use crate::desk::Desk;
use crate::side::ClientSide;

/// A keyspace's coordinator.
pub(crate) trait ErasedCoordinator: ErasedActor<ClientSide> {
    /// Handles the operations that sessions have put down at its desk.
    fn on_operations(&mut self, moment: Moment, out: &mut Outbox<'_, ClientSide>);
}

/// The protocols that a client has, by name.
pub type Coordinators = Catalogue<MakeCoordinator>;

/// A [`Desk`] of any family.
pub(crate) type AnyDesk = Arc<dyn Any + Send + Sync>;

/// Makes a coordinator whose desk has room for so many recipients. The desk is a [`Desk`] of the protocol's family.
type Make = fn(Group, &Settings, Role, usize) -> (Box<dyn ErasedCoordinator>, AnyDesk);

/// Makes the coordinators of one protocol.
#[derive(Clone, Copy, Debug)]
pub struct MakeCoordinator(pub(crate) Make);

impl Erase for MakeCoordinator {
    fn of<P: Protocol>() -> Self {
        MakeCoordinator(|group, settings, role, capacity| {
            let desk = Arc::new(Desk::<P::Family>::new(P::OFFERS, capacity));
            let delivery = Delivery { desk: desk.clone(), store: MemoryStore::default() };
            let driven = Driven::new(P::coordinator(group, settings), role, delivery);
            let operations = Vec::new();
            (Box::new(Coordinating { driven, desk: desk.clone(), operations }), desk)
        })
    }
}

/// Delivers the outputs of a coordinator, which keeps nothing on a disk.
struct Delivery<F: Family> {
    desk: Arc<Desk<F>>,
    store: MemoryStore,
}

impl<F: Family, A: Coordinate<F>> Host<A> for Delivery<F> {
    type Side = ClientSide;

    fn durable(&mut self, _: u64) -> Durable<'_> {
        Durable { store: &mut self.store, log_position: 0, durable_position: u64::MAX }
    }

    fn output(&mut self, (txn, output): (TxnId, F::Output)) {
        self.desk.deliver(txn, output);
    }
}

/// A coordinator and the desk of its sessions.
struct Coordinating<F: Family, A: Coordinate<F>> {
    driven: Driven<A, Delivery<F>>,
    desk: Arc<Desk<F>>,
    /// A buffer, empty between events.
    operations: Vec<(TxnId, F::Operation)>,
}

impl<F: Family, A: Coordinate<F>> ErasedActor<ClientSide> for Coordinating<F, A> {
    fn start(&mut self, moment: Moment, out: &mut Outbox<'_, ClientSide>) {
        self.driven.step(moment, out, |actor, cx| actor.on_start(cx));
    }

    fn on_message(
        &mut self,
        from: NodeId,
        message: &[u8],
        moment: Moment,
        out: &mut Outbox<'_, ClientSide>,
    ) -> Result<(), Malformed> {
        let message = A::Message::decode(message)?;
        self.driven.step(moment, out, |actor, cx| actor.on_message(from, message, cx));
        Ok(())
    }

    fn fire_timers(&mut self, moment: Moment, out: &mut Outbox<'_, ClientSide>) {
        self.driven.fire(moment, out);
    }

    fn next_timer(&mut self) -> Option<Timestamp> {
        self.driven.next_timer()
    }
}

impl<F: Family, A: Coordinate<F>> ErasedCoordinator for Coordinating<F, A> {
    fn on_operations(&mut self, moment: Moment, out: &mut Outbox<'_, ClientSide>) {
        let Coordinating { driven, desk, operations } = self;
        driven.step(moment, out, |actor, cx| {
            desk.take(operations);
            for (txn, operation) in operations.drain(..) {
                actor.on_operation(txn, operation, cx);
            }
            actor.on_batch_end(cx);
        });
    }
}
