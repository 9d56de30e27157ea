//! What `sim`, `bench` and `demo` do alike with the clients of one run.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use serried_actor::Timestamp;
use serried_history::{Recorder, RegisterRecorder};
use serried_model::Guarantee;
use serried_session::Keyspace;
use serried_workload::{
    ClosedLoop, InspectionError, Measurement, OpenLoop, RegisterClient, RegisterWorkload, Window,
    Witness, Workload, inspect,
};

use crate::arguments::{LoadArguments, OpenLoopArguments};
use crate::family::{self, Clients, Place};
use crate::judge::Judged;
use crate::table::Row;
use crate::{Ended, judge};

/// What a workload has to say of a database at rest.
pub(crate) type Inspected = Result<Option<String>, InspectionError>;

/// A client at work.
pub(crate) type Client = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What clients do, and where that is recorded, if it is.
enum Recorded {
    Transactions(Arc<dyn Workload>, Option<Arc<Recorder>>),
    Registers(Arc<dyn RegisterWorkload>, Option<Arc<RegisterRecorder>>),
}

/// The clients of one run, and what they leave behind.
pub(crate) struct Load {
    pub(crate) protocol: String,
    pub(crate) clients: usize,
    pub(crate) measurement: Arc<Measurement>,
    recorded: Recorded,
    open_loop: OpenLoopArguments,
    options: serried_session::TransactOptions,
    seed: u64,
    history_file: Option<PathBuf>,
}

impl Load {
    /// A load of so many clients that begins at `now`; one of `several` runs, or the only one.
    pub(crate) fn new(
        arguments: &LoadArguments,
        (protocol, several): (&str, bool),
        clients: usize,
        what: Clients,
        now: Timestamp,
    ) -> Load {
        let [warm_up, seconds, cool_down] =
            [arguments.warm_up, arguments.seconds, arguments.cool_down]
                .map(std::time::Duration::from_secs_f64);
        let window = Window::new(now, warm_up, seconds, cool_down);
        let records = arguments.records();
        let recorded = match what {
            Clients::Transactions(workload) => {
                Recorded::Transactions(workload, records.then(Arc::default))
            }
            Clients::Registers(workload) => {
                Recorded::Registers(workload, records.then(Arc::default))
            }
        };
        Load {
            protocol: protocol.to_string(),
            clients,
            measurement: Arc::new(Measurement::new(window)),
            recorded,
            open_loop: arguments.open_loop.clone(),
            options: arguments.options(),
            seed: arguments.seed,
            history_file: arguments.history_file(protocol, clients, several),
        }
    }

    /// The same, and `witness` sees every transaction that commits. Before any client is made.
    pub(crate) fn with_witness(self, witness: Witness) -> Load {
        let measurement = Measurement::new(self.measurement.window()).with_witness(witness);
        Load { measurement: Arc::new(measurement), ..self }
    }

    /// The `i`-th client, at `place`, which is of the workload's family.
    pub(crate) fn client(&self, i: usize, place: &Place) -> Client {
        let (client, seed, measurement) = (i as u64, self.seed, self.measurement.clone());
        match (&self.recorded, place) {
            (Recorded::Transactions(workload, recorder), Place::Keyspace(keyspace)) => {
                let (workload, recorder) = (workload.clone(), recorder.clone());
                let keyspace = keyspace.with_options(self.options);
                let OpenLoopArguments { rate, most_open } = self.open_loop;
                let Some(rate) = rate else {
                    let client =
                        ClosedLoop { keyspace, workload, measurement, recorder, client, seed };
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
                    rate_per_s: rate / self.clients as f64,
                    most_open,
                };
                Box::pin(client.run())
            }
            (Recorded::Registers(workload, recorder), Place::Registers(registers)) => {
                let (workload, recorder) = (workload.clone(), recorder.clone());
                let registers = registers.with_options(self.options);
                let client = RegisterClient {
                    registers,
                    workload,
                    measurement,
                    recorder,
                    epoch_ns: 0,
                    client,
                    seed,
                };
                Box::pin(client.run())
            }
            _ => unreachable!("the workload fits the protocol"),
        }
    }

    /// When all clients are done: what the workload finds out about the database that they leave
    /// behind, if anything is to be checked.
    pub(crate) async fn inspect(&self, place: &Place) -> Inspected {
        match (&self.recorded, place) {
            (Recorded::Transactions(workload, Some(_)), Place::Keyspace(keyspace))
                if !family::promises_nothing(&self.protocol) =>
            {
                let keyspace: Keyspace = keyspace.with_options(self.options);
                inspect(&**workload, &keyspace, self.measurement.latest()).await
            }
            _ => Ok(None),
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
        let (name, family, figures) = match &self.recorded {
            Recorded::Transactions(workload, _) => {
                let figures = workload.figures(&report).into_iter().collect();
                (workload.name(), serried_model::Family::Transactions, figures)
            }
            Recorded::Registers(workload, _) => {
                (workload.name(), serried_model::Family::Registers, Default::default())
            }
        };
        let of_history = self.recorded.judge(&self.protocol, loaded, self.history_file)?;
        let mut row = Row {
            protocol: self.protocol,
            workload: name.to_string(),
            family,
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

impl Recorded {
    /// The verdict on what was recorded, which also goes into a file, if there is one.
    fn judge(
        self,
        protocol: &str,
        loaded: Option<serried_model::Version>,
        file: Option<PathBuf>,
    ) -> anyhow::Result<Option<Judged>> {
        const DONE: &str = "all clients are done";
        let promised = family::info(protocol).map(|info| info.guarantee);
        match self {
            Recorded::Transactions(workload, Some(recorder)) => {
                let history = Arc::into_inner(recorder).expect(DONE).into_history();
                if let Some(file) = &file {
                    judge::write(file, |out| history.write_json_lines(out))?;
                }
                let guarantee = promised.unwrap_or(Guarantee::Serializable);
                Ok(Some(judge::judge(&history, &*workload, guarantee, loaded)))
            }
            Recorded::Registers(_, Some(recorder)) => {
                let history = Arc::into_inner(recorder).expect(DONE).into_history();
                if let Some(file) = &file {
                    judge::write(file, |out| history.write_json_lines(out))?;
                }
                let guarantee = promised.unwrap_or(Guarantee::Linearizable);
                Ok(Some(judge::judge_registers(&history, guarantee)))
            }
            _ => Ok(None),
        }
    }
}
