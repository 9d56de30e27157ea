//! Runs the workload's tasks, one at a time and in the order in which they were woken.

use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Waker};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Wake;

/// Tasks and clients that need attention before the next event.
#[derive(Default)]
pub(crate) struct Wakeups {
    /// Whether either list has an entry. It is checked after every event.
    any: AtomicBool,
    lists: Mutex<Lists>,
}

#[derive(Default)]
struct Lists {
    tasks: VecDeque<usize>,
    clients: VecDeque<usize>,
}

impl Wakeups {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().expect("nothing panics while it holds this lock")
    }

    /// Lists a task that was woken.
    fn task(&self, task: usize) {
        self.lists().tasks.push_back(task);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Lists a client whose port has operations or an earlier alarm.
    pub(crate) fn client(&self, client: usize) {
        self.lists().clients.push_back(client);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Whether anything was listed since the last call.
    pub(crate) fn take_any(&self) -> bool {
        self.any.load(Ordering::Relaxed) && self.any.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn next_task(&self) -> Option<usize> {
        self.lists().tasks.pop_front()
    }

    pub(crate) fn next_client(&self) -> Option<usize> {
        self.lists().clients.pop_front()
    }
}

/// The tasks of all clients.
pub(crate) struct Executor {
    tasks: Vec<Task>,
    unfinished: usize,
    wakeups: Arc<Wakeups>,
}

struct Task {
    client: usize,
    /// `None` when the task has finished.
    future: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    alert: Arc<Alert>,
    waker: Waker,
}

/// Wakes one task.
struct Alert {
    task: usize,
    /// Whether the task is in the list already.
    listed: AtomicBool,
    wakeups: Arc<Wakeups>,
}

impl Wake for Alert {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.listed.swap(true, Ordering::Relaxed) {
            self.wakeups.task(self.task);
        }
    }
}

impl Executor {
    pub(crate) fn new(wakeups: Arc<Wakeups>) -> Executor {
        Executor { tasks: Vec::new(), unfinished: 0, wakeups }
    }

    /// Adds a task. It is first polled before the next event.
    pub(crate) fn spawn(
        &mut self,
        client: usize,
        future: impl Future<Output = ()> + Send + 'static,
    ) {
        let task = self.tasks.len();
        let wakeups = self.wakeups.clone();
        let alert = Arc::new(Alert { task, listed: AtomicBool::new(false), wakeups });
        let waker = Waker::from(alert.clone());
        waker.wake_by_ref();
        self.tasks.push(Task { client, future: Some(Box::pin(future)), alert, waker });
        self.unfinished += 1;
    }

    /// Polls a task. Does nothing if it has finished.
    pub(crate) fn poll(&mut self, task: usize) {
        let task = &mut self.tasks[task];
        task.alert.listed.store(false, Ordering::Relaxed);
        let Some(future) = &mut task.future else { return };
        if future.as_mut().poll(&mut Context::from_waker(&task.waker)).is_ready() {
            task.future = None;
            self.unfinished -= 1;
        }
    }

    /// Drops the tasks of a client.
    pub(crate) fn abandon(&mut self, client: usize) {
        for task in self.tasks.iter_mut().filter(|task| task.client == client) {
            self.unfinished -= usize::from(task.future.take().is_some());
        }
    }

    /// How many tasks have not finished.
    pub(crate) fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// The clients that have unfinished tasks, in ascending order.
    pub(crate) fn unfinished_clients(&self) -> Vec<usize> {
        let unfinished = self.tasks.iter().filter(|task| task.future.is_some());
        let mut clients: Vec<usize> = unfinished.map(|task| task.client).collect();
        clients.sort_unstable();
        clients.dedup();
        clients
    }
}

#[cfg(test)]
mod tests {
    use core::task::Poll;

    use super::*;

    #[test]
    fn a_task_woken_twice_is_polled_once_and_never_after_its_end() {
        let wakeups = Arc::new(Wakeups::default());
        let mut executor = Executor::new(wakeups.clone());
        let polls = Arc::new(Mutex::new(0));
        let counter = polls.clone();
        executor.spawn(
            4,
            core::future::poll_fn(move |cx| {
                *counter.lock().unwrap() += 1;
                cx.waker().wake_by_ref();
                cx.waker().wake_by_ref();
                if *counter.lock().unwrap() == 3 { Poll::Ready(()) } else { Poll::Pending }
            }),
        );
        assert_eq!(executor.unfinished_clients(), [4]);
        while wakeups.take_any() {
            while let Some(task) = wakeups.next_task() {
                executor.poll(task);
            }
        }
        assert_eq!((*polls.lock().unwrap(), executor.unfinished()), (3, 0));
        assert!(executor.unfinished_clients().is_empty());
    }
}
