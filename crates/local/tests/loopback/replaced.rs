//! Nodes that were replaced by `--rejoin` while their old process still lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serried::{Client, ConnectOptions};
use serried_local::{LocalCluster, LocalOptions};
use serried_node::{
    Disks, Durability, KeyspaceConfiguration, Node, NodeConfiguration, NodeDisks, NodeFailed,
    NodeHandle, Opened, Provenance, Start, StartError,
};
use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::bad_frames::{
    DISOWNED, PING, PONG, REJECT, WELCOME, answer_within_a_frame, frame, frame_of_node, hello,
    next_frame,
};
use crate::directories::{Folder, Kept};
use crate::disk::Disk;
use crate::{free_address, keyspaces, protocols, soon};

const KNOWN: u8 = 15;

/// An address that leads to another one.
struct Gate {
    address: String,
    /// Where it leads, and how often it was closed.
    way: watch::Sender<(Option<String>, u64)>,
    /// How many connections there have been.
    passed: Arc<AtomicU64>,
}

impl Gate {
    async fn to(address: &str) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap().to_string();
        let way = watch::Sender::new((Some(address.to_string()), 0));
        let passed = Arc::new(AtomicU64::new(0));
        tokio::spawn(pass(listener, way.subscribe(), passed.clone()));
        Gate { address: here, way, passed }
    }

    /// Connections that come later lead there.
    fn lead(&self, address: &str) {
        self.way.send_modify(|(way, _)| *way = Some(address.to_string()));
    }

    /// All connections end, and later ones lead nowhere.
    fn close(&self) {
        self.way.send_modify(|(way, closed)| (*way, *closed) = (None, *closed + 1));
    }
}

async fn pass(
    listener: TcpListener,
    way: watch::Receiver<(Option<String>, u64)>,
    passed: Arc<AtomicU64>,
) {
    while let Ok((mut from, _)) = listener.accept().await {
        passed.fetch_add(1, Ordering::Relaxed);
        let mut way = way.clone();
        let (to, closed) = way.borrow_and_update().clone();
        let Some(to) = to else { continue };
        tokio::spawn(async move {
            let Ok(mut to) = TcpStream::connect(to).await else { return };
            tokio::select! {
                _ = copy_bidirectional(&mut from, &mut to) => {}
                _ = way.wait_for(|(_, now)| *now > closed) => {}
            }
        });
    }
}

/// Three nodes. Node 0 is cut off from the others, but not from clients, and was replaced on another machine.
struct Replaced {
    old: NodeHandle,
    new: NodeHandle,
    others: Vec<NodeHandle>,
    /// A client that was connected to all of them before.
    client: Arc<Client>,
    old_address: String,
    /// Leads to node 0.
    gate: Gate,
    /// Lead from node 0 to the others.
    ways_out: Vec<Gate>,
    addresses: Vec<String>,
    folder: Folder,
}

async fn start(
    folder: &Folder,
    (name, node): (&str, usize),
    (listen, peers): (&str, Vec<String>),
    start: Start,
) -> NodeHandle {
    let configuration = NodeConfiguration {
        listen: listen.to_string(),
        keyspaces: vec![KeyspaceConfiguration::new("a", "morty")],
        durability: Durability::Buffered,
        cores: Some(1),
        pin: Some(false),
        ..NodeConfiguration::new(node, peers)
    };
    let disks = NodeDisks::open(folder.0.join(name), &configuration, start).unwrap();
    let disks = Arc::new(disks);
    loop {
        match Node::start_on(configuration.clone(), disks.clone()).await {
            // They have not noticed yet that the old process is cut off.
            Err(StartError::TooFew { .. }) => {}
            started => return started.unwrap(),
        }
    }
}

