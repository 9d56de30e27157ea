//! What a node makes of bytes that are not as they should be.

use serried_model::NodeId;
use serried_node::{Durability, KeyspaceConfiguration, Provenance};
use serried_wire::VERSION;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::directories::Kept;
use crate::{connect, start};

pub(crate) const HELLO: u8 = 1;
pub(crate) const WELCOME: u8 = 2;
pub(crate) const REJECT: u8 = 3;
const BATCH: u8 = 4;
pub(crate) const PING: u8 = 5;
pub(crate) const PONG: u8 = 6;
pub(crate) const DISOWNED: u8 = 14;

/// A frame as the format's description has it, made by other means than those of `serried-wire`.
pub(crate) fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x44, 0x5e, VERSION, kind];
    frame.extend((payload.len() as u32).to_le_bytes());
    let checksum = crc32fast::hash(&[&frame, payload].concat());
    frame.extend(checksum.to_le_bytes());
    frame.extend(payload);
    frame
}

pub(crate) fn hello() -> Vec<u8> {
    let none: Option<String> = None;
    let hello = (
        NodeId(NodeId::FIRST_COORDINATOR + 1),
        0u64,
        0u16,
        none.clone(),
        none,
        1usize << 20,
        None::<()>,
        false,
    );
    frame(HELLO, &postcard::to_allocvec(&hello).unwrap())
}

pub(crate) fn hello_of_node(node: u64, incarnation: u64) -> Vec<u8> {
    frame_of_node(node, incarnation, None)
}

/// A hello of a node that says it has this data.
pub(crate) fn frame_of_node(node: u64, incarnation: u64, has: Option<Provenance>) -> Vec<u8> {
    let none: Option<String> = None;
    let hello = (NodeId(node), incarnation, 0u16, none.clone(), none, 1usize << 20, has, false);
    frame(HELLO, &postcard::to_allocvec(&hello).unwrap())
}

fn batch(keyspace: u64, partition: u16, message: &[u8]) -> Vec<u8> {
    let length = (message.len() as u32).to_le_bytes();
    let (keyspace, partition) = (keyspace.to_le_bytes(), partition.to_le_bytes());
    frame(BATCH, &[&keyspace[..], &partition, &partition, &length, message].concat())
}

/// Sends `bytes`; what the node answers until it closes the connection.
async fn answer(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // A connection that is closed with bytes unread ends with a reset.
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

#[tokio::test]
async fn a_bad_frame_ends_its_own_connection_and_no_other() {
    let cluster = start(1, None);
    let address = &cluster.addresses()[0];
    let client = connect(&cluster).await;
    let keyspace = client.keyspace("first").unwrap();
    keyspace.put("key", "value").await.unwrap();
    // The client has one to each core, and those that it has not used yet may still be on their way there.
    let connections = u64::from(client.node_statuses().await[0].as_ref().unwrap().cores);
    while cluster.statistics()[0].connections < connections {
        tokio::task::yield_now().await;
    }

    let first = client.keyspaces()[0].number;
    let with = |at: usize, byte: u8| {
        let mut bytes = hello();
        bytes[at] = byte;
        bytes
    };
    let wrong_length = with(7, 255);
    let before_the_handshake = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        with(2, 200),
        with(3, 99),
        with(8, hello()[8] ^ 1),
        wrong_length,
        batch(first, 0, b""),
        frame(HELLO, b"\xff"),
    ];
    for bytes in before_the_handshake {
        assert_eq!(answer(address, &bytes).await, b"", "{bytes:?}");
    }
    let after_the_handshake = [
        batch(first, 0, b"\xff\xff"),
        frame(BATCH, &[&[0; 12][..], b"\xff\0\0\0"].concat()),
        hello(),
        b"not a frame".to_vec(),
    ];
    for bytes in after_the_handshake {
        let answer = answer(address, &[hello(), bytes].concat()).await;
        assert!(answer.is_empty() || answer.starts_with(&[0x44, 0x5e, VERSION, 2]));
    }
    keyspace.put("key", "other").await.unwrap();
    while cluster.statistics()[0].connections > connections {
        tokio::task::yield_now().await;
    }
    assert_eq!(cluster.statistics()[0].connections, connections);
    assert_eq!(client.statistics().reconnects, 0);
}

