//! Data directories of nodes, opened as processes would open them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serried_runtime::{
    Disks, Durability, KeyspaceConfiguration, LocalCluster, LocalOptions, NodeConfiguration,
    NodeDisks, Opened, Provenance,
};

/// A cluster whose nodes keep what they hold in directories, which are gone when the test is over.
pub(crate) struct Kept {
    pub(crate) cluster: LocalCluster,
    directories: Vec<Arc<Directory>>,
    _folder: Folder,
}

impl Kept {
    /// Starts three nodes with two cores each.
    pub(crate) fn start(durability: Durability, keyspaces: &[KeyspaceConfiguration]) -> Kept {
        let folder = Folder::new();
        let directory = |node| {
            let configuration = NodeConfiguration {
                keyspaces: keyspaces.to_vec(),
                durability,
                ..NodeConfiguration::new(node, vec![String::new(); 3])
            };
            let path = folder.0.join(format!("node-{node}"));
            Arc::new(Directory { path, configuration, opened: Mutex::new(None) })
        };
        let directories: Vec<Arc<Directory>> = (0..3).map(directory).collect();
        directories.iter().for_each(|directory| directory.open(false));
        let disks = directories.iter().map(|directory| directory.clone() as Arc<dyn Disks>);
        let options = LocalOptions {
            durability,
            disks: disks.collect(),
            cores: Some(2),
            ..LocalOptions::default()
        };
        let cluster = LocalCluster::start(3, keyspaces, options).unwrap();
        Kept { cluster, directories, _folder: folder }
    }

    /// Ends nodes as if their processes were killed.
    pub(crate) fn kill(&mut self, nodes: &[usize]) {
        for node in nodes {
            self.cluster.kill_node(*node);
            *self.directories[*node].opened.lock().unwrap() = None;
        }
    }

    /// Starts them again on their directories.
    pub(crate) fn restart(&mut self, nodes: &[usize]) {
        for node in nodes {
            self.directories[*node].open(false);
            self.cluster.start_node(*node).unwrap();
        }
    }

    /// Starts a node that was killed on an empty directory, as if it had never been there, and in the
    /// place of its former self.
    pub(crate) fn replace(&mut self, node: usize) {
        std::fs::remove_dir_all(&self.directories[node].path).unwrap();
        self.directories[node].open(false);
        let error = self.cluster.start_node(node).unwrap_err().to_string();
        assert!(error.contains("start it on an empty directory with --rejoin"), "{error}");
        *self.directories[node].opened.lock().unwrap() = None;
        self.directories[node].open(true);
        self.cluster.start_node(node).unwrap();
    }
}

/// The directory of a node, locked while the node runs.
struct Directory {
    path: PathBuf,
    configuration: NodeConfiguration,
    opened: Mutex<Option<NodeDisks>>,
}

impl Directory {
    fn open(&self, rejoin: bool) {
        let disks = NodeDisks::open(self.path.clone(), &self.configuration, rejoin).unwrap();
        *self.opened.lock().unwrap() = Some(disks);
    }
}

const OPEN: &str = "a node runs while its directory is open";

impl Disks for Directory {
    fn open(&self, keyspace: &str, partition: u16) -> Result<Opened, String> {
        let opened = self.opened.lock().unwrap();
        opened.as_ref().expect(OPEN).open(keyspace, partition)
    }

    fn provenance(&self) -> Option<Provenance> {
        self.opened.lock().unwrap().as_ref().expect(OPEN).provenance()
    }

    fn is_new(&self) -> bool {
        self.opened.lock().unwrap().as_ref().expect(OPEN).is_new()
    }

    fn meet(&self, member: usize, has: Provenance) -> Result<(), String> {
        self.opened.lock().unwrap().as_ref().expect(OPEN).meet(member, has)
    }
}

/// A temporary folder.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("serried-loopback-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
