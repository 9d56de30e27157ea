use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serried_model::Provenance;
use serried_wire::{Cut, End, Kind, LinkId, LinkOptions, dial};
use tokio::net::{TcpListener, TcpStream};

use super::connections::greet;

use super::*;
use crate::admission::Sort;
use crate::durable::Opened;

/// The directory of a node that meets newer data of another one when it has judged a connection of that one.
struct Overtaken {
    judged: AtomicBool,
}

const DATA: Provenance = Provenance { incarnation: 5, rejoined: false };

impl Disks for Overtaken {
    fn open(&self, _: &str, _: u16) -> Result<Opened, String> {
        Err("no thread runs".to_string())
    }

    fn provenance(&self) -> Option<Provenance> {
        Some(DATA)
    }

    fn judge(&self, _: usize, _: Provenance) -> Result<bool, String> {
        match self.judged.swap(true, Ordering::Relaxed) {
            false => Ok(true),
            true => Err("it was met with newer data".to_string()),
        }
    }
}

/// Node 0 of so many, the others of which are not there. No thread of it runs.
fn server(nodes: usize, disks: Option<Arc<dyn Disks>>) -> Arc<Server> {
    let configuration = NodeConfiguration {
        cores: Some(1),
        ..NodeConfiguration::new(0, vec!["127.0.0.1:0".to_string(); nodes])
    };
    Server::new(configuration, None, &Replicas::default(), disks).unwrap().0
}

/// An address at which a node greets all that connect.
async fn greeting(server: &Arc<Server>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let greeter = server.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(greet(greeter.clone(), 0, stream));
        }
    });
    address
}

fn hello_of_a_client() -> Hello {
    Hello {
        node: NodeId(NodeId::FIRST_COORDINATOR + 1),
        incarnation: 0,
        core: 0,
        cluster: None,
        site: None,
        frame_bytes: 1 << 20,
        provenance: None,
        inquires: false,
    }
}

/// How many more connections may come that have not introduced themselves.
fn room_for_strangers(server: &Server) -> usize {
    std::iter::from_fn(|| server.admission.admit(Sort::Stranger)).collect::<Vec<_>>().len()
}

