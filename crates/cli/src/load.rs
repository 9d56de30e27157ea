//! What `sim`, `bench` and `demo` do alike with the clients of one run.

use std::path::PathBuf;
use std::sync::Arc;

use serried_actor::Timestamp;
use serried_history::Recorder;
use serried_session::Keyspace;
use serried_workload::{
    ClosedLoop, InspectionError, Measurement, Window, Witness, Workload, inspect,
};

use crate::arguments::LoadArguments;
use crate::table::Row;
use crate::{Ended, judge};

/// What a workload has to say of a database at rest.
pub(crate) type Inspected = Result<Option<String>, InspectionError>;

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

    /// The same, and `witness` sees every transaction that commits. Before any client is made.
    pub(crate) fn with_witness(self, witness: Witness) -> Load {
        let measurement = Measurement::new(self.measurement.window()).with_witness(witness);
        Load { measurement: Arc::new(measurement), ..self }
    }

    /// The `i`-th client, at `keyspace`.
    pub(crate) fn client(&self, i: usize, keyspace: &Keyspace) -> ClosedLoop {
        ClosedLoop {
            keyspace: keyspace.with_options(self.options),
            workload: self.workload.clone(),
            measurement: self.measurement.clone(),
            recorder: self.recorder.clone(),
            client: i as u64,
            seed: self.seed,
        }
    }

    /// When all clients are done: what the workload finds out about the database that they leave
    /// behind, if anything is to be checked.
    pub(crate) async fn inspect(&self, keyspace: &Keyspace) -> Inspected {
        match self.recorder {
            None => Ok(None),
            Some(_) => {
                let keyspace = keyspace.with_options(self.options);
                inspect(&*self.workload, &keyspace, self.measurement.latest()).await
            }
        }
    }

    /// What the run came to, and the verdict on its history, where everything up to `loaded` was there
    /// before, and on the database.
    pub(crate) fn finish(
        self,
        loaded: Option<serried_model::Version>,
        inspected: Inspected,
        quiet: bool,
    ) -> anyhow::Result<(Row, Ended)> {
        let report = self.measurement.report();
        let figures = self.workload.figures(&report).into_iter().collect();
        let mut row = Row {
            protocol: self.protocol,
            workload: self.workload.name().to_string(),
            clients: self.clients,
            report,
            figures,
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
        let of_history = judge::judge(&history, &*self.workload, loaded);
        let verdicts = [Some(of_history), judge::inspected(inspected)];
        let mut ended = Ended::Well;
        for (run_ended, word, text) in verdicts.into_iter().flatten() {
            if !quiet {
                println!("{}, {} clients: {text}", row.protocol, row.clients);
            }
            if row.verdict.is_none() || ended.and(run_ended) != ended {
                row.verdict = Some(word);
            }
            ended = ended.and(run_ended);
        }
        Ok((row, ended))
    }
}
