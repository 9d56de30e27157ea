//! Data directories of nodes, opened as processes would open them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serried_local::{LocalCluster, LocalOptions};
use serried_node::{
    Boot, Disks, Durability, KeyspaceConfiguration, KeyspaceIdentity, KeyspaceRecord,
    NodeConfiguration, NodeDisks, Opened, Provenance, Start,
};

/// A cluster whose nodes keep what they hold in directories, which are gone when the test is over.
pub(crate) struct Kept {
    pub(crate) cluster: LocalCluster,
    directories: Vec<Arc<Directory>>,
    _folder: Folder,
}

impl Kept {
    /// Waits until every node takes part in everything.
    pub(crate) async fn until_all_serve(&self) {
        while (0..3).any(|node| self.cluster.health(node).is_err()) {
            tokio::task::yield_now().await;
        }
    }

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
            let boot = Mutex::new(Boot::current());
            Arc::new(Directory { path, configuration, boot, opened: Mutex::new(None) })
        };
        let directories: Vec<Arc<Directory>> = (0..3).map(directory).collect();
        directories.iter().for_each(|directory| directory.open(Start::Usual).unwrap());
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

    /// Stops a node in good order.
    pub(crate) fn stop(&mut self, node: usize) {
        self.cluster.stop_node(node);
        *self.directories[node].opened.lock().unwrap() = None;
    }

    /// Starts them again on their directories.
    pub(crate) fn restart(&mut self, nodes: &[usize]) {
        nodes.iter().for_each(|node| self.begin(*node, Start::Usual));
    }

    /// Starts a node that does not run, in this way.
    pub(crate) fn begin(&mut self, node: usize, start: Start) {
        self.directories[node].open(start).unwrap();
        self.cluster.start_node(node).unwrap();
    }

    /// Why a node does not start.
    pub(crate) fn refused(&mut self, node: usize, start: Start) -> String {
        let opened = self.directories[node].open(start);
        let error = match opened {
            Ok(()) => self.cluster.start_node(node).unwrap_err().to_string(),
            Err(error) => error.to_string(),
        };
        *self.directories[node].opened.lock().unwrap() = None;
        error
    }

    /// Starts a node that was killed on an empty directory, as if it had never been there, and in the
    /// place of its former self.
    pub(crate) fn replace(&mut self, node: usize) {
        std::fs::remove_dir_all(&self.directories[node].path).unwrap();
        let error = self.refused(node, Start::Usual);
        assert!(error.contains("start it on an empty directory with --rejoin"), "{error}");
        self.begin(node, Start::Rejoin);
    }

    /// The same where no other runs. The others had answered what there is, and then it was killed.
    pub(crate) fn replace_alone(&mut self, node: usize) {
        let directory = &self.directories[node];
        std::fs::remove_dir_all(&directory.path).unwrap();
        directory.open(Start::Rejoin).unwrap();
        let keyspaces = directory.configuration.keyspaces.iter().map(|keyspace| {
            let KeyspaceConfiguration { name, protocol, partitions, .. } = keyspace.clone();
            (KeyspaceIdentity { name, protocol, partitions, sites: 1 }, 0)
        });
        let keyspaces: Vec<_> = keyspaces.collect();
        let known = keyspaces.iter().map(|(keyspace, last)| (keyspace.name.clone(), *last));
        directory.settle(&keyspaces, Some(&known.collect())).unwrap();
        self.cluster.start_node(node).unwrap();
    }

    /// Where a node keeps its data.
    pub(crate) fn path(&self, node: usize) -> &Path {
        &self.directories[node].path
    }

    /// Puts the machine into another run of this name, from the next start on.
    pub(crate) fn boot(&self, name: &str) {
        let boot = |directory: &Arc<Directory>| *directory.boot.lock().unwrap() = Boot::named(name);
        self.directories.iter().for_each(boot);
    }
}

/// The directory of a node, locked while the node runs.
struct Directory {
    path: PathBuf,
    configuration: NodeConfiguration,
    boot: Mutex<Boot>,
    opened: Mutex<Option<NodeDisks>>,
}

impl Directory {
    fn open(&self, start: Start) -> Result<(), String> {
        let (boot, path) = (self.boot.lock().unwrap().clone(), self.path.clone());
        let disks = NodeDisks::open_on(boot, path, &self.configuration, start);
        *self.opened.lock().unwrap() = Some(disks.map_err(|error| error.to_string())?);
        Ok(())
    }
}

const OPEN: &str = "a node runs while its directory is open";

impl Disks for Directory {
    fn open(&self, keyspace: &str, partition: u16) -> Result<Opened, String> {
        let opened = self.opened.lock().unwrap();
        opened.as_ref().expect(OPEN).open(keyspace, partition)
    }

    fn waits_for_all(&self) -> bool {
        self.opened.lock().unwrap().as_ref().expect(OPEN).waits_for_all()
    }

    fn provenance(&self) -> Option<Provenance> {
        self.opened.lock().unwrap().as_ref().expect(OPEN).provenance()
    }

    fn keyspaces(&self) -> Vec<KeyspaceRecord> {
        self.opened.lock().unwrap().as_ref().expect(OPEN).keyspaces()
    }

    fn lost(&self) -> Option<BTreeMap<String, u32>> {
        self.opened.lock().unwrap().as_ref().expect(OPEN).lost()
    }

    fn settle(
        &self,
        keyspaces: &[(KeyspaceIdentity, u32)],
        others: Option<&BTreeMap<String, u32>>,
    ) -> Result<(), String> {
        self.opened.lock().unwrap().as_ref().expect(OPEN).settle(keyspaces, others)
    }

    fn raise(&self, incarnation: u64) -> Result<(), String> {
        self.opened.lock().unwrap().as_ref().expect(OPEN).raise(incarnation)
    }

    fn met(&self, member: usize) -> Option<u64> {
        self.opened.lock().unwrap().as_ref().expect(OPEN).met(member)
    }

    fn is_new(&self) -> bool {
        self.opened.lock().unwrap().as_ref().expect(OPEN).is_new()
    }

    fn judge(&self, member: usize, has: Provenance) -> Result<bool, String> {
        self.opened.lock().unwrap().as_ref().expect(OPEN).judge(member, has)
    }

    fn meet(&self, member: usize, has: Provenance) -> Result<(), String> {
        self.opened.lock().unwrap().as_ref().expect(OPEN).meet(member, has)
    }

    fn opened(&self) -> Result<(), String> {
        self.opened.lock().unwrap().as_ref().expect(OPEN).opened()
    }

    fn close(&self) -> Result<(), String> {
        self.opened.lock().unwrap().as_ref().expect(OPEN).close()
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
