use super::*;
use crate::handshake::dial;

/// A node by itself, of which no thread runs.
fn server() -> Arc<Server> {
    let configuration = NodeConfiguration {
        cores: Some(1),
        ..NodeConfiguration::new(0, vec!["127.0.0.1:0".to_string()])
    };
    Server::new(configuration, None, &Catalogue::default(), None).unwrap().0
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

/// How many may come now who have not said who they are.
fn room_for_strangers(server: &Server) -> usize {
    std::iter::from_fn(|| server.admission.admit(Sort::Stranger)).collect::<Vec<_>>().len()
}

#[tokio::test]
async fn whoever_has_said_who_he_is_does_not_count_among_strangers() {
    let server = server();
    let all = server.admission.most(Sort::Stranger);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let greeter = server.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(greet(greeter.clone(), 0, stream));
        }
    });
    let silent = TcpStream::connect(&address).await.unwrap();
    while room_for_strangers(&server) == all {
        tokio::task::yield_now().await;
    }
    assert_eq!(room_for_strangers(&server), all - 1);
    let _client = dial(&address, &hello_of_a_client(), false).await.ok().unwrap();
    assert_eq!(room_for_strangers(&server), all - 1, "only the one that has said nothing");
    drop(silent);
    while room_for_strangers(&server) < all {
        tokio::task::yield_now().await;
    }
}
