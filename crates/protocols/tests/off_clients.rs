//! What becomes of a client whose clock is off, under every protocol.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serried_actor::{Protocol, Timestamp};
use serried_model::{Family, Key, Modification, Write};
use serried_protocols::{Visitor, visit};
use serried_session::{Error, Keyspace, Registers, Transaction};
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

async fn transact(keyspace: Keyspace, way: Way) -> Result<(), Error> {
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

async fn access(registers: Registers, way: Way) -> Result<(), Error> {
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

impl Visitor for Off {
    type Output = (Result<(), Error>, Duration);

    fn visit<P: Protocol>(self) -> Self::Output {
        let Off { by_s, way, used } = self;
        let mut cluster =
            Cluster::<P>::new(Configuration { partitions: 4, ..Configuration::default() });
        let ended = Arc::new(Mutex::new(None));
        let (keyspace, registers) = (cluster.keyspace(0), cluster.registers(0));
        let act = async move |way| match P::GUARANTEE.family() {
            Family::Registers => access(registers.clone(), way).await,
            Family::Transactions => transact(keyspace.clone(), way).await,
        };
        let (clock, tell) = (cluster.keyspace(0), ended.clone());
        let begun = Timestamp(1_000_000_000);
        cluster.spawn(0, async move {
            if used {
                act(Way::ReadAndWrite).await.unwrap();
            }
            clock.sleep_until(begun + Duration::from_millis(1)).await;
            let result = act(way).await;
            *tell.lock().unwrap() = Some((result, clock.now() - begun));
        });
        cluster.run_until(begun);
        cluster.begin(Fault::ClockJump(cluster.client_id(0), by_s * 1_000_000));
        cluster.run_until_done(Timestamp(100_000_000_000)).unwrap();
        let ended = ended.lock().unwrap().take();
        ended.unwrap()
    }
}

#[test]
fn a_client_whose_clock_is_ahead_is_told_so_at_once_unless_it_does_not_matter() {
    for protocol in serried_protocols::list() {
        for way in WAYS {
            for (by_s, used) in [(3, false), (10, false), (10, true), (3600, true)] {
                let (result, took) = visit(protocol.name, Off { by_s, way, used }).unwrap();
                let what = format!("{}: {way:?} {by_s} s ahead: {result:?}", protocol.name);
                assert!(took < Duration::from_millis(10), "{what} after {took:?}");
                let told = matches!(
                    result,
                    Ok(())
                        | Err(Error::ClockSkew { ahead_us: 2_900_000.. } | Error::NotOffered { .. })
                );
                assert!(told, "{what}");
            }
        }
    }
}