#[tokio::test]
async fn a_message_for_what_is_not_there_is_dropped_and_counted_and_its_connection_goes_on() {
    let cluster = start(1, None);
    let client = connect(&cluster).await;
    let keyspace = client.keyspaces()[0].number;
    let mut stream = TcpStream::connect(&cluster.addresses()[0]).await.unwrap();
    let forged =
        [batch(keyspace ^ 1, 0, b"x"), batch(keyspace, 7, b"x"), batch(keyspace, u16::MAX, b"x")];
    stream.write_all(&[hello(), forged.concat(), frame(PING, b"")].concat()).await.unwrap();
    for kind in [WELCOME, PONG] {
        let mut header = [0; 12];
        stream.read_exact(&mut header).await.unwrap();
        assert_eq!(header[3], kind);
        let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        stream.read_exact(&mut vec![0; length]).await.unwrap();
    }
    assert_eq!(cluster.statistics()[0].counters.messages_refused, 3);
    client.keyspace("first").unwrap().put("key", "value").await.unwrap();
}

#[tokio::test]
async fn a_client_that_calls_itself_a_node_is_turned_away() {
    let cluster = start(1, None);
    let answer = answer(&cluster.addresses()[0], &hello_of_node(5, 1)).await;
    let text = String::from_utf8_lossy(&answer);
    assert!(text.contains("n5 is not another node of cluster `serried`"), "{text}");
}

#[tokio::test]
async fn a_node_that_forgets_everything_is_turned_away_by_those_that_keep_it() {
    let kept = Kept::start(Durability::Buffered, &[KeyspaceConfiguration::new("x", "morty")]);
    let answer = answer(&kept.cluster.addresses()[0], &hello_of_node(1, 7)).await;
    let text = String::from_utf8_lossy(&answer);
    assert!(text.contains("n1 forgets everything when it ends (durability memory)"), "{text}");
}

#[tokio::test]
async fn the_second_process_that_passes_for_a_node_is_turned_away() {
    let mut cluster = start(3, None);
    cluster.stop_node(1);
    let address = cluster.addresses()[0].clone();
    // A node's core 0 answers once it has seen the node's own connections end.
    let first = loop {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(&hello_of_node(1, 7)).await.unwrap();
        if next_frame(&mut stream).await.unwrap()[3] == WELCOME {
            break stream;
        }
    };
    let answering = tokio::spawn(answer_pings(first));
    loop {
        let answer = answer_within_a_frame(&address, &hello_of_node(1, 8)).await;
        if answer[3] == REJECT {
            let text = String::from_utf8_lossy(&answer).into_owned();
            assert!(text.contains("another process passes for n1 of cluster `serried`"), "{text}");
            break;
        }
    }
    let again = answer_within_a_frame(&address, &hello_of_node(1, 7)).await;
    assert_eq!(again[3], WELCOME, "one process may have several connections");
    answering.abort();
}

/// Sends `bytes`; the first frame of the answer.
pub(crate) async fn answer_within_a_frame(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    next_frame(&mut stream).await.unwrap()
}

/// The next frame that comes, whole.
pub(crate) async fn next_frame(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut frame = vec![0; 12];
    stream.read_exact(&mut frame).await?;
    let length = u32::from_le_bytes([frame[4], frame[5], frame[6], frame[7]]) as usize;
    frame.resize(12 + length, 0);
    stream.read_exact(&mut frame[12..]).await?;
    Ok(frame)
}

/// Does what a process does that lives: answers pings, until the connection ends.
pub(crate) async fn answer_pings(mut stream: TcpStream) {
    while let Ok(next) = next_frame(&mut stream).await {
        if next[3] == PING && stream.write_all(&frame(PONG, b"")).await.is_err() {
            return;
        }
    }
}
