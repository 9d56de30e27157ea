use serried_model::NodeId;
use serried_wire::{Connection, Kind, encode};
use tokio::net::TcpListener;

use super::*;
use crate::durable::Opened;

/// An address on which nothing can listen.
const SILENT: &str = "127.0.0.1:0";

/// A directory that takes the place of one whose disk was lost.
#[derive(Default)]
struct Replacement {
    lost: Option<BTreeMap<String, u32>>,
    keyspaces: Vec<KeyspaceRecord>,
    /// The node whose data does not count, if any.
    outdated: Option<usize>,
}

impl Disks for Replacement {
    fn open(&self, _: &str, _: u16) -> Result<Opened, String> {
        Err("nothing is opened before the node has joined".to_string())
    }

    fn provenance(&self) -> Option<Provenance> {
        Some(Provenance { incarnation: 9, rejoined: true })
    }

    fn keyspaces(&self) -> Vec<KeyspaceRecord> {
        self.keyspaces.clone()
    }

    fn lost(&self) -> Option<BTreeMap<String, u32>> {
        self.lost.clone()
    }

    fn meet(&self, member: usize, _: Provenance) -> Result<(), String> {
        match self.outdated == Some(member) {
            true => Err("it was met with newer data".to_string()),
            false => Ok(()),
        }
    }
}

/// An address at which every connection gets this answer.
pub(crate) async fn answering(welcome: Welcome) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut connection = Connection::new(stream).unwrap();
            connection.receive().await.unwrap();
            connection.send(Kind::Welcome, &encode(&welcome)).await.unwrap();
        }
    });
    address
}

fn welcome_of(member: u64) -> Welcome {
    Welcome { node: NodeId(member), ..Welcome::example() }
}

/// Node 0 of three, with a keyspace `a` of this id.
fn configuration(others: [String; 2], id: Option<&str>) -> NodeConfiguration {
    let [one, other] = others;
    let keyspace = KeyspaceConfiguration::new("a", "morty");
    let keyspaces = vec![KeyspaceConfiguration { id: id.map(str::to_string), ..keyspace }];
    NodeConfiguration {
        keyspaces,
        ..NodeConfiguration::new(0, vec![SILENT.to_string(), one, other])
    }
}

fn joining<'a>(configuration: &'a NodeConfiguration, disks: &'a dyn Disks) -> Joining<'a> {
    Joining { configuration, place: None, disks: Some(disks), incarnation: 7 }
}

/// Which nodes' answers count for node 0, if it asks at these addresses.
async fn counted(others: [String; 2], disks: &Replacement) -> Vec<u64> {
    let configuration = configuration(others, None);
    let joining = joining(&configuration, disks);
    let hello = Hello { inquires: true, ..joining.hello(0) };
    let mut nodes: Vec<u64> =
        joining.ask_once(hello, false).await.unwrap().iter().map(|answer| answer.node.0).collect();
    nodes.sort_unstable();
    nodes
}

#[tokio::test]
async fn each_other_node_counts_once_and_only_with_the_data_that_it_has_now() {
    let others = [answering(welcome_of(1)).await, answering(welcome_of(2)).await];
    assert_eq!(counted(others.clone(), &Replacement::default()).await, [1, 2]);
    // At the address of node 1 its old process answers, which was cut off while the node was replaced.
    let outdated = Replacement { outdated: Some(1), ..Replacement::default() };
    assert_eq!(counted(others.clone(), &outdated).await, [2]);
    // Both addresses lead to one node.
    let [one, other] = others;
    assert_eq!(counted([one.clone(), one], &Replacement::default()).await, [1]);
    assert_eq!(counted([other.clone(), SILENT.to_string()], &Replacement::default()).await, [0; 0]);
    assert_eq!(counted([SILENT.to_string(), other], &Replacement::default()).await, [2]);
}

