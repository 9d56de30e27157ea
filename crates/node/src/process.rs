//! What the operating system says of this process.

use std::time::Duration;

/// The CPU time that this process has used, user and system, to 10 ms; zero if `/proc` does not
/// report it.
pub fn process_cpu_time() -> Duration {
    let statistics = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    cpu_time(&statistics).unwrap_or_default()
}

/// How much memory of this process is resident, in bytes, if the operating system reports it.
pub(crate) fn resident_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// Fields 14 and 15 of `/proc/<process>/stat`, in ticks. Linux reports 100 ticks a second to
/// programs, whatever its own clock rate is. The second field is in parentheses and may hold anything.
fn cpu_time(statistics: &str) -> Option<Duration> {
    let (_, rest) = statistics.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis((user + system) * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_whatever_the_program_is_called() {
        let line = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 25 17 0 0 20 0 1 0 100 0 0";
        assert_eq!(cpu_time(line), Some(Duration::from_millis(420)));
        assert_eq!(cpu_time(""), None);
    }
}
