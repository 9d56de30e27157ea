//! A transaction that is open at a shard's leader.

use std::sync::Arc;

use serried_actor::Timestamp;
use serried_model::{Key, NodeId};
use smallvec::SmallVec;

use super::super::calls::{CallOf, Named};
use super::super::message::{Found, Kept, Reply, Shot};
use super::super::stamp::{Stamp, Validity};

/// How far a transaction has got at its shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// It has no part, and can be refused.
    Executing,
    /// The leader has proposed its part, in this slot if one is assigned. The part is not chosen.
    Preparing(Option<u64>),
    /// Its part is chosen.
    Prepared,
    /// The leader has proposed its end, which is not chosen.
    Ending,
}

/// An open transaction at its shard's leader.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) standing: Standing,
    /// When its first message arrived.
    pub(super) began: Timestamp,
    /// When the last message of its client arrived.
    pub(super) heard: Timestamp,
    /// Its participants, once its last shot has arrived.
    pub(super) participants: Option<Arc<[u16]>>,
    /// Whether its part is final: nothing that the part depends on can change any more.
    pub(super) settled: bool,
    /// The interval in which its part holds, once it has one.
    pub(super) validity: Validity,
    /// The keys of its part.
    pub(super) keys: Arc<[Key]>,
    /// Where its part stands among the parts and uncertain ends that this leader has put into the log. Inherited parts stand
    /// before all.
    pub(super) place: u64,
    /// How many of its parts wait to be put into the log. Only the last one counts.
    pub(super) queued: u32,
    /// Whether it had another part before.
    pub(super) is_remade: bool,
    /// Its end has followed its part into the log, since there is no other part. What its last shot has read.
    pub(super) alone: Option<Vec<Found>>,
    /// What it calls, once a shot with a program has arrived.
    pub(super) call: Option<Arc<CallOf>>,
    /// What is kept of the call, once it has a part.
    pub(super) kept: Option<Arc<Kept>>,
    /// Whether a former leader prepared it.
    pub(super) is_inherited: bool,
    /// Whether its coordinator reports that the call was refused.
    pub(super) is_refused: bool,
    /// The pieces of its shots. A shot that has pieces has no reads, so it is never forgotten ([`Open::answered`]).
    pub(super) pieces: Named,
    shots: SmallVec<[OpenShot; 1]>,
    /// The nodes to notify when its part is ready.
    pub(super) inspectors: SmallVec<[NodeId; 1]>,
    /// The clients and shards to notify when it has ended.
    pub(super) enders: SmallVec<[NodeId; 1]>,
    /// Whether its part was reported to the group that decides.
    pub(super) is_reported: bool,
    /// The parts that were reported here before this group could decide, and their shards.
    pub(super) reported: SmallVec<[(u16, Validity); 2]>,
    /// Whether its commit was reported.
    pub(super) is_concluded: bool,
    /// The node that has requested another moment, and that moment.
    pub(super) mover: Option<(NodeId, Stamp)>,
}

/// One of its shots.
#[derive(Debug)]
struct OpenShot {
    number: u16,
    client: NodeId,
    reads: Vec<Key>,
    is_last: bool,
    released: bool,
    clock_us: u64,
    answered: Option<Reply>,
}

/// A shot that can be answered.
pub(super) struct Answerable {
    pub(super) client: NodeId,
    pub(super) number: u16,
    pub(super) reads: Vec<Key>,
    pub(super) clock_us: u64,
    pub(super) is_last: bool,
}

impl Open {
    pub(super) fn new(now: Timestamp) -> Open {
        Open {
            standing: Standing::Executing,
            began: now,
            heard: now,
            participants: None,
            settled: false,
            validity: Validity::ALWAYS,
            keys: Arc::new([]),
            place: 0,
            queued: 0,
            is_remade: false,
            alone: None,
            call: None,
            kept: None,
            is_inherited: false,
            is_refused: false,
            pieces: Named::new(),
            shots: SmallVec::new(),
            inspectors: SmallVec::new(),
            enders: SmallVec::new(),
            is_reported: false,
            reported: SmallVec::new(),
            is_concluded: false,
            mover: None,
        }
    }

    /// Creates a transaction that was prepared under a former leader.
    pub(super) fn inherited(
        now: Timestamp,
        participants: Arc<[u16]>,
        validity: Validity,
        keys: Arc<[Key]>,
        kept: Option<Arc<Kept>>,
    ) -> Open {
        let standing = Standing::Prepared;
        let call = kept.as_ref().map(|kept| kept.call.clone());
        let participants = Some(participants);
        let is_inherited = true;
        let new = Open::new(now);
        Open { standing, participants, validity, keys, call, kept, is_inherited, ..new }
    }

