//! Transactions on the command line.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use serried::{TransactionKeyspace, Version};
use serried_history::Recorder;
use serried_model::{Guarantee, Transactions};
use serried_protocols::COMPARED;
use serried_sim::Initial;
use serried_workload::{ClosedLoop, OpenLoop, Report, Workload, inspect, preload};

use super::{Preparation, Wing, promises_nothing};
use crate::arguments::{LoadArguments, OpenLoopArguments, WorkloadArguments};
use crate::judge::{self, Judged};
use crate::load::{Client, Inspected, Load};

/// How many transactions load keys at the same time.
const LOADERS: u64 = 4;

impl Wing for Transactions {
    type Workload = dyn Workload;
    type Recorder = Recorder;

    fn workload(arguments: &WorkloadArguments) -> anyhow::Result<Arc<dyn Workload>> {
        arguments.transactions()
    }

    fn name(workload: &dyn Workload) -> &'static str {
        workload.name()
    }

    fn usual_protocols(_: &dyn Workload) -> Vec<String> {
        COMPARED.map(str::to_string).into()
    }

    fn check_offers(_: &dyn Workload, _: &str) -> anyhow::Result<()> {
        Ok(())
    }

    fn check_load(_: &dyn Workload, _: &LoadArguments) -> anyhow::Result<()> {
        Ok(())
    }

    fn initial(workload: &Arc<dyn Workload>) -> Option<Initial> {
        let workload = workload.clone();
        Some(Initial::new(move |key| workload.initial_value(key)))
    }

    /// Loads the workload's keys.
    async fn prepare(
        keyspace: &TransactionKeyspace,
        workload: &dyn Workload,
        preparation: Preparation<'_>,
    ) -> anyhow::Result<Option<Version>> {
        let keyspace = &keyspace.with_options(preparation.arguments.options());
        let marker = keyspace.put("\u{0}serried-bench", "").await?;
        let mut latest = marker.version;
        if preparation.loads {
            let loaded = Cell::new(0);
            let tell = |count| {
                loaded.set(loaded.get() + count);
                preparation.progress.say(format!("{} keys loaded", loaded.get()));
            };
            let load = |loader| preload(keyspace, workload, loader, LOADERS, tell);
            let (a, b, c, d) = tokio::try_join!(load(0), load(1), load(2), load(3))?;
            latest = [latest, a, b, c, d].into_iter().max().unwrap_or(latest);
        }
        Ok(Some(latest))
    }

    fn client(load: &Load<Transactions>, i: usize, keyspace: &TransactionKeyspace) -> Client {
        let (client, seed, measurement) = (i as u64, load.seed, load.measurement.clone());
        let (workload, recorder) = (load.workload.clone(), load.recorder.clone());
        let keyspace = keyspace.with_options(load.options);
        let OpenLoopArguments { rate, most_open } = load.open_loop;
        let Some(rate) = rate else {
            let client = ClosedLoop { keyspace, workload, measurement, recorder, client, seed };
            return Box::pin(client.run());
        };
        let client = OpenLoop {
            keyspace,
            workload,
            measurement,
            recorder,
            client,
            seed,
            // Poisson processes add up to one.
            rate_per_s: rate / load.clients as f64,
            most_open,
        };
        Box::pin(client.run())
    }

    async fn inspect(load: &Load<Transactions>, keyspace: &TransactionKeyspace) -> Inspected {
        if load.recorder.is_none() || promises_nothing(&load.protocol) {
            return Ok(None);
        }
        let keyspace = keyspace.with_options(load.options);
        inspect(&*load.workload, &keyspace, load.measurement.latest()).await
    }

    fn figures(workload: &dyn Workload, report: &Report) -> Vec<(&'static str, f64)> {
        workload.figures(report)
    }

    fn judge(
        workload: &dyn Workload,
        recorder: Recorder,
        promised: Option<Guarantee>,
        loaded: Option<Version>,
        file: Option<&Path>,
    ) -> anyhow::Result<Judged> {
        let history = recorder.into_history();
        if let Some(file) = file {
            judge::write(file, |out| history.write_json_lines(out))?;
        }
        let guarantee = promised.unwrap_or(Guarantee::Serializable);
        Ok(judge::judge(&history, workload, guarantee, loaded))
    }
}
