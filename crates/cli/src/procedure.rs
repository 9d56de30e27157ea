//! `serried procedure`: the stored procedures of a keyspace.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::json;
use serried::{CallOptions, Database, ProcedureKeyspace, RegisteredSet};
use serried_procedures::{Field, ProcedureSet};

use crate::{Ended, chop, data};

/// Register stored procedures at a running cluster, list them, or remove one.
///
/// A keyspace has one set of procedures, which all servers change at the same time, when no calls of the former set are
/// under way. Each change is checked as `serried chop` does it: concurrent calls have to be reorderable.
#[derive(Args)]
#[command(after_help = "\
Examples:
  serried procedure add serried://127.0.0.1:7400 shop.toml --keyspace shop
  serried procedure list serried://127.0.0.1:7400 --keyspace shop
  serried procedure remove serried://127.0.0.1:7400 transfer --keyspace shop
  serried shell serried://127.0.0.1:7400 --keyspace shop -e 'call transfer from=1 to=2 amount=30'")]
pub(crate) struct Procedures {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Add the tables and procedures of a file to those that are registered
    ///
    /// A procedure takes the place of one of the same name. A table that is registered can't be declared otherwise.
    Add {
        #[command(flatten)]
        place: Place,
        /// The procedure file
        file: PathBuf,
        /// Merge pieces that could not be reordered into atomic ones
        #[arg(long)]
        merge: bool,
    },
    /// List the procedures that are registered, with their inputs and results
    List {
        #[command(flatten)]
        place: Place,
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a procedure; the tables and their rows stay
    Remove {
        #[command(flatten)]
        place: Place,
        /// The procedure
        name: String,
    },
}

/// Which keyspace.
#[derive(Args)]
struct Place {
    /// The cluster's address: serried://host:port,host:port
    address: String,
    /// The keyspace
    #[arg(long, default_value = "default")]
    keyspace: String,
    /// Give up after this many seconds
    #[arg(long, default_value_t = 10.0)]
    deadline: f64,
}

impl Place {
    /// Does something with the keyspace.
    async fn with<T>(
        &self,
        act: impl AsyncFnOnce(ProcedureKeyspace) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        anyhow::ensure!(
            (0.0..1e6).contains(&self.deadline),
            "--deadline must be 0 or more seconds"
        );
        let database = Database::connect(&self.address).await?;
        let options = CallOptions {
            deadline: Duration::from_secs_f64(self.deadline),
            ..CallOptions::default()
        };
        let keyspace = database.procedures(&self.keyspace).await?.with_options(options);
        let result = act(keyspace).await;
        database.close().await;
        result
    }
}

impl Procedures {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.act())
    }

    async fn act(self) -> anyhow::Result<Ended> {
        match self.action {
            Action::Add { place, file, merge } => {
                // A file that is wrong is not worth a connection.
                let added = read(&file, merge)?;
                let version = place
                    .with(async |keyspace: ProcedureKeyspace| add(&keyspace, &added, merge).await)
                    .await?;
                println!("version {version} is in use");
            }
            Action::List { place, json } => {
                let listed = async |keyspace: ProcedureKeyspace| Ok(keyspace.procedures().await?);
                let RegisteredSet { version, set } = place.with(listed).await?;
                print(version, &set, json);
            }
            Action::Remove { place, name } => {
                let remove = async |keyspace: ProcedureKeyspace| remove(&keyspace, &name).await;
                println!("version {} is in use", place.with(remove).await?);
            }
        }
        Ok(Ended::Well)
    }
}

/// Reads the procedures of a file, and checks them.
pub(crate) fn read(file: &Path, merge: bool) -> anyhow::Result<ProcedureSet> {
    let mut set = chop::compile(file)?;
    check(&mut set, merge).with_context(|| file.display().to_string())?;
    Ok(set)
}

/// Adds procedures to those that are registered. Returns the version of the set that is then in use.
pub(crate) async fn add(
    keyspace: &ProcedureKeyspace,
    added: &ProcedureSet,
    merge: bool,
) -> anyhow::Result<u64> {
    let RegisteredSet { version, set } = keyspace.procedures().await?;
    let mut all = set.with(added)?;
    check(&mut all, merge).context("together with the procedures that are registered")?;
    Ok(keyspace.register_in_place_of(version, all).await?)
}

async fn remove(keyspace: &ProcedureKeyspace, name: &str) -> anyhow::Result<u64> {
    let RegisteredSet { version, set } = keyspace.procedures().await?;
    let left = set.without(name).with_context(|| {
        let names = set.procedures.iter().map(|procedure| procedure.name.as_str());
        let names: Vec<&str> = names.collect();
        format!("there is no procedure `{name}`; there are: {}", names.join(", "))
    })?;
    let mut left = left;
    check(&mut left, false)?;
    Ok(keyspace.register_in_place_of(version, left).await?)
}

/// Decides which pieces are immediate, and refuses a set whose pieces can't be reordered.
fn check(set: &mut ProcedureSet, merge: bool) -> anyhow::Result<()> {
    if merge {
        serried_chop::check_and_merge(set);
        return Ok(());
    }
    serried_chop::check(set).map_err(|cycle| {
        anyhow::anyhow!("{cycle}, as --merge does, or let fewer pieces need the outputs of others")
    })
}

/// Prints procedures with their inputs and results.
pub(crate) fn print(version: u64, set: &ProcedureSet, json: bool) {
    if json {
        let fields = |fields: &mut dyn Iterator<Item = &Field>| -> serde_json::Value {
            let field = |field: &Field| json!({ "name": field.name, "type": field.of.to_string() });
            fields.map(field).collect()
        };
        let procedures = set.procedures.iter().map(|procedure| {
            let mut returned = procedure.returns.iter().map(|returned| &returned.field);
            json!({
                "name": procedure.name,
                "inputs": fields(&mut procedure.inputs.iter()),
                "returns": fields(&mut returned),
                "read_only": procedure.is_read_only(),
                "pieces": procedure.pieces.len(),
            })
        });
        let procedures: Vec<_> = procedures.collect();
        println!("{}", json!({ "version": version, "procedures": procedures }));
        return;
    }
    if version == 0 {
        println!("no procedures were ever registered");
        return;
    }
    println!("version {version}");
    for procedure in &set.procedures {
        let returned: Vec<Field> =
            procedure.returns.iter().map(|returned| returned.field.clone()).collect();
        let read_only = if procedure.is_read_only() { " (read-only)" } else { "" };
        println!("{}{read_only}", procedure.name);
        println!("  takes    {}", data::declared(&procedure.inputs));
        println!("  returns  {}", data::declared(&returned));
    }
}
