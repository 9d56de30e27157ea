//! The leader of the first partition gives numbers to writes and hands them out in batches, and the leaders of the
//! other partitions apply them.

use serried_actor::Group;
use serried_model::NodeId;
use serried_parts::patience_with_leader;

use super::Mutation;
use super::message::{Answer, Batch, Entry, Fate, Message, Request, SEQUENCER, Write};
use super::replica::{Client, Cx, Incoming, Replica, Timer};
use super::sequencer::{BATCHED_AT_MOST, Out, Phase, Sequencer, Writer};
use crate::frameworks::replicated_log::Span;

/// Whether a sequencer of `group` can have handed this batch to the partition `own`.
fn is_sound(sequencer: NodeId, batch: &Batch, own: u16, group: &Group) -> bool {
    if !group.contains(sequencer)
        || sequencer.partition() != SEQUENCER
        || own == SEQUENCER
        || batch.partition != own
        || !batch.has_numbers()
        || batch.writes.len() > BATCHED_AT_MOST
        || batch.highest.len() != usize::from(group.partitions())
    {
        return false;
    }
    let is_right = |(partition, highest): (u16, &u64)| match partition == own {
        true => *highest == batch.last(),
        false => *highest < batch.first,
    };
    (0..).zip(&batch.highest).all(is_right)
        && batch.writes.iter().all(|write| group.partition_of(&write.write.key) == own)
}

/// The sequencer.
impl Replica {
    /// It leads the first partition now, and has applied all that its predecessors have logged. The last batch was
    /// perhaps not handed out, or not applied.
    pub(super) fn begin_sequencing(&mut self, cx: &mut Cx<'_>) {
        let is_sound =
            |batch: &Batch| batch.has_numbers() && batch.partition < self.group.partitions();
        let mut handed_out = self.machine.partition.handed_out.clone().filter(is_sound);
        if self.mutation.is(Mutation::NotHandedOutAgain) {
            handed_out = None;
        }
        self.sequencer = Some(Sequencer::after(handed_out));
        self.hand_out(cx);
    }

    /// It does not lead any more, or in another ballot. Returns the writes whose clients wait.
    pub(super) fn stop_sequencing(&mut self, cx: &mut Cx<'_>) -> Vec<Client> {
        let Some(sequencer) = self.sequencer.take() else { return Vec::new() };
        cx.cancel_timer(Timer::HandOut);
        let client = |(Writer { node, number, .. }, write)| {
            let request = Request::Write(write);
            Client { node, number, request }
        };
        sequencer.into_writes().into_iter().map(client).collect()
    }

    /// A client writes. The write waits for its number. If the clock of the client is ahead of those of a majority, its
    /// refusal gets the number. Returns the write if the time is not known yet. If the clocks of the replicas disagree
    /// about it, there is no answer, and the client sends it again.
    pub(super) fn write(
        &mut self,
        node: NodeId,
        number: u64,
        write: Write,
        cx: &mut Cx<'_>,
    ) -> Option<Write> {
        let time = self.clocks.time(cx.clock().midpoint_us(), cx.now());
        let Some(Span { earliest_us, latest_us }) = time else { return Some(write) };
        let (us, bound_us) = (write.token.timestamp_us, self.clock_bound_us);
        let is_refused = us > latest_us.saturating_add(bound_us);
        if !is_refused && us > earliest_us.saturating_add(bound_us) {
            return None;
        }
        let ahead_us = i64::try_from(us.saturating_sub(latest_us)).unwrap_or(i64::MAX);
        let ahead_us = is_refused.then_some(ahead_us);
        let partition = self.group.partition_of(&write.key);
        if let Some(sequencer) = &mut self.sequencer {
            sequencer.take_in(partition, Writer { node, number, ahead_us }, write);
        }
        None
    }

    /// Goes on with the batch that is under way, or begins another one. Returns whether there may be more to do.
    ///
    /// A batch begins when the one before is applied. So the writes that are applied anywhere are always those up to
    /// some number.
    pub(super) fn sequence(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(sequencer) = &mut self.sequencer else { return false };
        let sequenced = &self.machine.partition.sequenced;
        sequencer.begin(sequenced, self.group.partitions());
        let Some(out) = &mut sequencer.out else { return false };
        match out.phase {
            Phase::Begun => {
                let entry = Entry::Batch(out.batch.clone());
                let is_logged = self.log.propose_led(entry, cx).is_some();
                if is_logged {
                    out.phase = Phase::Logged;
                    self.counts.batches += 1;
                    self.counts.writes += out.batch.writes.len() as u64;
                }
                is_logged
            }
            Phase::Logged if sequenced.last < out.batch.last() => false,
            Phase::Logged if out.batch.partition == SEQUENCER => {
                let fates = self.machine.fates(&out.batch, cx.store());
                if let Some(out) = sequencer.out.take() {
                    Self::acknowledge(sequencer, &out, &fates, cx);
                }
                true
            }
            Phase::Logged => {
                out.phase = Phase::HandedOut { repeated: 0 };
                self.hand_out(cx);
                self.go_on_too_early()
            }
            Phase::HandedOut { .. } => false,
        }
    }

    /// A deliberate mistake: the next batch may begin although this one is not applied.
    fn go_on_too_early(&mut self) -> bool {
        if !self.mutation.is(Mutation::NextBegunEarly) {
            return false;
        }
        let Some(sequencer) = &mut self.sequencer else { return false };
        sequencer.early.extend(sequencer.out.take());
        true
    }

