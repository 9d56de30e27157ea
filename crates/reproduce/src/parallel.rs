//! Work on several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::Error;

/// Does `work` for each task on `threads` threads, until it fails for one. `work` can see whether it has failed for
/// another task. Returns the results in the order of the tasks.
pub(crate) fn each<T: Sync, R: Send>(
    tasks: &[T],
    threads: usize,
    work: impl Fn(&T, &AtomicBool) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results: Mutex<Vec<Option<Result<R, Error>>>> =
        Mutex::new(tasks.iter().map(|_| None).collect());
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(number) else { return };
            let result = work(task, &failed);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            results.lock().expect("no thread panics with it")[number] = Some(result);
        }
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads.max(1)).map(|_| scope.spawn(work)).collect();
        work();
        for other in others {
            if let Err(panic) = other.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    let results = results.into_inner().expect("no thread has panicked");
    // Tasks that were not begun come after the one that failed.
    results.into_iter().flatten().collect()
}
