//! Replicas at a node, with their types erased, and what the node keeps for each.

use serried_actor::{
    Actor, Durable, Group, Malformed, MemoryStore, Protocol, Recover, Standing, Store, Timestamp,
    Wire,
};
use serried_model::NodeId;
use serried_protocols::{Catalogue, Erase};
use serried_wire::{Driven, ErasedActor, Host, Moment, Outbox, Role};

use crate::configuration::KeyspaceConfiguration;
use crate::durable::{Batch, Opened, PartitionLog};
use crate::durable_position::DurablePosition;
use crate::durable_standing::DurableStanding;
use crate::metrics::PartitionCounts;
use crate::side::NodeSide;

/// The replica of a partition.
pub(crate) trait ErasedReplica: ErasedActor<NodeSide> {
    /// The node is about to stop.
    fn prepare_to_stop(&mut self, moment: Moment, out: &mut Outbox<'_, NodeSide>);

    /// Whether it may stop now.
    fn may_stop(&self) -> bool;

    /// What it has appended to its log since the last time.
    fn take_batch(&mut self) -> Option<Box<dyn Batch>>;

    /// Everything up to this flush is durable.
    fn on_flushed(&mut self, flushed: u64, moment: Moment, out: &mut Outbox<'_, NodeSide>);

    /// What it has counted so far.
    fn counts(&self) -> PartitionCounts;

    /// What it shows of its state.
    fn gauges(&self) -> Vec<(&'static str, u64)>;

    /// How far it takes part, if everything up to this flush is durable, and when it last took part fully.
    fn standing(&self, flushed: u64) -> (Standing, Timestamp);

    /// Whether it appends to a log.
    fn is_durable(&self) -> bool;
}

/// The protocols that a node has, by name.
pub type Replicas = Catalogue<MakeReplica>;

/// Makes a replica, with the state that its disk has if it has one, or says what is wrong with the disk.
type Make = fn(
    Group,
    &KeyspaceConfiguration,
    Role,
    Option<Opened>,
) -> Result<Box<dyn ErasedReplica>, String>;

/// Makes the replicas of one protocol.
#[derive(Clone, Copy, Debug)]
pub struct MakeReplica(pub(crate) Make);

impl Erase for MakeReplica {
    fn of<P: Protocol>() -> Self {
        MakeReplica(|group, keyspace, role, disk| {
            let mut actor = P::replica(role.id, group, &keyspace.settings);
            let mut kept = Kept::new(role.id, &keyspace.name);
            let mut rejoins = false;
            if let Some(opened) = disk {
                let is_new = opened.rejoins;
                kept.open(opened, &mut actor)?;
                // With an empty log, it is not known what the replica had begun before it went down.
                rejoins = is_new && kept.log_position == 0;
            }
            Ok(Box::new(Replicating { driven: Driven::new(actor, role, kept), rejoins }))
        })
    }
}

/// What a node keeps for a replica.
struct Kept {
    id: NodeId,
    /// The name of its keyspace.
    keyspace: String,
    store: Box<dyn Store>,
    /// None where a record is durable as soon as it is appended.
    log: Option<Box<dyn PartitionLog>>,
    log_position: u64,
    /// The flush that makes everything durable that it has appended.
    after: u64,
    /// The flush after which [`Actor::on_durable`] is called, if the replica awaits that.
    awaited: Option<u64>,
    /// Whether it has asked for that in the present event.
    awaits_durable: bool,
    counts: PartitionCounts,
    durable_position: DurablePosition,
    durable_standing: DurableStanding,
    /// When it last took part fully.
    full_at: Timestamp,
    /// Whether it has not taken part fully, and that it does again is not logged yet.
    was_behind: bool,
}

impl Kept {
    fn new(id: NodeId, keyspace: &str) -> Kept {
        Kept {
            id,
            keyspace: keyspace.to_string(),
            store: Box::new(MemoryStore::of_run()),
            log: None,
            log_position: 0,
            after: 0,
            awaited: None,
            awaits_durable: false,
            counts: PartitionCounts::default(),
            durable_position: DurablePosition::default(),
            durable_standing: DurableStanding::new(),
            full_at: Timestamp(0),
            was_behind: false,
        }
    }

    /// Takes a disk, and replays its log into `actor`.
    fn open<A: Recover>(&mut self, opened: Opened, actor: &mut A) -> Result<(), String> {
        let Opened { mut log, mut store, .. } = opened;
        self.log_position = log.replay(&mut |position, record| {
            let record = A::Record::decode(record)
                .map_err(|error| format!("record {position} is {error}"))?;
            actor.replay(record, store.as_mut());
            Ok(())
        })?;
        (self.log, self.store) = (Some(log), store);
        Ok(())
    }
}

impl<A: Recover> Host<A> for Kept {
    type Side = NodeSide;

    fn durable(&mut self, flushed: u64) -> Durable<'_> {
        let log_position = self.log_position;
        let durable_position = match &self.log {
            Some(_) => self.durable_position.get(flushed, log_position),
            None => u64::MAX,
        };
        Durable { store: self.store.as_mut(), log_position, durable_position }
    }

    fn handled(&mut self, log_position: u64, awaits_durable: bool) {
        self.log_position = log_position;
        self.awaits_durable = awaits_durable;
    }

    fn append(&mut self, record: A::Record, side: &mut NodeSide) {
        self.counts.appends += 1;
        if let Some(log) = &mut self.log {
            let appended_bytes = &mut self.counts.appended_bytes;
            log.append(&mut |bytes| {
                let before = bytes.len();
                record.encode(bytes);
                *appended_bytes += (bytes.len() - before) as u64;
            });
            self.after = side.flushing.request();
            self.durable_position.note(self.after, self.log_position);
        }
    }

    fn trim(&mut self, position: u64, side: &mut NodeSide) {
        if let Some(log) = &mut self.log {
            log.trim(position);
            side.flushing.request();
        }
    }

    fn flush(&self) -> u64 {
        self.after
    }

    fn hurry(&mut self, side: &mut NodeSide) {
        side.flushing.hurry(self.after);
    }

    /// Notes the flush that the replica awaits, since the log has everything that it has appended.
    fn carried_out(&mut self, side: &mut NodeSide) {
        if core::mem::take(&mut self.awaits_durable) {
            self.awaited.get_or_insert(self.after);
            side.flushing.hurry(self.after);
        }
    }

    fn finished(&mut self, actor: &A, now: Timestamp, flushed: u64) {
        let standing = actor.standing();
        self.durable_standing.note(standing, self.after);
        let is_full = self.durable_standing.get(flushed) == Standing::Full;
        if is_full {
            self.full_at = now;
        }
        if is_full && core::mem::take(&mut self.was_behind) {
            tracing::info!(replica = %self.id, keyspace = self.keyspace, "takes part fully again");
        }
        self.was_behind |= standing != Standing::Full;
    }

    fn output(&mut self, output: A::Output) {
        tracing::debug!(?output, "replica");
    }
}

/// A replica with what the node keeps for it.
struct Replicating<A: Recover> {
    driven: Driven<A, Kept>,
    /// Whether the replica takes the place of one whose disk was lost.
    rejoins: bool,
}

impl<A: Recover> ErasedActor<NodeSide> for Replicating<A> {
    fn start(&mut self, moment: Moment, out: &mut Outbox<'_, NodeSide>) {
        let rejoins = self.rejoins;
        self.driven.step(moment, out, |actor, cx| {
            if rejoins {
                actor.rejoin(cx);
            }
            actor.on_start(cx);
        });
    }

    fn on_message(
        &mut self,
        from: NodeId,
        message: &[u8],
        moment: Moment,
        out: &mut Outbox<'_, NodeSide>,
    ) -> Result<(), Malformed> {
        let message = A::Message::decode(message)?;
        self.driven.host.counts.messages_received += 1;
        if out.side.flushing.obstacle.is_none() {
            self.driven.step(moment, out, |actor, cx| actor.on_message(from, message, cx));
            return Ok(());
        }
        // An answer could not leave before the log is written again, and would use up memory.
        let mut answered = false;
        self.driven.step(moment, out, |actor, cx| {
            answered = actor.on_message_read_only(from, message, cx);
        });
        out.links.counters.messages_dropped += u64::from(!answered);
        Ok(())
    }

    fn fire_timers(&mut self, moment: Moment, out: &mut Outbox<'_, NodeSide>) {
        self.driven.fire(moment, out);
    }

    fn next_timer(&mut self) -> Option<Timestamp> {
        self.driven.next_timer()
    }
}

impl<A: Recover> ErasedReplica for Replicating<A> {
    fn prepare_to_stop(&mut self, moment: Moment, out: &mut Outbox<'_, NodeSide>) {
        self.driven.step(moment, out, |actor, cx| actor.on_stop(cx));
    }

    fn may_stop(&self) -> bool {
        self.driven.actor().may_stop()
    }

    fn take_batch(&mut self) -> Option<Box<dyn Batch>> {
        self.driven.host.log.as_mut()?.take_batch()
    }

    fn on_flushed(&mut self, flushed: u64, moment: Moment, out: &mut Outbox<'_, NodeSide>) {
        if self.driven.host.awaited.is_some_and(|awaited| awaited <= flushed) {
            self.driven.host.awaited = None;
            self.driven.step(moment, out, Actor::on_durable);
        }
    }

    fn counts(&self) -> PartitionCounts {
        self.driven.host.counts
    }

    fn gauges(&self) -> Vec<(&'static str, u64)> {
        let mut gauges = Vec::new();
        self.driven.actor().gauges(&mut |name, value| gauges.push((name, value)));
        gauges.push(("rejected_messages", self.driven.rejected()));
        gauges
    }

    fn standing(&self, flushed: u64) -> (Standing, Timestamp) {
        let Kept { durable_standing, full_at, .. } = &self.driven.host;
        (durable_standing.get(flushed), *full_at)
    }

    fn is_durable(&self) -> bool {
        self.driven.host.log.is_some()
    }
}
