//! What a node does that has as many connections as it may.

use serried_node::TransportOptions;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::bad_frames::{
    WELCOME, answer_pings, answer_within_a_frame, hello, hello_of_node, next_frame,
};
use crate::{connect_to, start_on};

const FULL: u8 = 13;
const TWO: usize = 2;

fn transport() -> TransportOptions {
    TransportOptions { connections: TWO, ..TransportOptions::default() }
}

/// A client's connection that is kept.
async fn connected(address: &str) -> tokio::task::JoinHandle<()> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&hello()).await.unwrap();
    assert_eq!(next_frame(&mut stream).await.unwrap()[3], WELCOME);
    tokio::spawn(answer_pings(stream))
}

#[tokio::test]
async fn a_node_that_is_full_of_clients_says_so_and_admits_the_other_nodes() {
    let mut cluster = start_on(3, transport());
    cluster.stop_node(1);
    let address = cluster.addresses()[0].clone();
    let _clients = [connected(&address).await, connected(&address).await];
    let refused = answer_within_a_frame(&address, &hello()).await;
    let text = String::from_utf8_lossy(&refused);
    assert_eq!(refused[3], FULL);
    assert!(text.contains("n0 has 2 connections, as many as it may"), "{text}");
    cluster.start_node(1).unwrap();
    while cluster.status(1).reached < 3 || cluster.status(0).reached < 3 {
        tokio::task::yield_now().await;
    }
    cluster.stop_node(1);
    while answer_within_a_frame(&address, &hello_of_node(1, 7)).await[3] != WELCOME {}
}

#[tokio::test]
async fn a_client_uses_the_other_nodes_while_one_is_full_and_that_one_later() {
    let cluster = start_on(3, transport());
    let address = &cluster.addresses()[0];
    let clients = [connected(address).await, connected(address).await];
    let client = connect_to(cluster.addresses()).await.unwrap();
    assert!(client.node_statuses().await[0].is_none());
    client.keyspace("first").unwrap().put("key", "value").await.unwrap();
    clients.iter().for_each(tokio::task::JoinHandle::abort);
    while client.node_statuses().await[0].is_none() {
        tokio::task::yield_now().await;
    }
}
