//! Nothing that a connection brings ends a node or a client: frames of every kind, with contents that are damaged
//! behind checksums that fit. Any panic in this process fails the tests.

#[allow(dead_code, reason = "it is shared with the loopback tests")]
#[path = "loopback/toy.rs"]
mod toy;

use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus as Random;
use rand::{RngExt, SeedableRng};
use serried::{Client, ConnectOptions};
use serried_local::{LocalCluster, LocalOptions, Protocols};
use serried_model::NodeId;
use serried_node::KeyspaceConfiguration;
use serried_wire::VERSION;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const HELLO: u8 = 1;
const HEADER_BYTES: usize = 12;
/// How many connections bring damaged frames to a node, and how many clients get damaged frames.
const CONNECTIONS: u64 = 400;
const CLIENTS: u64 = 60;
/// How long a client that got damaged frames is waited for.
const PATIENCE: Duration = Duration::from_millis(100);

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Notes the panics of all threads from now on.
fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.lock().unwrap().push(panic.to_string());
            before(panic);
        }));
    });
}

/// What has panicked so far.
fn panics() -> Vec<String> {
    PANICS.lock().unwrap().clone()
}

fn protocols() -> Protocols {
    Protocols::default().with::<toy::Toy>()
}

fn start(nodes: usize) -> LocalCluster {
    let keyspace = KeyspaceConfiguration::new("first", "toy");
    LocalCluster::start_with(nodes, &[keyspace], LocalOptions::default(), protocols()).unwrap()
}

/// A frame whose checksum fits, made by other means than those of `serried-wire`.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x44, 0x5e, VERSION, kind];
    frame.extend((payload.len() as u32).to_le_bytes());
    let checksum = crc32fast::hash(&[&frame, payload].concat());
    frame.extend(checksum.to_le_bytes());
    frame.extend(payload);
    frame
}

fn hello(node: NodeId, incarnation: u64) -> Vec<u8> {
    let none: Option<String> = None;
    let hello = (node, incarnation, 0u16, none.clone(), none, 1usize << 20, None::<()>, false);
    postcard::to_allocvec(&hello).unwrap()
}

/// Changes a few bytes, or none.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..random.random_range(0..4u32) {
        let at = random.random_range(0..=bytes.len());
        match random.random_range(0..6u32) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8u32),
            1 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][at % 5],
            2 if at < bytes.len() => drop(bytes.splice(at..=at, [0xff; 9].into_iter().chain([1]))),
            3 => bytes.insert(at, random.random()),
            4 if at < bytes.len() => drop(bytes.remove(at)),
            _ if random.random_ratio(1, 4) => bytes.truncate(at),
            _ => {}
        }
    }
}

/// What lies in frames of all kinds that a node takes.
fn payloads(keyspace: u64) -> Vec<Vec<u8>> {
    let second = Duration::from_secs(1);
    let watch = (1u64, keyspace, vec!["key"], 3u16, second, second);
    let batch = |message: &[u8]| {
        let length = (message.len() as u32).to_le_bytes();
        [&keyspace.to_le_bytes()[..], &[0; 4], &length, message].concat()
    };
    vec![
        hello(NodeId(NodeId::FIRST_COORDINATOR + 1), 0),
        postcard::to_allocvec(&1u64).unwrap(),
        postcard::to_allocvec(&watch).unwrap(),
        postcard::to_allocvec(&Some("no room")).unwrap(),
        batch(&[0; 12]),
        batch(&[1, 3, b'k', b'e', b'y', 1, 0, 0]),
        Vec::new(),
    ]
}

