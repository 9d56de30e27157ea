//! The candidates, as far as the measurements need them.

use std::path::Path;

use fjall::{KeyspaceCreateOptions, PersistMode};
use redb::{ReadableDatabase, ReadableTable, TableDefinition};
use serried_storage::{Batch, Durability, LogFiles};

/// How long a record is: a key of 8 bytes, and the rest.
const RECORD_BYTES: usize = 200;
const KEY_BYTES: usize = 8;
const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("items");
/// Whose log it is; any number does.
const IDENTITY: u64 = 1;

/// The record of a key. Its bytes do not compress, so that no engine saves writing them.
pub(crate) fn record(key: u64) -> Vec<u8> {
    let mut state = key;
    let mut record = key.to_be_bytes().to_vec();
    while record.len() < RECORD_BYTES {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        record.extend_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes());
    }
    record
}

/// Something that makes records durable, several at once by one thread.
pub(crate) trait Group: Send + Sized {
    /// Opens what is in a directory, or begins it there, and reads everything; also how many records.
    fn open(directory: &Path) -> anyhow::Result<(Self, u64)>;

    /// Returns once all of them are on the disk.
    fn commit(&mut self, records: &[Vec<u8>]) -> anyhow::Result<()>;
}

/// Something that makes a record durable, for many threads at once.
pub(crate) trait Single: Sync {
    /// Returns once it is on the disk.
    fn commit_one(&self, record: &[u8]) -> anyhow::Result<()>;
}

pub(crate) struct OurLog {
    log: LogFiles,
    batch: Batch,
}

impl Group for OurLog {
    fn open(directory: &Path) -> anyhow::Result<(Self, u64)> {
        let mut bytes = 0;
        let mut each = |_: u64, record: &[u8]| bytes += record.len();
        let (log, replayed) = LogFiles::open(directory, IDENTITY, Durability::Sync, &mut each)?;
        assert_eq!(bytes as u64, replayed.records * RECORD_BYTES as u64, "all of every record");
        let batch = Batch::starting_at(log.position());
        Ok((OurLog { log, batch }, replayed.records))
    }

    fn commit(&mut self, records: &[Vec<u8>]) -> anyhow::Result<()> {
        for record in records {
            self.batch.push(|bytes| bytes.extend_from_slice(record));
        }
        let position = self.log.write(&mut self.batch)?;
        self.batch.restart_at(position);
        Ok(())
    }
}

pub(crate) struct Fjall {
    database: fjall::Database,
    items: fjall::Keyspace,
}

impl Group for Fjall {
    fn open(directory: &Path) -> anyhow::Result<(Self, u64)> {
        let database = fjall::Database::builder(directory).open()?;
        let items = database.keyspace("items", KeyspaceCreateOptions::default)?;
        let mut count = 0;
        for entry in items.iter() {
            let (key, value) = entry.into_inner()?;
            assert_eq!(key.len() + value.len(), RECORD_BYTES, "all of every record");
            count += 1;
        }
        Ok((Fjall { database, items }, count))
    }

    fn commit(&mut self, records: &[Vec<u8>]) -> anyhow::Result<()> {
        let mut batch = self.database.batch();
        for record in records {
            let (key, value) = record.split_at(KEY_BYTES);
            batch.insert(&self.items, key, value);
        }
        batch.commit()?;
        Ok(self.database.persist(PersistMode::SyncData)?)
    }
}

impl Single for Fjall {
    fn commit_one(&self, record: &[u8]) -> anyhow::Result<()> {
        let (key, value) = record.split_at(KEY_BYTES);
        self.items.insert(key, value)?;
        Ok(self.database.persist(PersistMode::SyncData)?)
    }
}

pub(crate) struct Redb(redb::Database);

impl Redb {
    fn insert<'a>(&self, records: impl Iterator<Item = &'a [u8]>) -> anyhow::Result<()> {
        let transaction = self.0.begin_write()?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for record in records {
                let (key, value) = record.split_at(KEY_BYTES);
                table.insert(key, value)?;
            }
        }
        Ok(transaction.commit()?)
    }
}

impl Group for Redb {
    fn open(directory: &Path) -> anyhow::Result<(Self, u64)> {
        std::fs::create_dir_all(directory)?;
        let redb = Redb(redb::Database::create(directory.join("items.redb"))?);
        // Makes the table if need be.
        redb.insert(std::iter::empty())?;
        let mut count = 0;
        {
            let table = redb.0.begin_read()?.open_table(TABLE)?;
            for entry in table.iter()? {
                let (key, value) = entry?;
                let bytes = key.value().len() + value.value().len();
                assert_eq!(bytes, RECORD_BYTES, "all of every record");
                count += 1;
            }
        }
        Ok((redb, count))
    }

    fn commit(&mut self, records: &[Vec<u8>]) -> anyhow::Result<()> {
        self.insert(records.iter().map(Vec::as_slice))
    }
}

impl Single for Redb {
    fn commit_one(&self, record: &[u8]) -> anyhow::Result<()> {
        self.insert(std::iter::once(record))
    }
}
