//! The contents of a figure's page.

use serried_model::FamilyName;
use serried_sim::CostModel;

use super::chart::{Chart, STYLES};
use super::text::Table;
use crate::effort::Search;
use crate::figure::{Calls, Districts, Load, Parameter, Servers, Warehouses, Work, is_known};
use crate::findings::Finding;
use crate::{Costs, Effort, Findings};

/// The contents of a figure's page.
pub(super) struct Page {
    pub(super) title: String,
    pub(super) summary: &'static str,
    /// The set-up, in a few sentences.
    pub(super) set_up: String,
    /// The style and the name of each line.
    pub(super) legend: Vec<(usize, String)>,
    pub(super) charts: Vec<Chart>,
    pub(super) sections: Vec<Section>,
    /// What a reader must know to compare the paper's numbers with ours.
    pub(super) remarks: Vec<String>,
    /// The sources of the paper's numbers.
    pub(super) sources: Vec<String>,
}

/// A table with its text.
pub(super) struct Section {
    pub(super) heading: &'static str,
    pub(super) table: Table,
    pub(super) note: Option<&'static str>,
}

impl Page {
    pub(super) fn new(findings: &Findings) -> Page {
        let legend = findings.protocols().into_iter().enumerate();
        let legend = legend.map(|(style, name)| (style % STYLES, findings.label(name)));
        let missing = findings.missing.iter().map(|name| absent(name));
        let remarks = findings.remarks.iter().map(ToString::to_string);
        Page {
            title: findings.title.clone(),
            summary: findings.summary,
            set_up: set_up(findings),
            legend: legend.collect(),
            charts: findings.charts(),
            sections: findings.sections(),
            remarks: missing.chain(remarks).collect(),
            sources: sources(findings),
        }
    }
}

impl Findings {
    /// The paper's name of a system, with a remark if it is missing.
    pub(super) fn label(&self, protocol: &str) -> String {
        let system = self.figure.systems.iter().find(|system| system.protocol == protocol);
        let name = system.map_or(protocol, |system| system.label);
        match self.missing.contains(&protocol) {
            true => format!("{name} (not there)"),
            false => name.to_string(),
        }
    }
}

impl Parameter {
    /// Its name in a table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Parameter::Cores => "cores",
            Parameter::Theta => "theta",
            Parameter::Conflicts => "conflicts",
            Parameter::Writes => "writes",
            Parameter::SubRequests => "sub-requests",
            Parameter::Servers => "servers",
            Parameter::ClientsPerServer => "clients/server",
            Parameter::Writers => "writers",
            Parameter::CountersPerCall => "counters",
            Parameter::FlushMs => "log flush ms",
            Parameter::FreshnessMs => "freshness ms",
            Parameter::RecoveryAfter => "timeout s",
        }
    }

    /// Its name on an axis.
    pub(super) fn axis(self) -> &'static str {
        match self {
            Parameter::Cores => "cores per replica",
            Parameter::Theta => "Zipf exponent θ",
            Parameter::Conflicts => "conflicts, %",
            Parameter::Writes => "writes, %",
            Parameter::SubRequests => "sub-requests",
            Parameter::Servers => "servers",
            Parameter::ClientsPerServer => "clients per server",
            Parameter::Writers => "clients that only write",
            Parameter::CountersPerCall => "counters per call",
            Parameter::FlushMs => "time to make a log durable, ms",
            Parameter::FreshnessMs => "how far sessions stay behind, ms",
            Parameter::RecoveryAfter => "timeout, s",
        }
    }

    /// The factor by which an axis shows it.
    pub(super) fn scale(self) -> f64 {
        match self {
            Parameter::Conflicts | Parameter::Writes => 100.0,
            _ => 1.0,
        }
    }
}

/// Why a system of the paper is missing.
fn absent(protocol: &str) -> String {
    match is_known(protocol) {
        true => format!("`{protocol}` was not asked for"),
        false => format!("`{protocol}` is not in this build, and is left out"),
    }
}

