//! The client processes of a torture.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_model::FamilyName;

use super::client::LOOPS;
use super::settling::settled;
use super::{Kind, TICK, Torture};

pub(super) struct Clients {
    program: PathBuf,
    folder: PathBuf,
    address: String,
    /// How many sites the keyspaces have.
    sites: u64,
    seed: u64,
    begun_ms: u64,
    running: Vec<Running>,
    /// The histories of all that ever ran.
    histories: Vec<Followed>,
    progress: Progress,
    kills: u64,
}

struct Running {
    kind: Kind,
    process: Child,
    history: PathBuf,
    /// The histories of killed clients, whose calls of unknown outcome it settles.
    settles: Vec<PathBuf>,
}

/// A history that is still being written.
struct Followed {
    kind: Kind,
    file: PathBuf,
    counted: u64,
    /// Whether it has only the ends of calls that another client has settled.
    settled: bool,
}

/// What all histories contain so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Progress {
    begun: u64,
    pub(super) committed: u64,
    failed: u64,
}

impl Progress {
    /// Those that are neither known to have committed nor to have failed.
    pub(super) fn unknown(self) -> u64 {
        self.begun - self.committed - self.failed
    }
}

impl Clients {
    pub(super) fn start(
        torture: &Torture,
        folder: &Path,
        addresses: &[String],
    ) -> anyhow::Result<Clients> {
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut clients = Clients {
            program: std::env::current_exe().context("can't find this program's own file")?,
            folder: folder.to_path_buf(),
            address: format!("serried://{}", addresses.join(",")),
            sites: u64::from(torture.sites),
            seed: torture.seed,
            begun_ms: begun.as_millis() as u64,
            running: Vec::new(),
            histories: Vec::new(),
            progress: Progress::default(),
            kills: 0,
        };
        for kind in torture.workload.kinds() {
            for _ in 0..torture.clients {
                let started = clients.spawn(*kind, Vec::new())?;
                clients.running.push(started);
            }
        }
        Ok(clients)
    }

    /// Starts a client that settles the calls of these histories.
    fn spawn(&mut self, kind: Kind, settles: Vec<PathBuf>) -> anyhow::Result<Running> {
        let number = self.histories.iter().filter(|history| !history.settled).count() as u64;
        let file = self.folder.join(format!("client-{number}.jsonl"));
        let log = File::create(file.with_extension("log"))
            .with_context(|| format!("can't write to {}", self.folder.display()))?;
        let mut command = Command::new(&self.program);
        let address = match self.sites {
            1 => self.address.clone(),
            sites => format!("{}?home={}", self.address, number % sites),
        };
        command.arg("torture-client").arg("--connect").arg(address);
        command.arg("--workload").arg(kind.name()).arg("--history").arg(&file);
        command.arg("--first-process").arg((number * LOOPS).to_string());
        command.arg("--begun-ms").arg(self.begun_ms.to_string());
        command.arg("--seed").arg(self.seed.to_string());
        for history in &settles {
            command.arg("--settles").arg(history);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        let process = command.spawn().context("can't start a client")?;
        let follow = |file, settled| Followed { kind, file, counted: 0, settled };
        self.histories.push(follow(file.clone(), false));
        self.histories.extend(settles.iter().map(|killed| follow(settled(killed), true)));
        Ok(Running { kind, process, history: file, settles })
    }

    /// How many were killed so far.
    pub(super) fn kills(&self) -> u64 {
        self.kills
    }

    /// The histories of all clients of `kind`.
    pub(super) fn histories(&self, kind: Kind) -> Vec<PathBuf> {
        let of_kind = self.histories.iter();
        let of_kind = of_kind.filter(|history| history.kind == kind && !history.settled);
        of_kind.map(|history| history.file.clone()).collect()
    }

    /// Makes sure that none has ended by itself.
    pub(super) fn watch(&mut self) -> anyhow::Result<()> {
        for client in &mut self.running {
            if let Some(status) = client.process.try_wait()? {
                anyhow::bail!(
                    "a client of {} ended by itself, {status}: see the logs of clients in {}",
                    client.kind.name(),
                    self.folder.display()
                );
            }
        }
        Ok(())
    }

    /// Kills one, and starts another in its place.
    pub(super) fn kill_one(&mut self, random: &mut Pcg64Mcg) -> anyhow::Result<()> {
        let victim = random.random_range(0..self.running.len());
        let process = &mut self.running[victim].process;
        process.kill().context("can't kill a client")?;
        process.wait()?;
        self.kills += 1;
        let Running { kind, history, settles, .. } = &self.running[victim];
        let mut unsettled = Vec::new();
        if kind.family() == FamilyName::Procedures {
            unsettled.extend(settles.iter().filter(|killed| !settled(killed).exists()).cloned());
            unsettled.push(history.clone());
            // What it has settled is still followed, and what it has not is followed again.
            let settles = unsettled.clone();
            self.histories.retain(|of| {
                !of.settled || !settles.iter().any(|killed| settled(killed) == of.file)
            });
        }
        self.running[victim] = self.spawn(*kind, unsettled)?;
        Ok(())
    }

    /// Waits until all have finished their transactions.
    pub(super) fn stop(&mut self, within: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + within;
        // They stop at the end of their input.
        self.running.iter_mut().for_each(|client| drop(client.process.stdin.take()));
        for client in &mut self.running {
            let status = loop {
                if let Some(status) = client.process.try_wait()? {
                    break status;
                }
                anyhow::ensure!(
                    Instant::now() < until,
                    "a client has not finished {} s after the last kill",
                    within.as_secs()
                );
                std::thread::sleep(TICK);
            };
            anyhow::ensure!(
                status.success(),
                "a client failed, {status}: see the logs of clients in {}",
                self.folder.display()
            );
        }
        self.running.clear();
        Ok(())
    }

    /// What clients have done so far.
    pub(super) fn progress(&mut self) -> anyhow::Result<Progress> {
        for history in &mut self.histories {
            // A client that has just been started has none yet.
            let Ok(mut file) = File::open(&history.file) else { continue };
            file.seek(SeekFrom::Start(history.counted))?;
            let mut lines = BufReader::new(file);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
                let says = |kind: &[u8]| line.windows(kind.len()).any(|window| window == kind);
                self.progress.begun += u64::from(says(br#""type":"invoke""#));
                self.progress.committed += u64::from(says(br#""type":"ok""#));
                self.progress.failed += u64::from(says(br#""type":"fail""#));
                history.counted += line.len() as u64;
                line.clear();
            }
        }
        Ok(self.progress)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        for client in &mut self.running {
            let _ = client.process.kill();
            let _ = client.process.wait();
        }
    }
}
