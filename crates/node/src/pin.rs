//! Threads on processors of their own.

/// Keeps the calling thread on the `core`-th of the processors that this process may use. If that fails, the system
/// places the thread.
#[cfg(target_os = "linux")]
pub(crate) fn pin_to(core: usize) {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let pinned = sched_getaffinity(None).and_then(|allowed| {
        let mut chosen = CpuSet::new();
        if let Some(cpu) = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).nth(core) {
            chosen.set(cpu);
            sched_setaffinity(None, &chosen)?;
        }
        Ok(())
    });
    if let Err(error) = pinned {
        tracing::warn!(core, %error, "can't keep a core's thread on one processor");
    }
}

/// Other systems place threads as they see fit.
#[cfg(not(target_os = "linux"))]
pub(crate) fn pin_to(core: usize) {
    tracing::warn!(core, "threads can be kept on one processor on Linux only");
}
