//! What becomes of a client whose clock is off, under every protocol.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serried_actor::{Protocol, Timestamp};
use serried_model::{Key, Modification, Registers, Transactions, Write};
use serried_protocols::{Visitor, visit_any};
use serried_session::{
    Alarm, RegisterError, RegisterKeyspace, Session, Transaction, TransactionError,
    TransactionKeyspace,
};
use serried_sim::{Cluster, Configuration, Fault};

/// Ways to do something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    ReadAndWrite,
    WriteBlindly,
    Read,
    OneShot,
    Modify,
}

const WAYS: [Way; 5] = [Way::ReadAndWrite, Way::WriteBlindly, Way::Read, Way::OneShot, Way::Modify];

/// A family whose clients do something in these ways.
trait Ways: Session {
    fn act(
        keyspace: Self::Keyspace,
        way: Way,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Whether it failed because of the clock, or because it is not offered.
    fn is_told(error: &Self::Error) -> bool;
}

impl Ways for Transactions {
    async fn act(keyspace: TransactionKeyspace, way: Way) -> Result<(), TransactionError> {
        transact(keyspace, way).await
    }

    fn is_told(error: &TransactionError) -> bool {
        matches!(error, TransactionError::ClockSkew { ahead_us: 2_900_000.. })
    }
}

impl Ways for Registers {
    async fn act(keyspace: RegisterKeyspace, way: Way) -> Result<(), RegisterError> {
        access(keyspace, way).await
    }

    fn is_told(error: &RegisterError) -> bool {
        matches!(
            error,
            RegisterError::ClockSkew { ahead_us: 2_900_000.. }
                | RegisterError::NoReadModifyWrites { .. }
        )
    }
}

async fn transact(keyspace: TransactionKeyspace, way: Way) -> Result<(), TransactionError> {
    match way {
        Way::ReadAndWrite | Way::Modify => {
            let program = |tx: Transaction| async move {
                let found = tx.get_many(["key", "other key"]).await?;
                tx.put("key", format!("{found:?}"));
                Ok(())
            };
            keyspace.transact(program).await.map(drop)
        }
        Way::WriteBlindly => keyspace.put("key", "value").await.map(drop),
        Way::Read => keyspace.get_many(["key", "other key"]).await.map(drop),
        Way::OneShot => {
            let write = Write { key: Key::from("key"), value: None };
            keyspace.one_shot([Key::from("other key")], [write]).await.map(drop)
        }
    }
}

async fn access(registers: RegisterKeyspace, way: Way) -> Result<(), RegisterError> {
    match way {
        Way::Read => registers.read("key").await.map(drop),
        Way::Modify => registers.rmw("key", Modification::add(1)).await.map(drop),
        _ => registers.write("key", "1").await,
    }
}

/// A client's clock goes off by so many seconds, after it has been used or before: what it does then comes to
/// this, after so long.
#[derive(Clone, Copy)]
struct Off {
    by_s: i64,
    way: Way,
    used: bool,
}

impl<F: Ways> Visitor<F> for Off {
    /// Whether it went well, or its client was told why not; what came of it; and how long it took.
    type Output = (bool, String, Duration);

    fn visit<P: Protocol<Family = F>>(self) -> Self::Output {
        let Off { by_s, way, used } = self;
        let mut cluster =
            Cluster::<P>::new(Configuration { partitions: 4, ..Configuration::default() });
        let ended = Arc::new(Mutex::new(None));
        let keyspace = cluster.keyspace(0);
        let clock = F::driver(&keyspace);
        let tell = ended.clone();
        let begun = Timestamp(1_000_000_000);
        cluster.spawn(0, async move {
            if used {
                F::act(keyspace.clone(), Way::ReadAndWrite).await.unwrap();
            }
            Alarm::at(clock.clone(), begun + Duration::from_millis(1)).wait().await;
            let result = F::act(keyspace, way).await;
            *tell.lock().unwrap() = Some((result, clock.now() - begun));
        });
        cluster.run_until(begun);
        cluster.begin(Fault::ClockJump(cluster.client_id(0), by_s * 1_000_000));
        cluster.run_until_done(Timestamp(100_000_000_000)).unwrap();
        let (result, took) = ended.lock().unwrap().take().unwrap();
        (result.as_ref().err().is_none_or(F::is_told), format!("{result:?}"), took)
    }
}

#[test]
fn a_client_whose_clock_is_ahead_is_told_so_at_once_unless_it_does_not_matter() {
    for protocol in serried_protocols::list() {
        for way in WAYS {
            for (by_s, used) in [(3, false), (10, false), (10, true), (3600, true)] {
                let off = Off { by_s, way, used };
                let (told, result, took) = visit_any(protocol.name, off).unwrap();
                let what = format!("{}: {way:?} {by_s} s ahead: {result}", protocol.name);
                assert!(took < Duration::from_millis(10), "{what} after {took:?}");
                assert!(told, "{what}");
            }
        }
    }
}