#[test]
fn what_a_lost_disk_may_have_held_is_followed_by_nothing_earlier() {
    let settle = |id: Option<&str>, lost: u32, own: Option<(u32, bool)>| {
        // The others that know better are away.
        let configuration = configuration([SILENT.to_string(), SILENT.to_string()], id);
        let record = |(generation, dropped)| KeyspaceRecord {
            identity: identity(&configuration.keyspaces[0]),
            generation,
            dropped,
            later: false,
            format: None,
        };
        let disks = Replacement {
            lost: Some(BTreeMap::from([("a".to_string(), lost)])),
            keyspaces: own.map(record).into_iter().collect(),
            outdated: None,
        };
        joining(&configuration, &disks).settle().map_err(|error| error.to_string())
    };
    assert_eq!(settle(None, 2, None), Ok(vec![2]));
    assert_eq!(settle(None, 2, Some((0, true))), Ok(vec![2]));
    assert_eq!(settle(None, 2, Some((2, true))), Ok(vec![3]), "it has dropped that since");
    assert_eq!(settle(None, 2, Some((3, false))), Ok(vec![3]), "it has another one since");
    assert_eq!(settle(Some("a@2"), 2, None), Ok(vec![2]));
    assert_eq!(settle(Some("a@3"), 2, None), Ok(vec![3]));
    let error = settle(Some("a@1"), 2, None).unwrap_err();
    assert!(error.contains("this node may have had `a@2` before its disk was lost"), "{error}");
}

#[test]
fn of_what_the_others_say_the_last_generation_counts() {
    let answer = |lost: u32| Welcome { lost: vec![("a".to_string(), lost)], ..Welcome::example() };
    for answers in [vec![answer(2), answer(1)], vec![answer(1), answer(2)]] {
        let known = Heard { answers, enough: true }.generations();
        let known: Vec<_> = known.iter().map(|(name, last)| (&**name, *last)).collect();
        assert_eq!(known, [("a", 2), ("accounts", 0), ("audit", 2)]);
    }
}

#[test]
fn a_node_reports_keyspaces_that_it_has_had_or_may_have_had() {
    let answer = Welcome::example();
    let known: Vec<_> = generations(&answer).collect();
    assert_eq!(known, [("accounts", 0), ("audit", 2), ("carts", 1)]);
}

#[test]
fn enough_answers_include_one_of_each_majority_that_the_lost_node_was_in() {
    for (nodes, sites) in [(1, 1), (3, 1), (5, 1), (3, 3), (6, 2), (9, 3), (4, 4)] {
        let peers = (7400..7400 + nodes).map(|port| format!("127.0.0.1:{port}")).collect();
        let keyspaces = vec![KeyspaceConfiguration::new("a", "eiger").with_sites(sites)];
        let node = usize::from(nodes) - 1;
        let configuration = NodeConfiguration { keyspaces, ..NodeConfiguration::new(node, peers) };
        let disks = Replacement::default();
        let wanted = joining(&configuration, &disks).wanted(false);
        let each = usize::from(nodes / sites);
        let own_site = usize::from(nodes) - each..usize::from(nodes);
        assert!(wanted.iter().any(|wanted| wanted.nodes == own_site));
        for Wanted { nodes, count, .. } in wanted {
            // All answers that are enough, and all others that a majority with this node has, by bits.
            let others = nodes.len() - 1;
            let of_size = |size: usize| {
                (0..1u32 << others).filter(move |set| set.count_ones() as usize == size)
            };
            for answered in of_size(count) {
                let meets = |majority| others == 0 || answered & majority != 0;
                assert!(of_size(nodes.len() / 2).all(meets), "{count} of {nodes:?}");
            }
        }
    }
}

#[test]
fn a_node_of_a_site_that_is_lost_waits_for_majorities_of_the_other_sites_and_not_for_its_own() {
    let wanted = |keyspaces| {
        let peers = (7400..7409).map(|port| format!("127.0.0.1:{port}")).collect();
        let configuration = NodeConfiguration { keyspaces, ..NodeConfiguration::new(4, peers) };
        let wanted = joining(&configuration, &Replacement::default()).wanted(true);
        wanted.into_iter().map(|wanted| (wanted.nodes, wanted.count)).collect::<Vec<_>>()
    };
    let several = || KeyspaceConfiguration::new("a", "eiger").with_sites(3);
    assert_eq!(wanted(vec![several()]), [(0..3, 2), (6..9, 2)]);
    // Keyspaces with one site are on all nodes.
    let one = KeyspaceConfiguration::new("b", "ncc");
    assert_eq!(wanted(vec![several(), one.clone()]), [(0..9, 5), (0..3, 2), (6..9, 2)]);
    assert_eq!(wanted(vec![one]), [(0..9, 5)]);
}