#[tokio::test]
async fn a_connection_that_has_introduced_itself_does_not_count_among_strangers() {
    let server = server(1, None);
    let all = server.admission.most(Sort::Stranger);
    let address = greeting(&server).await;
    let silent = TcpStream::connect(&address).await.unwrap();
    while room_for_strangers(&server) == all {
        tokio::task::yield_now().await;
    }
    assert_eq!(room_for_strangers(&server), all - 1);
    let _client = dial(&address, &hello_of_a_client(), false).await.unwrap();
    assert_eq!(room_for_strangers(&server), all - 1, "only the one that has said nothing");
    drop(silent);
    while room_for_strangers(&server) < all {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_node_whose_data_was_replaced_since_it_was_judged_has_no_connection() {
    let server = server(3, Some(Arc::new(Overtaken { judged: AtomicBool::new(false) })));
    let address = greeting(&server).await;
    let hello =
        Hello { node: NodeId(1), incarnation: 7, provenance: Some(DATA), ..hello_of_a_client() };
    let mut met = dial(&address, &hello, false).await.expect("it is welcome at first");
    // The node may be gone by now.
    let _ = met.connection.send(Kind::Ping, &[]).await;
    assert!(met.connection.receive_only(Kind::Pong).await.is_err());
    assert_eq!(server.cores.endpoint(0).lock().links.connections(), 0);
}

#[test]
fn a_node_that_is_turned_away_for_good_or_panics_ends_at_once_with_its_first_reason() {
    let turned_away = server(1, None);
    turned_away.life.disowned("it was replaced".to_string());
    turned_away.life.fail(&"what comes of it");
    let panicked = server(1, None);
    panicked.life.fail(&"a cause");
    panicked.life.disowned("it was replaced".to_string());
    let damaged = server(1, None);
    damaged.life.fail(&format!("the store is damaged; {}", serried_storage::REJOIN));
    let failed = damaged.life.failure().unwrap().to_string();
    assert!(failed.ends_with(serried_storage::REJOIN), "it needs no other advice: {failed}");
    for (server, why) in [(turned_away, "it was replaced"), (panicked, "a cause")] {
        let state = server.life.watch().borrow().clone();
        assert!(state.killed);
        let failed = state.failed.unwrap().to_string();
        assert!(failed.contains(why), "{failed}");
    }
}

#[test]
fn who_does_not_fit_is_turned_away() {
    let memory = server(3, None);
    let kept = server(3, Some(Arc::new(Overtaken { judged: AtomicBool::new(false) })));
    let client = hello_of_a_client();
    let node = Hello { node: NodeId(1), incarnation: 7, ..client.clone() };
    let node_with_data = Hello { provenance: Some(DATA), ..node.clone() };
    let client_with_data = Hello { provenance: Some(DATA), ..client.clone() };
    for (server, hello, refused) in [
        (&memory, &client, None),
        (&kept, &client, None),
        (&memory, &node, None),
        (&kept, &node_with_data, None),
        (&memory, &node_with_data, Some("n0 forgets everything")),
        (&kept, &node, Some("n1 forgets everything")),
        (&memory, &client_with_data, Some("a client has no data")),
        (&kept, &client_with_data, Some("a client has no data")),
        (&memory, &Hello { node: NodeId(0), ..node.clone() }, Some("n0 is not another node")),
        (&memory, &Hello { node: NodeId(3), ..node.clone() }, Some("n3 is not another node")),
        (&memory, &Hello { frame_bytes: 1, ..client.clone() }, Some("must be accepted")),
        (
            &memory,
            &Hello { cluster: Some("bank".to_string()), ..client.clone() },
            Some("not `bank`"),
        ),
    ] {
        let judged = server.judge_sender(hello).err();
        let fits = match (&judged, refused) {
            (Some(reason), Some(refused)) => reason.contains(refused),
            (judged, refused) => judged.is_none() && refused.is_none(),
        };
        assert!(fits, "{hello:?}: {judged:?}");
    }
}

/// The directory of a node that notes which data node 1 has.
#[derive(Default)]
struct Noting(Mutex<Option<u64>>);

impl Disks for Noting {
    fn open(&self, _: &str, _: u16) -> Result<Opened, String> {
        Err("no thread runs".to_string())
    }

    fn provenance(&self) -> Option<Provenance> {
        Some(DATA)
    }

    fn met(&self, member: usize) -> Option<u64> {
        self.0.lock().unwrap().filter(|_| member == 1)
    }

    fn meet(&self, _: usize, has: Provenance) -> Result<(), String> {
        *self.0.lock().unwrap() = Some(has.incarnation);
        Ok(())
    }
}

fn open(server: &Server, end: End) -> LinkId {
    server.cores.endpoint(0).lock().links.open(LinkOptions {
        end,
        route: false,
        internal: false,
        delay: Duration::ZERO,
        frame_bytes: 1000,
        most_waiting_bytes: 1000,
    })
}

#[test]
fn where_newer_data_of_a_node_is_met_its_connections_are_cut_and_clients_learn_of_it() {
    let server = server(3, Some(Arc::new(Noting::default())));
    let meet = |incarnation| {
        let provenance = Some(Provenance { incarnation, rejoined: true });
        let welcome = Welcome { provenance, ..Welcome::example() };
        server.provenances.meet(&welcome, &server.cores).unwrap();
    };
    let [replaced, other] = [1, 2].map(|member| open(&server, End::Core { member, core: 0 }));
    open(&server, End::Client(hello_of_a_client().node));
    let given_up = |link| server.cores.endpoint(0).lock().links.given_up(link);
    let informed = || server.cores.endpoint(0).lock().links.waiting_bytes().1 > 0;
    meet(5);
    meet(5);
    assert_eq!((given_up(replaced), informed()), (None, false), "it is the same as before");
    meet(6);
    assert_eq!((given_up(replaced), informed()), (Some(Cut::Disowned), true));
    assert_eq!(given_up(other), None);
    assert_eq!(server.welcome().known, [(1, 6)]);
}
