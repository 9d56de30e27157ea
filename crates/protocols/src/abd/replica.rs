//! The server side: it holds registers.

use core::time::Duration;
use std::collections::BTreeMap;

use serried_actor::{Actor, Context, Group, NodeSet, Recover, Settings, Standing, Store};
use serried_model::{Key, NodeId, Value};
use serried_parts::{Cells, Incarnations, Stamped, decode_cell};

use super::{Message, Record, stored};

/// How often what was applied is put into the store.
const STORE_EVERY: Duration = Duration::from_millis(10);
/// How many keys at a time; more where there are very many.
const STORED_AT_ONCE: usize = 256;
/// How many bytes a reply to a scan holds, about.
const SCANNED_AT_ONCE: usize = 64 << 10;
/// How long to wait for the reply to a scan.
const SCAN_AGAIN: Duration = Duration::from_secs(1);

/// One replica of a partition.
#[derive(Debug)]
pub struct Replica {
    id: NodeId,
    group: Group,
    registers: Cells<Stamped>,
    incarnations: Incarnations,
    /// Set while it does not know what its predecessor held.
    lost: Option<Lost>,
    storing: bool,
}

/// How far it has got in taking over what others hold.
#[derive(Debug, Default)]
struct Lost {
    /// The key after which the scan of each replica continues.
    after: BTreeMap<NodeId, Option<Key>>,
    whole: NodeSet,
    /// How many keys it has been shown.
    keys: u64,
}

/// The timers of a replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// Put into the store what was applied.
    Store,
    /// Ask again for what others hold.
    Scan,
}

type Cx<'a> = Context<'a, Replica>;

impl Replica {
    /// An empty replica.
    pub fn new(id: NodeId, group: Group, settings: &Settings) -> Replica {
        let registers = Cells::new(settings.resident_keys);
        let incarnations = Incarnations::new(group.size());
        Replica { id, group, registers, incarnations, lost: None, storing: false }
    }

    fn apply(&mut self, key: Key, stamped: Stamped, cx: &mut Cx<'_>) {
        if self.registers.get(&key, cx.store()).is_before(&stamped) {
            let position = cx.log_position();
            *self.registers.change(&key, position, cx.store()) = stamped.clone();
            cx.append(Record::Applied { key, stamped });
            self.store_soon(cx);
        }
    }

    /// Holds a value that is durable elsewhere, unless it holds a later one.
    fn put(&mut self, key: &Key, stamped: Stamped, store: &mut dyn Store) {
        if self.registers.get(key, store).is_before(&stamped) {
            self.registers.put(key, stamped, store);
        }
    }

    fn store_soon(&mut self, cx: &mut Cx<'_>) {
        if !core::mem::replace(&mut self.storing, true) {
            cx.set_timer(Timer::Store, STORE_EVERY);
        }
    }

    fn store_some(&mut self, cx: &mut Cx<'_>) {
        self.storing = false;
        if !cx.store().is_behind() {
            let at_once = STORED_AT_ONCE.max(self.registers.unstored() / 64);
            self.registers.store_some(at_once, cx.store());
        }
        self.trim(cx);
        if self.registers.unstored() > 0 {
            self.store_soon(cx);
        }
    }

    /// Gives up the records that are not needed.
    fn trim(&mut self, cx: &mut Cx<'_>) {
        // A record says that the replica has lost its disk.
        if self.lost.is_some() {
            return;
        }
        let needed = self.registers.needs_log_from().unwrap_or(cx.log_position());
        if self.incarnations.are_far_before(needed) {
            self.record_incarnations(cx);
        }
        cx.trim_log(self.incarnations.need_log_from(needed));
    }

    /// Begins an incarnation later than all before, unless a clock was off, if this replica has lost its disk and has not
    /// begun one. A crash may have kept that the disk was lost and nothing of the incarnation.
    fn begin_incarnation(&mut self, cx: &mut Cx<'_>) {
        if self.lost.is_some() && self.incarnations.of(self.id) == 0 {
            self.set_incarnation(self.id, cx.clock().latest_us, cx);
        }
    }

    fn set_incarnation(&mut self, of: NodeId, incarnation: u64, cx: &mut Cx<'_>) {
        self.incarnations.set(of, incarnation);
        self.record_incarnations(cx);
    }

    /// Takes over which incarnations of others are known, as the predecessor knew: those may be replaced again, and
    /// their replacements have to be told of the latest.
    fn learn_of_others(&mut self, incarnations: &[u64], cx: &mut Cx<'_>) {
        for (member, incarnation) in incarnations.iter().enumerate().take(self.group.size()) {
            let other = NodeId::replica(self.id.partition(), member);
            if other != self.id && *incarnation > self.incarnations.of(other) {
                self.set_incarnation(other, *incarnation, cx);
            }
        }
    }

    /// Records all incarnations at the end of the log.
    fn record_incarnations(&mut self, cx: &mut Cx<'_>) {
        if let Some(of) = self.incarnations.record_at(cx.log_position()) {
            cx.append(Record::Incarnations(of));
        }
    }

    /// Asks the others that have not shown everything yet for the rest.
    fn scan(&mut self, cx: &mut Cx<'_>) {
        let Some(lost) = &self.lost else { return };
        for member in 0..self.group.size() {
            let other = NodeId::replica(self.id.partition(), member);
            if other != self.id && !lost.whole.contains(other) {
                let after = lost.after.get(&other).cloned().flatten();
                let incarnation = self.incarnations.of(self.id);
                cx.send(other, Message::Scan { after, incarnation });
            }
        }
        cx.set_timer(Timer::Scan, SCAN_AGAIN + 2 * self.group.round_trip());
    }

