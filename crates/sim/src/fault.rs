//! Faults that come and go during a run.

use core::fmt;

use serried_actor::Timestamp;
use serried_model::NodeId;

use crate::Reach;

/// A fault that lasts for some time.
#[derive(Clone, PartialEq, Debug)]
pub enum Fault {
    /// Messages sent over these links are lost. Messages in flight still arrive.
    Partition(Reach),
    /// Messages over these links take longer by this factor, at least 1. If several faults apply, the greatest factor
    /// counts.
    Slow(Reach, f64),
    /// The node handles and sends nothing. It forgets nothing, and catches up at the end.
    Pause(NodeId),
    /// The machine loses its memory. It also loses records that were not durable, except some that the disk had already
    /// written. At the end it starts again with the records that are left. Needs [`crate::Disk::keep_records`].
    /// Machines are numbered over all sites ([`crate::Configuration::machines`]).
    Crash(usize),
    /// The machine is down as in a crash, and its disk is lost. At the end it rejoins. At most a minority of a site's
    /// machines loses their disks: if too many have not recovered from a lost disk yet, this is a [`Fault::Crash`]
    /// instead.
    LostDisk(usize),
    /// All machines of a site are down as in a crash, and all their disks are lost. At the end they rejoin.
    LostSite(u16),
    /// The machine's disk is slower by this factor.
    SlowDisk(usize, u32),
    /// The client stops for ever.
    ClientDeath(usize),
    /// The node's wall clock jumps by this many microseconds, and the node does not know it.
    ClockJump(NodeId, i64),
}

/// A fault and its time.
#[derive(Clone, PartialEq, Debug)]
pub struct Scheduled {
    /// When it begins.
    pub begins: Timestamp,
    /// When it ends.
    pub ends: Timestamp,
    /// The fault.
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