impl Replaced {
    async fn begin() -> Replaced {
        let folder = Folder::new();
        let (old_address, new_address) = (free_address(), free_address());
        let addresses = [free_address(), free_address()];
        let gate = Gate::to(&old_address).await;
        let ways_out = vec![Gate::to(&addresses[0]).await, Gate::to(&addresses[1]).await];
        let peers = [&gate.address, &addresses[0], &addresses[1]].map(String::clone).to_vec();
        let from_old = [&gate, &ways_out[0], &ways_out[1]].map(|gate| gate.address.clone());
        let place = (&*old_address, from_old.to_vec());
        let old = start(&folder, ("old", 0), place, Start::Usual).await;
        let mut others = Vec::new();
        for (node, address) in [(1, &addresses[0]), (2, &addresses[1])] {
            let name = format!("node-{node}");
            let place = (&**address, peers.clone());
            others.push(start(&folder, (&name, node), place, Start::Usual).await);
        }
        let client = Client::connect(ConnectOptions::new(addresses.clone())).await.unwrap();
        client.keyspace("a").unwrap().put("key", "value").await.unwrap();
        while client.node_statuses().await[0].is_none()
            || others.iter().any(|n| n.status().reached < 3)
        {
            tokio::task::yield_now().await;
        }
        ways_out.iter().for_each(Gate::close);
        gate.lead(&new_address);
        let new = start(&folder, ("new", 0), (&*new_address, peers), Start::Rejoin).await;
        let addresses = addresses.to_vec();
        Replaced { old, new, others, client, old_address, gate, ways_out, addresses, folder }
    }