    fn on_scan(&mut self, from: NodeId, after: Option<Key>, incarnation: u64, cx: &mut Cx<'_>) {
        if incarnation > self.incarnations.of(from) {
            self.set_incarnation(from, incarnation, cx);
        }
        if self.lost.is_some() {
            return;
        }
        if after.is_none() {
            // What is shown is what lies in the store.
            self.registers.store_some(usize::MAX, cx.store());
        }
        let mut entries = Vec::new();
        let start = after.as_ref().map(Key::as_bytes);
        let more = cx.store().scan(start, SCANNED_AT_ONCE, &mut |key, bytes| {
            if !bytes.is_empty() {
                entries.push((Key::from(key), decode_cell(bytes)));
            }
        });
        cx.charge(entries.len());
        let incarnations = self.incarnations.named();
        cx.send(from, Message::Scanned { after, entries, more, incarnations });
    }

    fn on_scanned(
        &mut self,
        from: NodeId,
        after: Option<Key>,
        entries: Vec<(Key, Stamped)>,
        (more, incarnations): (bool, Vec<u64>),
        cx: &mut Cx<'_>,
    ) {
        if self.lost.is_none() {
            return;
        }
        self.learn_of_others(&incarnations, cx);
        let Some(lost) = &self.lost else { return };
        let incarnation = incarnations.get(self.id.member()).copied().unwrap_or(0);
        if incarnation > self.incarnations.of(self.id) {
            // The predecessor's incarnation is later, because its clock was ahead. Begins anew with a later one.
            self.set_incarnation(self.id, incarnation + 1, cx);
            self.lost = Some(Lost::default());
            return self.scan(cx);
        }
        if incarnation < self.incarnations.of(self.id) {
            return; // Late: sent before this replica began anew.
        }
        if lost.whole.contains(from) || lost.after.get(&from).cloned().flatten() != after {
            return; // Repeated.
        }
        cx.charge(entries.len());
        let (last, shown) = (entries.last().map(|(key, _)| key.clone()), entries.len() as u64);
        for (key, stamped) in entries {
            self.put(&key, stamped, cx.store());
        }
        let lost = self.lost.as_mut().expect("as before");
        lost.keys += shown;
        if more {
            let after = last.or(after);
            lost.after.insert(from, after.clone());
            let incarnation = self.incarnations.of(self.id);
            return cx.send(from, Message::Scan { after, incarnation });
        }
        lost.whole.insert(from);
        if lost.whole.len() >= self.group.majority() {
            self.lost = None;
            cx.append(Record::Whole);
            cx.cancel_timer(Timer::Scan);
            self.store_soon(cx);
        }
    }
}

impl Actor for Replica {
    type Message = Message;
    type Timer = Timer;
    type Record = Record;
    type Output = ();

    fn on_start(&mut self, cx: &mut Cx<'_>) {
        self.begin_incarnation(cx);
        self.record_incarnations(cx);
        self.scan(cx);
        self.trim(cx);
    }

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        cx.charge(1);
        if !message.is_sound() {
            return cx.reject(|| format!("{from} has sent numbers that nobody comes to"));
        }
        let is_peer = self.group.contains(from) && from.partition() == self.id.partition();
        if matches!(message, Message::Scan { .. } | Message::Scanned { .. })
            && !(is_peer && from != self.id)
        {
            return cx.reject(|| format!("{from} is no other replica of this partition"));
        }
        match message {
            Message::Read1 { .. } | Message::Write1 { .. } if self.lost.is_some() => {}
            Message::Read1 { request, key } => {
                let held = self.registers.get(&key, cx.store()).clone();
                let incarnations = self.incarnations.named();
                cx.send(from, Message::Read1Reply { request, held, incarnations });
            }
            Message::Write1 { request, key } => {
                let carstamp = self.registers.get(&key, cx.store()).carstamp;
                let incarnations = self.incarnations.named();
                cx.send(from, Message::Write1Reply { request, carstamp, incarnations });
            }
            Message::Apply { request, key, stamped } => {
                self.apply(key, stamped, cx);
                // Nothing that it says may count before others know its incarnation.
                if self.lost.is_none() {
                    let incarnations = self.incarnations.named();
                    cx.send(from, Message::Applied { request, incarnations });
                }
            }
            Message::Scan { after, incarnation } => self.on_scan(from, after, incarnation, cx),
            Message::Scanned { after, entries, more, incarnations } => {
                self.on_scanned(from, after, entries, (more, incarnations), cx);
            }
            // No one sends a replica anything else.
            Message::Read1Reply { .. } | Message::Write1Reply { .. } | Message::Applied { .. } => {}
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_>) {
        match timer {
            Timer::Store => self.store_some(cx),
            Timer::Scan => self.scan(cx),
        }
    }

    fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("resident_keys", self.registers.resident() as u64);
        each("unstored_keys", self.registers.unstored() as u64);
        each("catching_up", u64::from(self.lost.is_some()));
    }
}

impl Recover for Replica {
    fn replay(&mut self, record: Record, store: &mut dyn Store) {
        match record {
            Record::Applied { key, stamped } => self.put(&key, stamped, store),
            Record::Lost => self.lost = Some(Lost::default()),
            Record::Whole => self.lost = None,
            Record::Incarnations(of) => self.incarnations.replay(of),
        }
    }

    fn standing(&self) -> Standing {
        self.lost.as_ref().map_or(Standing::Full, |lost| Standing::Rejoining { keys: lost.keys })
    }

    fn rejoin(&mut self, cx: &mut Cx<'_>) {
        self.lost = Some(Lost::default());
        cx.append(Record::Lost);
        self.begin_incarnation(cx);
    }

    fn stored(value: &Value) -> Vec<u8> {
        stored(value)
    }
}
