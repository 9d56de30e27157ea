//! What tests of all protocols do with a keyspace. A new family implements [`Exercise`] here.

use serried_model::{Key, Modification, Registers, Snapshots, Transactions, Value, Write};
use serried_procedures::{Datum, ProcedureSet, Procedures, Results};
use serried_session::{
    CallError, ProcedureKeyspace, RegisterError, RegisterKeyspace, Session, SnapshotError,
    SnapshotKeyspace, Transaction, TransactionError, TransactionKeyspace,
};

/// A way to use two keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Reads both, and writes the first.
    ReadAndWrite,
    /// Writes the first.
    WriteBlindly,
    /// Reads both.
    Read,
    /// Reads the second and deletes the first, in one request.
    OneShot,
    /// Modifies the first.
    Modify,
}

impl Way {
    /// All of them.
    pub(crate) const ALL: [Way; 5] =
        [Way::ReadAndWrite, Way::WriteBlindly, Way::Read, Way::OneShot, Way::Modify];
}

/// A family that tests of all protocols can use.
pub(crate) trait Exercise: Session {
    /// Writes a number.
    fn write(
        keyspace: &Self::Keyspace,
        key: &str,
        number: u64,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// The number that was written last. 0 if none was.
    fn read(
        keyspace: &Self::Keyspace,
        key: &str,
    ) -> impl Future<Output = Result<u64, Self::Error>> + Send;

    /// Uses two keys in this way, or in one that comes close to it if the family does not have it.
    fn act(
        keyspace: &Self::Keyspace,
        way: Way,
        keys: [&str; 2],
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Uses the `i`-th pair of a few keys in most ways that there are, deletions among them. It does not matter what comes
    /// of it.
    fn act_in_many_ways(keyspace: &Self::Keyspace, i: u64) -> impl Future<Output = ()> + Send;

    /// Whether the error says that the client's clock is ahead by almost three seconds or more, or that the protocol does
    /// not have the operation.
    fn is_refusal(error: &Self::Error) -> bool;
}

fn number(value: Option<Value>) -> u64 {
    value.map_or(0, |value| value.to_string().parse().expect("a number"))
}

fn pair(i: u64) -> (String, String) {
    (format!("key-{}", i % 7), format!("key-{}", (i + 3) % 7))
}

impl Exercise for Transactions {
    async fn write(
        keyspace: &TransactionKeyspace,
        key: &str,
        number: u64,
    ) -> Result<(), TransactionError> {
        keyspace.put(key, number.to_string()).await.map(drop)
    }

    async fn read(keyspace: &TransactionKeyspace, key: &str) -> Result<u64, TransactionError> {
        keyspace.get(key).await.map(number)
    }

    async fn act(
        keyspace: &TransactionKeyspace,
        way: Way,
        [key, other]: [&str; 2],
    ) -> Result<(), TransactionError> {
        match way {
            Way::ReadAndWrite | Way::Modify => {
                let program = |tx: Transaction| async move {
                    let found = tx.get_many([key, other]).await?;
                    tx.put(key, found.len().to_string());
                    Ok(())
                };
                keyspace.transact(program).await.map(drop)
            }
            Way::WriteBlindly => keyspace.put(key, "value").await.map(drop),
            Way::Read => keyspace.get_many([key, other]).await.map(drop),
            Way::OneShot => {
                let write = Write { key: Key::from(key), value: None };
                keyspace.one_shot([Key::from(other)], [write]).await.map(drop)
            }
        }
    }

    async fn act_in_many_ways(keyspace: &TransactionKeyspace, i: u64) {
        let (key, other) = pair(i);
        let program = |tx: Transaction| {
            let (key, other) = (key.clone(), other.clone());
            async move {
                tx.get(other.as_str()).await?;
                match i % 5 {
                    0 => tx.delete(key.as_str()),
                    _ => tx.put(key.as_str(), i.to_string()),
                }
                Ok(())
            }
        };
        drop(keyspace.transact(program).await);
        drop(keyspace.get(key.as_str()).await);
    }

    fn is_refusal(error: &TransactionError) -> bool {
        matches!(error, TransactionError::ClockSkew { ahead_us: 2_900_000.. })
    }
}

impl Exercise for Registers {
    async fn write(
        keyspace: &RegisterKeyspace,
        key: &str,
        number: u64,
    ) -> Result<(), RegisterError> {
        keyspace.write(key, number.to_string()).await
    }

    async fn read(keyspace: &RegisterKeyspace, key: &str) -> Result<u64, RegisterError> {
        keyspace.read(key).await.map(number)
    }

    async fn act(
        keyspace: &RegisterKeyspace,
        way: Way,
        [key, _]: [&str; 2],
    ) -> Result<(), RegisterError> {
        match way {
            Way::Read => keyspace.read(key).await.map(drop),
            Way::Modify => keyspace.rmw(key, Modification::add(1)).await.map(drop),
            Way::ReadAndWrite | Way::WriteBlindly | Way::OneShot => keyspace.write(key, "1").await,
        }
    }

    async fn act_in_many_ways(keyspace: &RegisterKeyspace, i: u64) {
        let (key, other) = pair(i);
        drop(keyspace.write(key.as_str(), i.to_string()).await);
        drop(keyspace.read(other.as_str()).await);
        drop(keyspace.rmw(key.as_str(), Modification::add(1)).await);
        if i.is_multiple_of(5) {
            drop(keyspace.delete(other.as_str()).await);
        }
    }

    fn is_refusal(error: &RegisterError) -> bool {
        matches!(
            error,
            RegisterError::ClockSkew { ahead_us: 2_900_000.. }
                | RegisterError::NoReadModifyWrites { .. }
        )
    }
}

/// Rows with a number each, and procedures for all [ways](Way). `read_and_write` has a piece that needs the output of
/// another one, at another server.
const EXERCISES: &str = r#"
[tables.numbers]
key = { name = "string(64)" }
columns = { number = "int" }

[procedures.write]
inputs = { key = "string(64)", number = "int" }
[procedures.write.pieces.write]
rows = { row = { table = "numbers", key = ["key"] } }
writes.row.number = "number"

[procedures.read]
inputs = { key = "string(64)", other = "string(64)" }
returns = { number = "first.number", other = "second.number" }
[procedures.read.pieces.first]
rows = { row = { table = "numbers", key = ["key"] } }
reads = ["row.number"]
outputs.number = "row.number"
[procedures.read.pieces.second]
rows = { row = { table = "numbers", key = ["other"] } }
reads = ["row.number"]
outputs.number = "row.number"

[procedures.add]
inputs = { key = "string(64)", other = "string(64)" }
returns = { found = "second.found" }
[procedures.add.pieces.first]
rows = { row = { table = "numbers", key = ["key"] } }
reads = ["row.number"]
writes.row.number = "row.number + 1"
[procedures.add.pieces.second]
rows = { row = { table = "numbers", key = ["other"] } }
reads = ["row.number"]
outputs.found = "row.number"

[procedures.delete]
inputs = { key = "string(64)" }
[procedures.delete.pieces.delete]
rows = { row = { table = "numbers", key = ["key"] } }
deletes = ["row"]
"#;

fn exercises() -> ProcedureSet {
    let mut set = serried_chop::compile(EXERCISES).expect("the exercises compile");
    serried_chop::check(&mut set).expect("their pieces can be reordered");
    set
}

/// Calls a procedure, and registers the set before if nobody has.
async fn call(
    keyspace: &ProcedureKeyspace,
    procedure: &str,
    inputs: Vec<Datum>,
) -> Result<Results, CallError> {
    match keyspace.call(procedure, inputs.clone()).await {
        Err(CallError::NoSuchProcedure { version: 0, .. }) => {}
        ended => return ended,
    }
    match keyspace.register_in_place_of(0, exercises()).await {
        Ok(_) | Err(CallError::Superseded { .. }) => keyspace.call(procedure, inputs).await,
        Err(error) => Err(error),
    }
}

impl Exercise for Procedures {
    async fn write(keyspace: &ProcedureKeyspace, key: &str, number: u64) -> Result<(), CallError> {
        let inputs = vec![Datum::from(key), Datum::Int(number as i64)];
        call(keyspace, "write", inputs).await.map(drop)
    }

    async fn read(keyspace: &ProcedureKeyspace, key: &str) -> Result<u64, CallError> {
        let results = call(keyspace, "read", vec![Datum::from(key), Datum::from(key)]).await?;
        match results.get("number") {
            Some(Datum::Int(number)) => Ok(*number as u64),
            other => panic!("a number: {other:?}"),
        }
    }

    async fn act(
        keyspace: &ProcedureKeyspace,
        way: Way,
        [key, other]: [&str; 2],
    ) -> Result<(), CallError> {
        let both = vec![Datum::from(key), Datum::from(other)];
        let (procedure, inputs) = match way {
            Way::ReadAndWrite | Way::Modify => ("add", both),
            Way::Read => ("read", both),
            Way::WriteBlindly => ("write", vec![Datum::from(key), Datum::Int(1)]),
            Way::OneShot => ("delete", vec![Datum::from(key)]),
        };
        call(keyspace, procedure, inputs).await.map(drop)
    }

    async fn act_in_many_ways(keyspace: &ProcedureKeyspace, i: u64) {
        let (key, other) = pair(i);
        drop(
            Procedures::act(keyspace, Way::ALL[i as usize % Way::ALL.len()], [&key, &other]).await,
        );
        drop(Procedures::read(keyspace, &key).await);
    }

    fn is_refusal(error: &CallError) -> bool {
        matches!(error, CallError::ClockSkew { .. })
    }
}

impl Exercise for Snapshots {
    async fn write(
        keyspace: &SnapshotKeyspace,
        key: &str,
        number: u64,
    ) -> Result<(), SnapshotError> {
        keyspace.write(key, number.to_string()).await.map(drop)
    }

    async fn read(keyspace: &SnapshotKeyspace, key: &str) -> Result<u64, SnapshotError> {
        keyspace.read(key).await.map(number)
    }

    async fn act(
        keyspace: &SnapshotKeyspace,
        way: Way,
        [key, other]: [&str; 2],
    ) -> Result<(), SnapshotError> {
        match way {
            Way::Read => keyspace.read_only([key, other]).await.map(drop),
            Way::OneShot => keyspace.delete(key).await.map(drop),
            Way::ReadAndWrite => {
                keyspace.read_only([key, other]).await?;
                keyspace.write(key, "1").await.map(drop)
            }
            Way::WriteBlindly | Way::Modify => keyspace.write(key, "1").await.map(drop),
        }
    }

    async fn act_in_many_ways(keyspace: &SnapshotKeyspace, i: u64) {
        let (key, other) = pair(i);
        drop(keyspace.write(key.as_str(), i.to_string()).await);
        drop(keyspace.read_only([key.as_str(), other.as_str()]).await);
        if let Ok(token) = keyspace.token() {
            drop(keyspace.resume(token).await);
        }
        if i.is_multiple_of(5) {
            drop(keyspace.delete(other.as_str()).await);
        }
    }

    fn is_refusal(error: &SnapshotError) -> bool {
        matches!(error, SnapshotError::ClockSkew { ahead_us: 2_900_000.. })
    }
}
