//! Faults that come and go during a run.

use core::fmt;

use serried_actor::Timestamp;
use serried_model::NodeId;

use crate::Reach;

/// Something that goes wrong from a beginning to an end.
#[derive(Clone, PartialEq, Debug)]
pub enum Fault {
    /// Messages sent over these links are lost. Those that are under way still arrive.
    Partition(Reach),
    /// Messages over these links take this many times as long, one or more; of several faults the worst counts.
    Slow(Reach, f64),
    /// The node handles and sends nothing, forgets nothing, and catches up at the end.
    Pause(NodeId),
    /// The machine loses its memory, and records that were not durable, except some that the disk had written already. At
    /// the end it starts again with the rest. Needs [`crate::Disk::keep_records`].
    Crash(usize),
    /// The machine is down as in a crash, and its disk is lost: at the end it starts as one that takes
    /// the place of another. Only as many as a group can do without lose their disks: if others that did
    /// have not made up for it yet, and one more would be too many, this is a [`Fault::Crash`].
    LostDisk(usize),
    /// The machine's disk takes so many times as long for everything.
    SlowDisk(usize, u32),
    /// The client is gone for good.
    ClientDeath(usize),
    /// The node's wall clock is off by so many microseconds more, and the node does not know.
    ClockJump(NodeId, i64),
}

/// A fault and its time.
#[derive(Clone, PartialEq, Debug)]
pub struct Scheduled {
    /// When it begins.
    pub begins: Timestamp,
    /// When it ends.
    pub ends: Timestamp,
    /// What it is.
    pub fault: Fault,
}

impl fmt::Display for Scheduled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scheduled { begins, ends, fault } = self;
        write!(f, "{begins} to {ends}: {fault:?}")
    }
}

/// Identifies a fault of a run, to end it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FaultId(pub(crate) usize);

/// A fault of a run.
pub(crate) struct Entry {
    pub(crate) fault: Fault,
    pub(crate) state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Scheduled,
    Active,
    Over,
}