    /// Whether it is a call under a set of procedures before this version.
    pub(super) fn is_of_set_before(&self, version: u64) -> bool {
        self.call.as_ref().is_some_and(|call| call.set < version)
    }

    /// Whether its part says that it must not commit.
    pub(super) fn must_abort(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.is_refused)
    }

    /// The clients that wait for an answer about it. A client may occur more than once.
    pub(super) fn concerned(&self) -> impl Iterator<Item = NodeId> {
        let clients = self.shots.iter().map(|shot| shot.client);
        let others = self.enders.iter().chain(&self.inspectors).copied();
        let all = clients.chain(others).chain(self.mover.map(|(mover, _)| mover));
        all.filter(|node| node.is_coordinator())
    }

    /// Whether its part is ready. It will not change unless another moment is requested.
    pub(super) fn is_ready(&self) -> bool {
        self.standing == Standing::Prepared && self.settled
    }

    /// Records a shot, and returns the action that it requires.
    pub(super) fn take(&mut self, client: NodeId, shot: &Shot, clock_us: u64) -> Taken {
        let same = |other: &&mut OpenShot| other.number == shot.number;
        let is_last = shot.participants.is_some();
        if let Some(known) = self.shots.iter_mut().find(same) {
            return known.answered.clone().map_or(Taken::Known, Taken::Answered);
        }
        let is_late = self.participants.is_some();
        if is_late && !is_last {
            return Taken::Known; // No client waits for an answer.
        }
        let reads = shot.reads.clone();
        let (number, released, answered) = (shot.number, false, None);
        let new = OpenShot { number, client, reads, is_last, released, clock_us, answered };
        self.shots.push(new);
        if is_late {
            return Taken::Inherited;
        }
        self.participants.clone_from(&shot.participants);
        Taken::New
    }

    /// Marks a shot as answerable, unless it is the last.
    pub(super) fn release(&mut self, number: u16) {
        for shot in self.shots.iter_mut().filter(|shot| shot.number == number) {
            shot.released = true;
        }
    }

    /// A shot that can be answered and has not been answered. `answers_last` is whether last shots are answered when the part
    /// is ready.
    pub(super) fn answerable(&self, answers_last: bool) -> Option<Answerable> {
        let ready = self.is_ready() && answers_last;
        let can = |shot: &&OpenShot| {
            shot.answered.is_none() && if shot.is_last { ready } else { shot.released }
        };
        let shot = self.shots.iter().find(can)?;
        let OpenShot { client, number, clock_us, is_last, .. } = *shot;
        Some(Answerable { client, number, reads: shot.reads.clone(), clock_us, is_last })
    }

    /// What its last shot reads, if the shot has arrived here.
    pub(super) fn last_reads(&self) -> Option<&[Key]> {
        self.shots.iter().find(|shot| shot.is_last).map(|shot| &shot.reads[..])
    }

    /// Takes the answer to its last shot, if it has ended with its part and was answered.
    pub(super) fn take_last_answer(&mut self) -> Option<Reply> {
        self.alone.as_ref()?;
        self.shots.iter_mut().find(|shot| shot.is_last)?.answered.take()
    }

    /// Marks a shot as answered. If `answer` is `None`, forgets the shot as if it had not arrived.
    pub(super) fn answered(&mut self, number: u16, answer: Option<Reply>) {
        if answer.is_none() {
            return self.shots.retain(|shot| shot.number != number);
        }
        for shot in self.shots.iter_mut().filter(|shot| shot.number == number) {
            shot.answered.clone_from(&answer);
        }
    }

    /// The clients that wait for answers to shots.
    pub(super) fn waiting(&self) -> impl Iterator<Item = NodeId> {
        self.shots.iter().filter(|shot| shot.answered.is_none()).map(|shot| shot.client)
    }

    /// Answers all shots that were not answered. Returns the clients.
    pub(super) fn answer_all(&mut self, answer: &Reply) -> SmallVec<[NodeId; 1]> {
        let waiting = self.waiting().collect();
        for shot in self.shots.iter_mut().filter(|shot| shot.answered.is_none()) {
            shot.answered = Some(answer.clone());
        }
        waiting
    }

    /// The shard that is its backup coordinator, once it is known.
    pub(super) fn backup(&self) -> Option<u16> {
        self.participants.as_ref().and_then(|participants| participants.first().copied())
    }
}

/// The action that a shot requires.
pub(super) enum Taken {
    /// Execute it.
    New,
    /// A former leader executed it. Answer it as soon as that is possible.
    Inherited,
    /// None: it is being executed.
    Known,
    /// Repeat this answer.
    Answered(Reply),
}
