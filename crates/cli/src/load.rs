//! What `sim`, `bench` and `demo` do alike with the clients of one run.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use serried_actor::Timestamp;
use serried_workload::{InspectionError, Measurement, Window, Witness};

use crate::arguments::{LoadArguments, OpenLoopArguments};
use crate::table::Row;
use crate::wing::{Wing, promises_nothing};
use crate::{Ended, judge};

/// The result of a workload's inspection of a database at rest.
pub(crate) type Inspected = Result<Option<String>, InspectionError>;

/// A client at work.
pub(crate) type Client = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The clients of one run, and their results.
pub(crate) struct Load<W: Wing> {
    pub(crate) protocol: String,
    pub(crate) clients: usize,
    pub(crate) measurement: Arc<Measurement>,
    pub(crate) workload: Arc<W::Workload>,
    /// Records what clients do, if that is to be checked or written.
    pub(crate) recorder: Option<Arc<W::Recorder>>,
    pub(crate) open_loop: OpenLoopArguments,
    pub(crate) seed: u64,
    /// What clients have in common.
    pub(crate) shared: Arc<W::Shared>,
    /// Whether clients share a session.
    pub(crate) shares_sessions: bool,
    /// Whether the staleness of what is read is measured.
    pub(crate) measures_staleness: bool,
    options: W::Options,
    history_file: Option<PathBuf>,
}

impl<W: Wing> Load<W> {
    /// A load of this many clients that begins at `now`; one of `several` runs, or the only one.
    pub(crate) fn new(
        arguments: &LoadArguments,
        (protocol, several): (&str, bool),
        clients: usize,
        workload: Arc<W::Workload>,
        now: Timestamp,
    ) -> Load<W> {
        let [warm_up, cool_down] =
            [arguments.warm_up, arguments.cool_down].map(std::time::Duration::from_secs_f64);
        let window = Window::new(now, warm_up, arguments.measured(), cool_down);
        Load {
            protocol: protocol.to_string(),
            clients,
            measurement: Arc::new(Measurement::new(window)),
            workload,
            recorder: arguments.records().then(Arc::default),
            open_loop: arguments.open_loop.clone(),
            seed: arguments.seed,
            shared: Arc::default(),
            shares_sessions: arguments.sessions.are_shared(),
            measures_staleness: arguments.sessions.staleness(),
            options: W::options(arguments),
            history_file: arguments.history_file(protocol, clients, several),
        }
    }

    /// The same, and `witness` sees every transaction that commits. Before any client is made.
    pub(crate) fn with_witness(self, witness: Witness) -> Load<W> {
        let measurement = Measurement::new(self.measurement.window()).with_witness(witness);
        Load { measurement: Arc::new(measurement), ..self }
    }

    /// The `i`-th client, at `keyspace`.
    pub(crate) fn client(&self, i: usize, keyspace: &W::Keyspace) -> Client {
        W::client(self, i, W::with_options(keyspace, self.options))
    }

    /// When all clients are done: what the workload finds out about the database that they leave
    /// behind, if anything is to be checked.
    pub(crate) async fn inspect(&self, keyspace: &W::Keyspace) -> Inspected {
        if self.recorder.is_none() || promises_nothing(&self.protocol) {
            return Ok(None);
        }
        W::inspect(self, &W::with_options(keyspace, self.options)).await
    }

    /// The results of the run, and the verdict on the database and on its history. `before` is what is known of the
    /// data from before the run.
    pub(crate) fn finish(
        self,
        before: W::Before,
        inspected: Inspected,
        quiet: bool,
    ) -> anyhow::Result<(Row, Ended)> {
        let report = self.measurement.report();
        let figures = W::figures(&self.workload, &report, &self.shared).into_iter().collect();
        let promised = serried_protocols::info(&self.protocol).map(|info| info.guarantee);
        let recorder = self.recorder;
        let recorder =
            recorder.map(|recorder| Arc::into_inner(recorder).expect("all clients are done"));
        let file = self.history_file.as_deref();
        let judge = |recorder| W::judge(&self.workload, recorder, promised, before, file);
        let of_history = recorder.map(judge).transpose()?;
        let mut row = Row {
            protocol: self.protocol,
            workload: W::name(&self.workload).to_string(),
            columns: W::COLUMNS,
            clients: self.clients,
            report,
            figures,
            costs: None,
            simulation: None,
            verdict: None,
        };
        let mut ended = Ended::Well;
        for (run_ended, word, text) in
            [of_history, judge::inspected(inspected)].into_iter().flatten()
        {
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
