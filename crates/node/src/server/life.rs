//! Whether a node runs, and what has ended it.

use std::any::Any;
use std::sync::Arc;

use serried_model::NodeId;
use tokio::sync::watch;

use crate::node::NodeFailed;

/// How a node is.
#[derive(Clone, Default)]
pub(crate) struct State {
    /// Threads that have not ended.
    pub(crate) running: usize,
    /// They are to end at once.
    pub(crate) killed: bool,
    pub(crate) failed: Option<NodeFailed>,
}

/// The life of a node, which its threads share.
pub(crate) struct Life {
    node: NodeId,
    state: watch::Sender<State>,
}

impl Life {
    /// That of a node with so many threads.
    pub(super) fn new(node: NodeId, threads: usize) -> Life {
        Life { node, state: watch::Sender::new(State { running: threads, ..State::default() }) }
    }

    /// How the node is.
    pub(super) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// How it is, and how it will be.
    pub(crate) fn watch(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Ends its threads at once.
    pub(crate) fn kill(&self) {
        self.state.send_modify(|state| state.killed = true);
    }

    /// A panic has ended a part of the node. The rest ends too, at once.
    pub(crate) fn fail(&self, panic: &(dyn Any + Send)) {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let cause = text.unwrap_or_else(|| "something has panicked".to_string());
        let node = self.node;
        self.state.send_modify(|state| {
            state.killed = true;
            // Later panics are consequences of the first.
            if state.failed.is_none() {
                tracing::error!(%node, cause, "stopped: a panic has ended a part of it");
                state.failed = Some(NodeFailed::Panicked { node, cause });
            }
        });
    }

    /// What has ended the node, if it was not stopped.
    pub(crate) fn failure(&self) -> Option<NodeFailed> {
        self.state.borrow().failed.clone()
    }

    /// Another node says that this one's data does not count, or not any more. So its votes must not count, and it ends
    /// at once.
    pub(crate) fn disowned(&self, reason: String) {
        let node = self.node;
        self.state.send_modify(|state| {
            state.killed = true;
            if state.failed.is_none() {
                tracing::error!(%node, reason, "stopped: another node has turned this one away for good");
                state.failed = Some(NodeFailed::Disowned { node, reason });
            }
        });
    }

    /// For as long as a thread runs.
    pub(super) fn running(self: &Arc<Self>) -> Running {
        Running(self.clone())
    }
}

/// Notes the end of a thread.
pub(crate) struct Running(Arc<Life>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| state.running -= 1);
    }
}