/// The set-up, in a few sentences.
fn set_up(findings: &Findings) -> String {
    let (effort, figure) = (&findings.effort, findings.figure);
    let Servers { replicas, partitions, cores } = figure.servers;
    let mut places: Vec<&str> = Vec::new();
    for panel in figure.panels {
        let geography = panel.geography.unwrap_or(figure.geography);
        if !places.contains(&geography) {
            places.push(geography);
        }
    }
    let places: Vec<String> = places.iter().map(|place| format!("`{place}`")).collect();
    let partitions = count(partitions.into(), "partition");
    let (replicas, cores) = (count(replicas as u64, "replica"), count(cores.into(), "core"));
    let clients = match (&effort.search, figure.load) {
        (Search::Rates { clients, .. }, Load::Open(open)) => {
            format!(
                "{clients} clients in open loops with at most {} transactions open at each",
                open.most_open
            )
        }
        (_, _) if matches!(figure.work, Work::ReadOnly(_)) => {
            "4 clients that read, and others that write".to_string()
        }
        _ if figure.families() == [FamilyName::Procedures] => "clients in closed loops".to_string(),
        _ => "clients at each site in closed loops".to_string(),
    };
    let (requests, done) = match figure.work {
        Work::Transactions(work) => {
            let most_s = work.backoff_most_ms as f64 / 1e3;
            (format!("random exponential backoff up to {most_s} s"), "transactions")
        }
        Work::Registers { .. } => ("thrifty messages".to_string(), "operations"),
        Work::Procedures(work) => (of_calls(work, effort), "calls"),
        Work::Snapshots(work) => (format!("{} keys", effort.size.unwrap_or(work.size)), "requests"),
        Work::ReadOnly(work) => (format!("{} keys", effort.size.unwrap_or(work.keys)), "reads"),
    };
    format!(
        "Simulated in {}: {partitions} of {replicas} with {cores}, {clients}, {requests}. Each run warms up for \
         {} s and is measured for {} s, or until {} {done} have been done.{} {} Seed {}.",
        places.join(", "),
        effort.warm_up_s,
        effort.measured_s,
        figure.most_operations(effort),
        at_places(findings),
        match figure.work {
            Work::ReadOnly(_) => "Computing takes no time.".to_string(),
            _ => costs(findings.costs),
        },
        findings.seed
    )
}

/// The size of a workload of procedures, in words.
fn of_calls(work: Calls, effort: &Effort) -> String {
    let size = effort.size.unwrap_or(work.size);
    let backoff = match work.backoff_most_ms {
        0 => "no wait before a retry".to_string(),
        most => format!("random exponential backoff up to {} s", most as f64 / 1e3),
    };
    let size = match work.tpcc {
        None => format!("{size} keys"),
        Some(Warehouses { customers, districts }) => {
            let districts = match districts {
                Districts::OfOneWarehouse { per_server } => {
                    format!("one warehouse with {per_server} districts for each partition")
                }
                Districts::OfWarehouses { warehouses } => {
                    format!("{warehouses} warehouses with 10 districts each")
                }
            };
            format!("{districts}, {customers} customers in each and {size} items")
        }
    };
    format!("{size}, {backoff}")
}

/// A number with its noun.
fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// The load at the places of a figure of open loops, in words.
fn at_places(findings: &Findings) -> String {
    let Load::Open(open) = findings.figure.load else { return String::new() };
    let share = open.share * 100.0;
    match (findings.figure.swept, findings.effort.deaths) {
        (None, _) => String::new(),
        (Some(_), None) => format!(" At the places {share} % of the highest is offered."),
        (Some(_), Some(deaths)) => format!(
            " Then {share} % of the highest is offered, after {} s all clients die, and as many others go on for {} s.",
            deaths.at_s, deaths.then_s
        ),
    }
}

/// The costs of computing, in a sentence.
fn costs(Costs { replica, client }: Costs) -> String {
    let costs = |costs: CostModel| {
        let [event, sent, unit] =
            [costs.event_ns, costs.sent_message_ns, costs.work_unit_ns].map(|ns| ns as f64 / 1e3);
        format!("{event} µs per event, {sent} µs per message sent, {unit} µs per key")
    };
    format!("CPU of replicas: {}; of clients: {}.", costs(replica), costs(client))
}

/// The sources of the paper's numbers.
fn sources(findings: &Findings) -> Vec<String> {
    let line = |finding: &Finding| {
        let x = finding.x.map_or(String::new(), |x| format!(" at {x}"));
        let (panel, systems, what) = (finding.panel, &finding.systems, &finding.what);
        format!("{panel}{x}, {systems}: {what}: {}", finding.source)
    };
    findings.findings.iter().map(line).collect()
}
