//! CPU time by thread.

use std::fs;
use std::io;
use std::time::Duration;

/// The name of the threads of nodes that run in this process.
const NODE_THREAD: &str = "serried-node";

/// The CPU time, user and system, of this process's threads.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct CpuTime {
    pub(crate) nodes: Duration,
    pub(crate) others: Duration,
}

impl CpuTime {
    /// The CPU time used so far by threads that still run, to the nanosecond.
    ///
    /// # Errors
    /// If the system does not report it.
    pub(crate) fn so_far() -> io::Result<CpuTime> {
        let mut time = CpuTime::default();
        for thread in fs::read_dir("/proc/self/task")? {
            let folder = thread?.path();
            // A thread may have ended by now.
            let Ok(name) = fs::read_to_string(folder.join("comm")) else { continue };
            let Ok(statistics) = fs::read_to_string(folder.join("schedstat")) else { continue };
            let used = on_cpu(&statistics).ok_or_else(|| {
                io::Error::other(format!("{} holds no time", folder.join("schedstat").display()))
            })?;
            match name.starts_with(NODE_THREAD) {
                true => time.nodes += used,
                false => time.others += used,
            }
        }
        match time.nodes + time.others {
            Duration::ZERO => Err(io::Error::other("the kernel keeps no /proc/*/schedstat")),
            _ => Ok(time),
        }
    }
}

/// The first field of `schedstat`: nanoseconds on a CPU.
fn on_cpu(statistics: &str) -> Option<Duration> {
    statistics.split_ascii_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_is_the_time_on_a_cpu() {
        assert_eq!(on_cpu("1234567 89 10\n"), Some(Duration::from_nanos(1_234_567)));
        assert_eq!(on_cpu(""), None);
    }
}
