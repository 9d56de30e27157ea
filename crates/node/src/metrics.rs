//! A node's figures in Prometheus' text format (version 0.0.4).

use std::collections::BTreeSet;
use std::fmt::{Display, Write};

use serried_wire::{NodeStatus, NotServed};

use crate::flusher::Latency;

/// What one partition's replica has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PartitionCounts {
    pub(crate) messages_received: u64,
    pub(crate) appends: u64,
    pub(crate) appended_bytes: u64,
}

/// One partition.
pub(crate) struct Partition<'a> {
    pub(crate) keyspace: &'a str,
    pub(crate) number: u16,
    pub(crate) counts: PartitionCounts,
    /// What its replica shows of its state, in the protocol's words.
    pub(crate) gauges: Vec<(&'static str, u64)>,
}

/// Everything that is exposed.
pub(crate) struct Exposed<'a> {
    pub(crate) status: &'a NodeStatus,
    pub(crate) latency: Latency,
    /// By keyspace and number.
    pub(crate) partitions: Vec<Partition<'a>>,
    /// Of the process, if the operating system reports it.
    pub(crate) resident_bytes: Option<u64>,
}

impl Exposed<'_> {
    /// The text.
    pub(crate) fn text(&self) -> String {
        let mut text = Text(String::new());
        let NodeStatus { version, incarnation, statistics, durability, .. } = self.status;
        let counters = &statistics.counters;
        text.family("serried_build_info", "gauge", "1; the labels say what runs.");
        let labels = format!(
            "version=\"{version}\",node=\"{}\",incarnation=\"{incarnation}\",durability=\"{}\"",
            statistics.node,
            durability.name()
        );
        text.sample("serried_build_info", &labels, 1);
        let status = self.status;
        for (name, help, value) in [
            ("uptime_seconds", "Time since the node started.", status.uptime.as_secs_f64()),
            ("cores", "Cores that serve partitions.", f64::from(status.cores)),
            (
                "read_only",
                "1 while the logs can't be written.",
                f64::from(u8::from(status.obstacle.is_some())),
            ),
            (
                "partitions_catching_up",
                "Partitions that get what they have missed.",
                status.behind.map_or(0.0, |behind| f64::from(behind.catching_up)),
            ),
            (
                "partitions_rejoining",
                "Partitions that take the place of what was on a lost disk.",
                status.behind.map_or(0.0, |behind| f64::from(behind.rejoining)),
            ),
            (
                "partitions_not_voting",
                "Partitions that vote on nothing yet, as clocks were ahead.",
                status.not_voting.map_or(0.0, |not_voting| f64::from(not_voting.partitions)),
            ),
            (
                "flush_under_way_seconds",
                "For how long the longest flush of a log has been under way.",
                status.flush_under_way.unwrap_or_default().as_secs_f64(),
            ),
            ("flush_lag", "Flushes of logs under way or due.", status.flush_lag as f64),
            ("held_bytes", "Bytes of messages that wait for flushes.", status.held_bytes as f64),
            (
                "waiting_bytes",
                "Bytes of messages that wait for their connections.",
                status.waiting_bytes as f64,
            ),
            ("connections", "Open connections.", statistics.connections as f64),
        ] {
            text.single(&format!("serried_{name}"), "gauge", help, value);
        }
        for (name, help, value) in [
            ("messages_sent", "Protocol messages handed to connections.", counters.messages_sent),
            ("messages_received", "Protocol messages received.", counters.messages_received),
            ("messages_dropped", "Protocol messages dropped.", counters.messages_dropped),
            (
                "messages_refused",
                "Protocol messages for what is not here.",
                counters.messages_refused,
            ),
            ("bytes_sent", "Bytes written to connections.", counters.bytes_sent),
            ("bytes_received", "Bytes read from connections.", counters.bytes_received),
            ("connection_writes", "Writes to connections.", counters.flushes),
            ("connection_reads", "Reads from connections.", counters.reads),
            ("reconnects", "Connections opened again.", counters.reconnects),
            ("log_flushes", "Flushes of logs.", counters.log_flushes),
            ("log_bytes", "Bytes written to logs.", counters.log_bytes),
        ] {
            text.single(&format!("serried_{name}_total"), "counter", help, value);
        }
        let cpu = statistics.process_cpu.as_secs_f64();
        text.single("process_cpu_seconds_total", "counter", "CPU time of the process.", cpu);
        if let Some(bytes) = self.resident_bytes {
            text.single("process_resident_memory_bytes", "gauge", "Resident memory.", bytes);
        }
        for (name, which, keyspaces) in [
            ("serried_keyspace_not_served", "is refused by name", &status.not_served),
            ("serried_keyspace_outside", "the node takes no part in", &status.outside),
        ] {
            let help = format!("1; the labels say which keyspace {which}, and why.");
            text.family(name, "gauge", &help);
            for NotServed { name: keyspace, reason } in keyspaces {
                let (keyspace, reason) = (escaped(keyspace), escaped(reason));
                text.sample(name, &format!("keyspace=\"{keyspace}\",reason=\"{reason}\""), 1);
            }
        }
        type Count = fn(&PartitionCounts) -> u64;
        let counts: [(&str, &str, Count); 3] = [
            ("messages", "Messages to the partition's replica.", |of| of.messages_received),
            ("appends", "Records that it has appended.", |of| of.appends),
            ("appended_bytes", "Bytes of these records.", |of| of.appended_bytes),
        ];
        for (name, help, count) in counts {
            let name = format!("serried_partition_{name}_total");
            text.family(&name, "counter", help);
            for partition in &self.partitions {
                text.sample(&name, &partition.labels(), count(&partition.counts));
            }
        }
        let names = self.partitions.iter().flat_map(|partition| &partition.gauges);
        let names: BTreeSet<&str> = names.map(|(name, _)| *name).collect();
        for name in names {
            let full = format!("serried_partition_{name}");
            let help = format!("The replica's gauge `{}`.", name.replace('_', " "));
            text.family(&full, "gauge", &help);
            for partition in &self.partitions {
                for (_, value) in partition.gauges.iter().filter(|(other, _)| *other == name) {
                    text.sample(&full, &partition.labels(), value);
                }
            }
        }
        text.histogram("serried_log_flush_seconds", "Time that flushes took.", &self.latency);
        text.0
    }
}