    /// Hands the batch that is under way to its partition.
    fn hand_out(&mut self, cx: &mut Cx<'_>) {
        let Some(sequencer) = &self.sequencer else { return };
        let mut longest = None;
        for Out { batch, phase, .. } in sequencer.early.iter().chain(&sequencer.out) {
            let Phase::HandedOut { repeated } = *phase else { continue };
            // If no leader is known, the nearest replica passes it on, and then the others are tried.
            let nearest = self.group.choice(batch.partition, repeated as usize);
            let to = *sequencer.leaders.get(&batch.partition).unwrap_or(&nearest);
            cx.send_before_durable(to, Message::Batch(batch.clone()));
            longest = longest.max(Some(repeated));
        }
        if let Some(repeated) = longest {
            cx.set_timer(Timer::HandOut, patience_with_leader(&self.group, repeated));
        }
    }

    /// A batch was not acknowledged in time.
    pub(super) fn hand_out_again(&mut self, cx: &mut Cx<'_>) {
        let Some(sequencer) = &mut self.sequencer else { return };
        for Out { batch, phase, .. } in sequencer.early.iter_mut().chain(&mut sequencer.out) {
            if let Phase::HandedOut { repeated } = phase {
                *repeated += 1;
                // It may not lead any more.
                sequencer.leaders.remove(&batch.partition);
            }
        }
        self.hand_out(cx);
    }

    /// A partition says that a batch is applied there.
    pub(super) fn on_applied(&mut self, from: NodeId, last: u64, fates: &[Fate], cx: &mut Cx<'_>) {
        if !self.group.contains(from) || cx.id().partition() != SEQUENCER {
            return cx.reject(|| format!("{from} has sent what only replicas send the sequencer"));
        }
        let Some(sequencer) = &mut self.sequencer else { return };
        let is_meant =
            |out: &Out| out.batch.last() == last && matches!(out.phase, Phase::HandedOut { .. });
        let early = sequencer.early.iter().position(is_meant);
        let out = match early {
            Some(at) => Some(&sequencer.early[at]),
            None => sequencer.out.as_ref().filter(|out| is_meant(out)),
        };
        // Late: it was acknowledged before.
        let Some(Out { batch, .. }) = out else { return };
        let is_possible = |fate: &Fate| match fate {
            Fate::Done(number) => (1..=last).contains(number),
            Fate::Refused | Fate::Forgotten => true,
        };
        if from.partition() != batch.partition
            || fates.len() != batch.writes.len()
            || !fates.iter().all(is_possible)
        {
            return cx.reject(|| format!("{from} has not sent what becomes of batch {last}"));
        }
        let out = match early {
            Some(at) => Some(sequencer.early.remove(at)),
            None => sequencer.out.take(),
        };
        let Some(out) = out else { return };
        if sequencer.early.is_empty() {
            cx.cancel_timer(Timer::HandOut);
        }
        sequencer.leaders.insert(from.partition(), from);
        Self::acknowledge(sequencer, &out, fates, cx);
    }

    /// A batch is applied. Its clients are told.
    fn acknowledge(sequencer: &mut Sequencer, out: &Out, fates: &[Fate], cx: &mut Cx<'_>) {
        sequencer.end(out);
        for (Writer { node, number, ahead_us }, fate) in out.writers.iter().zip(fates) {
            let answer = match fate {
                Fate::Done(number) => Answer::Written { number: *number },
                Fate::Refused => Answer::ClockSkew { ahead_us: ahead_us.unwrap_or(0) },
                Fate::Forgotten => Answer::Forgotten,
            };
            Self::answer(*node, *number, answer, cx);
        }
    }
}

/// The leader of a batch's partition.
impl Replica {
    /// A sequencer hands a batch to this partition, perhaps again. Only a batch that is in the log of the sequencer is
    /// handed out, and no two of them have the same numbers.
    pub(super) fn on_batch(&mut self, sequencer: NodeId, batch: Batch, cx: &mut Cx<'_>) {
        if !is_sound(sequencer, &batch, cx.id().partition(), &self.group) {
            return cx.reject(|| format!("{sequencer} has sent a batch that no sequencer sends"));
        }
        if self.is_serving() && batch.last() <= self.machine.partition.applied.last {
            return self.say_applied(sequencer, &batch, cx);
        }
        let last = batch.last();
        match &mut self.incoming {
            // Late: it was applied, since there is a later one.
            Some(incoming) if incoming.batch.last() > last => {}
            Some(incoming) if incoming.batch.last() == last => incoming.sequencer = sequencer,
            _ => self.incoming = Some(Incoming { sequencer, batch, is_proposed: false }),
        }
    }

    /// Puts the batch that has arrived into the log, or tells the sequencer that it is applied. Returns whether there
    /// may be more to do.
    pub(super) fn take_in(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(mut incoming) = self.incoming.take() else { return false };
        if incoming.batch.last() <= self.machine.partition.applied.last {
            self.say_applied(incoming.sequencer, &incoming.batch, cx);
            return false;
        }
        let is_new = !incoming.is_proposed
            && self.log.propose_led(Entry::Batch(incoming.batch.clone()), cx).is_some();
        incoming.is_proposed |= is_new;
        self.incoming = Some(incoming);
        is_new
    }

    /// Tells a sequencer that a batch is applied.
    fn say_applied(&mut self, sequencer: NodeId, batch: &Batch, cx: &mut Cx<'_>) {
        let fates = self.machine.fates(batch, cx.store());
        let applied = Message::Applied { last: batch.last(), fates };
        cx.send_before_durable(sequencer, applied);
    }
}