    /// Waits until both others have met the new process.
    async fn until_met(&self) {
        let file = |node: usize| self.folder.0.join(format!("node-{node}/peers.toml"));
        let met =
            |node| -> toml::Table { std::fs::read_to_string(file(node)).unwrap().parse().unwrap() };
        let identity = std::fs::read_to_string(self.folder.0.join("new/identity.toml")).unwrap();
        let identity: toml::Table = identity.parse().unwrap();
        while [1, 2].into_iter().any(|node| met(node)["0"] != identity["incarnation"]) {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_cut_off_while_its_node_was_replaced_ends_when_it_comes_back() {
    let replaced = soon(Replaced::begin()).await;
    soon(replaced.until_met()).await;
    for (way, address) in replaced.ways_out.iter().zip(&replaced.addresses) {
        way.lead(address);
    }
    let failed = soon(replaced.old.stopped()).await.unwrap_err();
    assert!(matches!(failed, NodeFailed::Disowned { .. }), "{failed}");
    let text = failed.to_string();
    assert!(text.contains("n0 was replaced") && text.contains("leave the process"), "{text}");
    replaced.new.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_leave_a_process_whose_node_was_replaced_although_it_answers() {
    let replaced = soon(Replaced::begin()).await;
    let new = replaced.new.status().incarnation;
    soon(async {
        loop {
            let found = replaced.client.node_statuses().await[0].clone();
            if found.is_some_and(|status| status.incarnation == new) {
                break;
            }
        }
    })
    .await;
    soon(replaced.until_met()).await;
    // The other nodes leave it too.
    soon(async {
        while replaced.old.status().statistics.connections > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // A client that comes now does not count it either, though it finds it at an address that it was given.
    replaced.gate.close();
    let way = Gate::to(&replaced.old_address).await;
    way.close();
    let addresses = replaced.addresses.iter().chain([&way.address]).cloned();
    let client = Client::connect(ConnectOptions::new(addresses)).await.unwrap();
    let old = replaced.old.status().incarnation;
    let before = way.passed.load(Ordering::Relaxed);
    way.lead(&replaced.old_address);
    soon(async {
        while way.passed.load(Ordering::Relaxed) < before + 3 {
            let found = client.node_statuses().await[0].clone();
            assert!(found.is_none_or(|status| status.incarnation != old));
        }
    })
    .await;
    assert_eq!(replaced.others.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_does_not_stay_connected_to_a_process_whose_node_was_replaced() {
    let replaced = soon(Replaced::begin()).await;
    soon(replaced.until_met()).await;
    let Replaced { new, client, gate, old_address, others, .. } = replaced;
    client.close().await;
    new.shutdown().await;
    gate.lead(&old_address);
    let before = gate.passed.load(Ordering::Relaxed);
    // Each tries again and again, and is content with no answer.
    soon(async {
        while gate.passed.load(Ordering::Relaxed) < before + 12 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(others.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_taken_for_the_successor_of_a_node_because_he_says_so() {
    let mut kept = Kept::start(Durability::Buffered, &[KeyspaceConfiguration::new("a", "morty")]);
    kept.until_all_serve().await;
    kept.stop(1);
    let forged = Provenance { incarnation: 1 << 60, rejoined: true };
    for node in [0, 2] {
        let mut stream = TcpStream::connect(&kept.cluster.addresses()[node]).await.unwrap();
        stream.write_all(&frame_of_node(1, 7, Some(forged))).await.unwrap();
        let answer = next_frame(&mut stream).await.unwrap();
        assert_eq!(answer[3], REJECT);
        let text = String::from_utf8_lossy(&answer);
        assert!(text.contains("n1 is not known with this data, and at its address"), "{text}");
    }
    kept.restart(&[1]);
    kept.until_all_serve().await;
    // One that has not the data which counts is turned away for good.
    kept.stop(1);
    let mut stream = TcpStream::connect(&kept.cluster.addresses()[0]).await.unwrap();
    let older = Provenance { incarnation: 1, rejoined: true };
    stream.write_all(&frame_of_node(1, 7, Some(older))).await.unwrap();
    assert_eq!(next_frame(&mut stream).await.unwrap()[3], DISOWNED);
    kept.cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_of_a_node_is_believed_only_if_the_same_is_answered_at_its_address() {
    let mut kept = Kept::start(Durability::Buffered, &[KeyspaceConfiguration::new("a", "morty")]);
    kept.until_all_serve().await;
    let addresses = kept.cluster.addresses();
    let of_itself = answer_within_a_frame(&addresses[1], &hello()).await;
    let of_another = answer_within_a_frame(&addresses[2], &hello()).await;
    assert_eq!((of_itself[3], of_another[3]), (WELCOME, WELCOME));
    kept.stop(1);
    let forged = Provenance { incarnation: 1 << 60, rejoined: true };
    for (answer, who) in [(of_itself, "n1"), (of_another, "n2")] {
        let listener = TcpListener::bind(&addresses[1]).await.unwrap();
        let answering = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                // The client may be gone.
                let _ = next_frame(&mut stream).await;
                let _ = stream.write_all(&answer).await;
            }
        });
        let refused =
            answer_within_a_frame(&addresses[0], &frame_of_node(1, 7, Some(forged))).await;
        assert_eq!(refused[3], REJECT);
        let text = String::from_utf8_lossy(&refused);
        assert!(text.contains(&format!("{who} answers with other data")), "{text}");
        answering.abort();
        assert!(answering.await.unwrap_err().is_cancelled());
    }
    kept.cluster.stop();
}

/// The disk of a node that meets newer data of another node whenever it has just said which it knows.
#[derive(Default)]
struct Learning {
    disk: Disk,
    met: AtomicU64,
}

impl Disks for Learning {
    fn open(&self, keyspace: &str, partition: u16) -> Result<Opened, String> {
        self.disk.open(keyspace, partition)
    }

    fn met(&self, _: usize) -> Option<u64> {
        Some(self.met.fetch_add(1, Ordering::Relaxed))
    }
}

#[tokio::test]
async fn a_client_learns_of_data_that_is_met_between_the_welcome_and_its_connection() {
    let options = LocalOptions {
        durability: Durability::Buffered,
        disks: vec![Arc::new(Learning::default())],
        cores: Some(1),
        ..LocalOptions::default()
    };
    let cluster = LocalCluster::start_with(1, &keyspaces(), options, protocols()).unwrap();
    let mut stream = TcpStream::connect(&cluster.addresses()[0]).await.unwrap();
    stream.write_all(&[hello(), frame(PING, b"")].concat()).await.unwrap();
    assert_eq!(next_frame(&mut stream).await.unwrap()[3], WELCOME);
    let known = loop {
        let frame = next_frame(&mut stream).await.unwrap();
        assert_ne!(frame[3], PONG, "it comes before anything else");
        if frame[3] == KNOWN {
            break frame;
        }
    };
    let known: Vec<(u16, u64)> = postcard::from_bytes(&known[12..]).unwrap();
    assert_eq!(known, [(0, 1)], "the welcome said 0");
}
