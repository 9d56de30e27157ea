//! Connections at whose other end nobody is any more, though they are open.

use std::sync::Arc;

use serried::{Client, ConnectOptions};
use serried_node::TransportOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::bad_frames::{
    PING, PONG, WELCOME, answer_pings, answer_within_a_frame, frame, hello, hello_of_node,
    next_frame,
};
use crate::{connect_to, protocols, start_on};

const QUICK: TransportOptions = TransportOptions {
    frame_bytes: 64 << 20,
    most_waiting_bytes: 1 << 20,
    slow_waiting_bytes: 1 << 20,
    clock_uncertainty_us: 10_000,
    client_bytes: 1 << 30,
    connections: 100,
    handshake_timeout_ms: 5000,
    poll_us: 0,
    heartbeat_ms: 20,
    silence_ms: 500,
};

#[tokio::test]
async fn a_client_that_says_nothing_is_pinged_and_then_given_up() {
    let cluster = start_on(1, QUICK);
    let mut stream = TcpStream::connect(&cluster.addresses()[0]).await.unwrap();
    stream.write_all(&hello()).await.unwrap();
    assert_eq!(next_frame(&mut stream).await.unwrap()[3], WELCOME);
    assert_eq!(next_frame(&mut stream).await.unwrap()[3], PING);
    let _ = stream.read_to_end(&mut Vec::new()).await;
    while cluster.statistics()[0].connections > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_client_that_has_nothing_to_say_is_kept() {
    let cluster = start_on(1, QUICK);
    let mut stream = TcpStream::connect(&cluster.addresses()[0]).await.unwrap();
    stream.write_all(&hello()).await.unwrap();
    assert_eq!(next_frame(&mut stream).await.unwrap()[3], WELCOME);
    // Longer than silence is borne.
    for _ in 0..40 {
        while next_frame(&mut stream).await.unwrap()[3] != PING {}
        stream.write_all(&frame(PONG, b"")).await.unwrap();
    }
    assert_eq!(cluster.statistics()[0].connections, 1);
}

#[tokio::test]
async fn a_ping_may_come_while_a_client_still_measures_how_far_the_node_is() {
    let cluster = start_on(1, TransportOptions::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let node = cluster.addresses()[0].clone();
    let between = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut node = TcpStream::connect(&node).await.unwrap();
        let hello = next_frame(&mut client).await.unwrap();
        node.write_all(&hello).await.unwrap();
        let welcome = next_frame(&mut node).await.unwrap();
        client.write_all(&[welcome, frame(PING, b"")].concat()).await.unwrap();
        copy_bidirectional(&mut client, &mut node).await
    });
    let client = connect_to(vec![address]).await.unwrap();
    client.keyspace("first").unwrap().put("key", "value").await.unwrap();
    assert_eq!(client.statistics().reconnects, 0);
    between.abort();
}

/// Passes the first connection on to `address` until it is notified, then holds it without a word; passes on later ones.
async fn fall_silent(listener: TcpListener, address: String, silence: Arc<Notify>) {
    let (mut client, _) = listener.accept().await.unwrap();
    let mut node = TcpStream::connect(&address).await.unwrap();
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut node) => unreachable!("nobody closes it"),
        () = silence.notified() => {}
    }
    loop {
        let (mut later, _) = listener.accept().await.unwrap();
        let mut node = TcpStream::connect(&address).await.unwrap();
        tokio::spawn(async move { copy_bidirectional(&mut later, &mut node).await });
    }
}

#[tokio::test]
async fn a_client_dials_again_where_nobody_answers_over_a_connection_that_is_open() {
    let cluster = start_on(1, QUICK);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let silence = Arc::new(Notify::new());
    let between = fall_silent(listener, cluster.addresses()[0].clone(), silence.clone());
    let between = tokio::spawn(between);
    let mut options = ConnectOptions::new([address]);
    options.transport = QUICK;
    let client = Client::connect_with(options, protocols().coordinators).await.unwrap();
    let keyspace = client.keyspace("first").unwrap();
    keyspace.put("key", "value").await.unwrap();
    silence.notify_one();
    while client.statistics().reconnects == 0 {
        tokio::task::yield_now().await;
    }
    keyspace.put("key", "other").await.unwrap();
    between.abort();
}

#[tokio::test]
async fn a_process_that_does_not_answer_gives_way_to_the_next_one_of_its_node() {
    let transport = TransportOptions { silence_ms: 3_600_000, ..QUICK };
    let mut cluster = start_on(3, transport);
    cluster.stop_node(1);
    let address = cluster.addresses()[0].clone();
    let mut dead = loop {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(&hello_of_node(1, 7)).await.unwrap();
        if next_frame(&mut stream).await.unwrap()[3] == WELCOME {
            break stream;
        }
    };
    let mut next = TcpStream::connect(&address).await.unwrap();
    next.write_all(&hello_of_node(1, 8)).await.unwrap();
    assert_eq!(next_frame(&mut next).await.unwrap()[3], WELCOME);
    let _ = dead.read_to_end(&mut Vec::new()).await;
    let answering = tokio::spawn(answer_pings(next));
    let late = answer_within_a_frame(&address, &hello_of_node(1, 7)).await;
    let text = String::from_utf8_lossy(&late);
    assert!(text.contains("another process passes for n1"), "the one that answers stays: {text}");
    answering.abort();
}

#[tokio::test]
async fn a_node_says_when_it_reaches_no_majority_and_when_it_does_again() {
    let mut cluster = start_on(3, QUICK);
    while (0..3).any(|node| cluster.health(node).is_err()) {
        tokio::task::yield_now().await;
    }
    let client = connect_to(cluster.addresses()).await.unwrap();
    cluster.kill_node(1);
    while cluster.status(0).reached > 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(cluster.health(0), Ok(()), "two of three are a majority");
    cluster.kill_node(2);
    let said = loop {
        if let Err(said) = cluster.health(0) {
            break said;
        }
        tokio::task::yield_now().await;
    };
    assert!(said.starts_with("reaches no majority, only 1 of 3 nodes"), "{said}");
    let status = client.node_statuses().await[0].clone().unwrap();
    assert!(status.serves().is_err());
    cluster.start_node(1).unwrap();
    while cluster.health(0).is_err() || cluster.health(1).is_err() {
        tokio::task::yield_now().await;
    }
}
