//! The file that notes the data that the other nodes had when they were last met.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serried_model::Provenance;

use crate::StorageError;
use crate::disk::{read_text, replace};

/// Its name.
pub(super) const NAME: &str = "peers.toml";

/// The numbers of the other nodes' data, by node.
#[derive(Debug)]
pub(super) struct Peers {
    file: PathBuf,
    met: Mutex<BTreeMap<String, u64>>,
}

impl Peers {
    /// Reads the file of the directory at `path`.
    pub(super) fn open(path: &Path) -> Result<Peers, StorageError> {
        let file = path.join(NAME);
        let met = Mutex::new(read(&file)?);
        Ok(Peers { file, met })
    }

    /// The number of a node's data when it was last met.
    pub(super) fn met(&self, node: u64) -> Option<u64> {
        self.lock().get(&node.to_string()).copied()
    }

    /// Notes the data of a node, if it counts.
    pub(super) fn meet(&self, node: u64, has: Provenance) -> Result<(), StorageError> {
        let mut met = self.lock();
        let judged = judge(node, met.get(&node.to_string()).copied(), has);
        if judged.map_err(|reason| StorageError::refused(&self.file, reason))? {
            return Ok(());
        }
        let mut new = met.clone();
        new.insert(node.to_string(), has.incarnation);
        let text = toml::to_string(&new).expect("numbers can be written");
        let heading = "# Which data the other nodes had when they were last met.";
        replace(&self.file, &format!("{heading}\n{text}"))?;
        *met = new;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Judges the data that a node reports. `known` is the number of its data when it was last met.
pub(super) fn judge(node: u64, known: Option<u64>, has: Provenance) -> Result<bool, String> {
    match known {
        Some(known) if known == has.incarnation => Ok(true),
        Some(known) if known > has.incarnation => Err(format!(
            "n{node} was replaced: it was met with newer data than this, and this does not count any more; leave the \
             process that has it stopped and remove its directory, or, if it is to be n{node} again, stop the other one \
             and start it on an empty directory with --rejoin"
        )),
        Some(_) if !has.rejoined => Err(format!(
            "n{node} had other data before, and what it has promised with that it does not know any more: if its disk \
             was lost, start it on an empty directory with --rejoin, or with --rebuild-site if a whole site of a keyspace \
             was lost"
        )),
        // TOML has no greater number.
        _ if i64::try_from(has.incarnation).is_err() => Err(format!(
            "n{node} says that its data is {}, as none is: it is no node, or is damaged",
            has.incarnation
        )),
        _ => Ok(false),
    }
}

fn read(file: &Path) -> Result<BTreeMap<String, u64>, StorageError> {
    let Some(text) = read_text(file)? else { return Ok(BTreeMap::new()) };
    toml::from_str(&text).map_err(|error| StorageError::unreadable(file, &text, &error))
}
