//! What `sim`, `bench` and `demo` do alike with the clients of one run.

use std::path::PathBuf;
use std::sync::Arc;

use serried_actor::Timestamp;
use serried_history::Recorder;
use serried_workload::{ClosedLoop, Measurement, Window, Workload};

use crate::arguments::LoadArguments;
use crate::table::Row;
use crate::{Ended, judge};

/// The clients of one run, and what they leave behind.
pub(crate) struct Load {
    pub(crate) protocol: String,
    pub(crate) clients: usize,
    pub(crate) workload: Arc<dyn Workload>,
    pub(crate) measurement: Arc<Measurement>,
    recorder: Option<Arc<Recorder>>,
    options: serried_session::TransactOptions,
    seed: u64,
    history_file: Option<PathBuf>,
}

impl Load {
    /// A load of `clients` that begins at `now`.
    pub(crate) fn new(
        arguments: &LoadArguments,
        protocol: &str,
        clients: usize,
        workload: Arc<dyn Workload>,
        now: Timestamp,
    ) -> Load {
        let [warm_up, seconds, cool_down] =
            [arguments.warm_up, arguments.seconds, arguments.cool_down]
                .map(std::time::Duration::from_secs_f64);
        let window = Window::new(now, warm_up, seconds, cool_down);
        Load {
            protocol: protocol.to_string(),
            clients,
            workload,
            measurement: Arc::new(Measurement::new(window)),
            recorder: arguments.records().then(|| Arc::new(Recorder::new())),
            options: arguments.options(),
            seed: arguments.seed,
            history_file: arguments.history_file(protocol, clients),
        }
    }

    /// The `i`-th client, at `keyspace`.
    pub(crate) fn client(&self, i: usize, keyspace: &serried_session::Keyspace) -> ClosedLoop {
        ClosedLoop {
            keyspace: keyspace.with_options(self.options),
            workload: self.workload.clone(),
            measurement: self.measurement.clone(),
            recorder: self.recorder.clone(),
            client: i as u64,
            seed: self.seed,
        }
    }

    /// When all clients are done: what the run came to, and the verdict on its history, where
    /// everything up to `loaded` was there before.
    pub(crate) fn finish(
        self,
        loaded: Option<serried_model::Version>,
        quiet: bool,
    ) -> anyhow::Result<(Row, Ended)> {
        let mut row = Row {
            protocol: self.protocol,
            workload: self.workload.name().to_string(),
            clients: self.clients,
            report: self.measurement.report(),
            costs: None,
            simulation: None,
            verdict: None,
        };
        let Some(recorder) = self.recorder else { return Ok((row, Ended::Well)) };
        let recorder = Arc::into_inner(recorder).expect("all clients are done");
        let history = recorder.into_history();
        if let Some(file) = &self.history_file {
            judge::write(&history, file)?;
        }
        let (ended, word, text) = judge::judge(&history, &*self.workload, loaded);
        if !quiet {
            println!("{}, {} clients: {text}", row.protocol, row.clients);
        }
        row.verdict = Some(word);
        Ok((row, ended))
    }
}
