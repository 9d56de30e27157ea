//! Workloads of clients, and the measurement of their results.
//!
//! A [`Workload`] plans transactions and runs them through the public session API, so the same code drives a real
//! cluster and a simulated one. [`ClosedLoop`] is a client that runs one transaction after the other. [`OpenLoop`] is a
//! client that begins them as they arrive. A [`RegisterWorkload`] plans requests to registers, and [`RegisterClient`]
//! is its client. A [`ProcedureWorkload`] plans calls of stored
//! procedures, and [`CallClient`] is its client. A [`SnapshotWorkload`] plans read-only transactions and writes, and
//! [`SnapshotClient`] is its client. A [`Replay`] is a workload that repeats a [`Trace`] of what other clients did. All
//! of them enter their results into a [`Measurement`].

mod audit;
mod bank;
mod closed_loop;
mod counter;
mod inspection;
mod list_append;
mod measurement;
mod number;
mod one_shot;
mod open_loop;
mod procedures;
mod register;
mod registers;
mod retwis;
#[cfg(test)]
mod serial;
mod snapshots;
pub mod tpcc;
mod trace;
mod transactor;
mod workload;

pub use audit::{AUDIT_PATIENCE, Unanswered, audit, check_nothing_is_lost, touched};
pub use bank::Bank;
pub use closed_loop::{ClosedLoop, preload};
pub use counter::Counter;
pub use inspection::{Inspection, InspectionError, inspect};
pub use list_append::ListAppend;
pub use measurement::{
    Arrival, ArrivalReport, Failure, KindReport, Measurement, Part, Report, Results, Window,
    Witness, Witnessed,
};
pub use one_shot::{F1, OneShotCalls, Tao, YcsbTransactions};
pub use open_loop::OpenLoop;
pub use procedures::{
    BankCalls, CallClient, CallInspection, CounterCalls, Inquiries, ListCalls, Loading, NotReady,
    OpenCalls, PlannedCall, ProcedureParameters, ProcedureWorkload, ReadList, audit_calls,
    make_ready,
};
pub use register::{RegisterLoop, RegisterMix};
pub use registers::{
    Planned, RegisterClient, RegisterParameters, RegisterWorkload, Shares, Turn, Ycsb,
};
pub use retwis::Retwis;
pub use snapshots::{
    Eiger, PlannedSnapshot, SnapshotClient, SnapshotLoop, SnapshotMix, SnapshotParameters,
    SnapshotWorkload, Staleness, StalenessReport, Versions, YcsbGroups, attribute, begin_after,
};
pub use trace::{
    Bound, Replay, TRACE, Trace, TraceBounds, TraceBuilder, TraceError, TraceHeader,
    TracedTransaction,
};
pub use workload::{
    OneShot, Parameters, Plan, RolledBack, Run, Workload, WorkloadError, WorkloadInfo, family,
    list, named, named_procedures, named_registers, named_snapshots,
};