impl Partition<'_> {
    fn labels(&self) -> String {
        format!("keyspace=\"{}\",partition=\"{}\"", escaped(self.keyspace), self.number)
    }
}

/// A label's value as the format wants it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        self.line(format_args!("{name}{{{labels}}} {value}"));
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.line(format_args!("{name} {value}"));
    }

    fn histogram(&mut self, name: &str, help: &str, latency: &Latency) {
        self.family(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        let mut count = 0;
        for (bound_us, more) in Latency::BOUNDS_US.iter().zip(latency.counts) {
            count += more;
            self.sample(&bucket, &format!("le=\"{}\"", *bound_us as f64 / 1e6), count);
        }
        count += latency.counts[Latency::BOUNDS_US.len()];
        self.sample(&bucket, "le=\"+Inf\"", count);
        self.line(format_args!("{name}_sum {}", latency.total.as_secs_f64()));
        self.line(format_args!("{name}_count {count}"));
    }

    fn line(&mut self, line: impl Display) {
        writeln!(self.0, "{line}").expect("writing into memory");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serried_model::{Durability, NodeId};
    use serried_wire::{NodeStatistics, NotVoting, Statistics};

    use super::*;

    #[test]
    fn every_sample_has_its_family_and_a_histogram_adds_up() {
        let statistics = NodeStatistics {
            node: NodeId(1),
            counters: Statistics { log_flushes: 3, ..Statistics::default() },
            connections: 2,
            process_cpu: Duration::from_millis(1500),
            process_id: 7,
        };
        let status = NodeStatus {
            version: "1.2.3".to_string(),
            incarnation: 9,
            uptime: Duration::from_secs(60),
            durability: Durability::Sync,
            cores: 2,
            partitions: 1,
            nodes: 3,
            reached: 3,
            obstacle: None,
            not_served: vec![NotServed {
                name: "new".to_string(),
                reason: "n1 has none".to_string(),
            }],
            outside: vec![NotServed { name: "a".to_string(), reason: "it has a@1".to_string() }],
            spans_all: true,
            sites: Vec::new(),
            behind: None,
            not_voting: Some(NotVoting { partitions: 2, remaining: Duration::from_secs(5) }),
            clock_off: None,
            flush_under_way: Some(Duration::from_secs(2)),
            flush_lag: 0,
            held_bytes: 0,
            waiting_bytes: 0,
            statistics,
        };
        let mut latency = Latency { total: Duration::from_millis(3), ..Latency::default() };
        (latency.counts[0], latency.counts[12]) = (2, 1);
        let counts = PartitionCounts { messages_received: 5, ..PartitionCounts::default() };
        let partition = |number, gauges| Partition { keyspace: "a \"b\"", number, counts, gauges };
        let partitions = vec![
            partition(3, vec![("resident_keys", 9), ("catching_up", 0)]),
            partition(4, vec![("resident_keys", 8)]),
        ];
        let resident_bytes = Some(4096);
        let text = Exposed { status: &status, latency, partitions, resident_bytes }.text();
        for line in [
            "serried_build_info{version=\"1.2.3\",node=\"n1\",incarnation=\"9\",durability=\"sync\"} 1",
            "serried_uptime_seconds 60",
            "serried_log_flushes_total 3",
            "serried_partitions_catching_up 0",
            "serried_partitions_not_voting 2",
            "serried_flush_under_way_seconds 2",
            "process_cpu_seconds_total 1.5",
            "serried_partition_messages_total{keyspace=\"a \\\"b\\\"\",partition=\"3\"} 5",
            "serried_partition_resident_keys{keyspace=\"a \\\"b\\\"\",partition=\"4\"} 8",
            "serried_partition_catching_up{keyspace=\"a \\\"b\\\"\",partition=\"3\"} 0",
            "process_resident_memory_bytes 4096",
            "serried_keyspace_not_served{keyspace=\"new\",reason=\"n1 has none\"} 1",
            "serried_keyspace_outside{keyspace=\"a\",reason=\"it has a@1\"} 1",
            "serried_log_flush_seconds_bucket{le=\"0.00005\"} 2",
            "serried_log_flush_seconds_bucket{le=\"1\"} 2",
            "serried_log_flush_seconds_bucket{le=\"+Inf\"} 3",
            "serried_log_flush_seconds_count 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        let mut family = "";
        for line in text.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(rest) => family = rest.split(' ').next().unwrap(),
                None if line.starts_with('#') => {}
                None => assert!(line.starts_with(family), "{line} in {family}"),
            }
        }
    }
}