#[tokio::test]
async fn no_frame_ends_a_node() {
    note_panics();
    let mut cluster = start(3);
    let address = cluster.addresses()[0].clone();
    let client =
        Client::connect_with(ConnectOptions::new([address.clone()]), protocols().coordinators)
            .await;
    let client = client.unwrap();
    let keyspace = client.keyspaces()[0].number;
    // Some pass for this node.
    cluster.stop_node(1);
    let mut random = Random::seed_from_u64(11);
    for _ in 0..CONNECTIONS {
        let who = [(NodeId(NodeId::FIRST_COORDINATOR + 1), 0), (NodeId(1), 7)];
        let (node, incarnation) = who[random.random_range(0..who.len())];
        let mut first = hello(node, incarnation);
        if random.random_ratio(1, 4) {
            damage(&mut first, &mut random);
        }
        let mut bytes = frame(HELLO, &first);
        for _ in 0..random.random_range(0..4u32) {
            let mut payloads = payloads(keyspace);
            let mut payload = payloads.swap_remove(random.random_range(0..payloads.len()));
            damage(&mut payload, &mut random);
            bytes.extend(frame(random.random_range(0..16), &payload));
        }
        let mut stream = TcpStream::connect(&address).await.unwrap();
        // The node may have closed it by now.
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    assert!(client.node_statuses().await[0].is_some(), "the node is there");
    assert_eq!(panics(), [""; 0]);
}

/// Forwards one connection to a node, and damages some of what the node says; its address is replaced, so that
/// nobody goes round this.
async fn forward(client: TcpStream, node: String, here: String, mut random: Random) {
    let Ok(node_stream) = TcpStream::connect(&node).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_node, mut to_node) = node_stream.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_node).await });
    loop {
        let mut header = [0; HEADER_BYTES];
        if from_node.read_exact(&mut header).await.is_err() {
            return;
        }
        let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let mut payload = vec![0; length];
        if from_node.read_exact(&mut payload).await.is_err() {
            return;
        }
        if let Some(at) = payload.windows(node.len()).position(|bytes| bytes == node.as_bytes()) {
            payload.splice(at..at + node.len(), here.bytes());
        }
        if random.random_ratio(1, 3) {
            damage(&mut payload, &mut random);
        }
        let kind = if random.random_ratio(1, 32) { random.random_range(0..16) } else { header[3] };
        if to_client.write_all(&frame(kind, &payload)).await.is_err() {
            return;
        }
    }
}

/// An address as long as the node's at which connections are forwarded to it.
async fn forwarding(node: &str, seed: u64) -> String {
    let (listener, here) = loop {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap().to_string();
        if here.len() == node.len() {
            break (listener, here);
        }
    };
    let (node, address) = (node.to_string(), here.clone());
    tokio::spawn(async move {
        let mut random = Random::seed_from_u64(seed);
        while let Ok((client, _)) = listener.accept().await {
            let random = Random::seed_from_u64(random.random());
            tokio::spawn(forward(client, node.clone(), here.clone(), random));
        }
    });
    address
}

#[tokio::test]
async fn no_frame_ends_a_client() {
    note_panics();
    let cluster = start(1);
    let mut connected = 0;
    for seed in 0..CLIENTS {
        let address = forwarding(&cluster.addresses()[0], seed).await;
        let options = ConnectOptions { timeout: PATIENCE, ..ConnectOptions::new([address]) };
        let Ok(client) = Client::connect_with(options, protocols().coordinators).await else {
            continue;
        };
        connected += 1;
        // Whatever it says, if it says anything.
        let _ = tokio::time::timeout(PATIENCE, use_it(&client)).await;
        let _ = tokio::time::timeout(PATIENCE, client.node_statuses()).await;
    }
    assert!(connected > CLIENTS / 10, "{connected} got through the handshake");
    assert_eq!(panics(), [""; 0]);
}

async fn use_it(client: &Arc<Client>) {
    drop(client.registers("first"));
    let Ok(keyspace) = client.keyspace("first") else { return };
    for i in 0..10u32 {
        drop(keyspace.put(format!("key-{i}"), "value").await);
        drop(keyspace.get(format!("key-{i}")).await);
    }
}
