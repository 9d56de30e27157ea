//! The algorithms: three replicas, and clients that read, write and read-modify-write two keys.
//!
//! So that there are fewer states, what can't be told apart is one:
//!
//! - A message that is delivered is answered in the same step. To deliver the answer later is no other history,
//!   or one in which an operation ends later, so that less has to precede what.
//! - A question that brings nothing is answered by a replica when that has to be: right before the replica's key
//!   changes, or when the phase ends.
//! - An operation that begins right after a delivery could begin before it as well, unless the delivery ends
//!   another operation or changes what its client brings.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::order::Event;

pub(crate) const REPLICAS: usize = 3;
pub(crate) const MAJORITY: usize = 2;
/// The keys `x` and `y`.
pub(crate) const KEYS: usize = 2;

/// A version of a key: its carstamp, `(timestamp, writer, rmwc)`.
pub(crate) type Version = (u8, u8, u8);
pub(crate) const ABSENT: Version = (0, 0, 0);
/// What a client that never ends has written to `x`: when all begins, one replica has it.
pub(crate) const UNFINISHED: Version = (1, u8::MAX, 0);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Access {
    Read,
    Write,
    Modify,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Operation {
    pub(crate) access: Access,
    pub(crate) key: usize,
}

/// What is done one after the other, and by which client. Lanes of the same client go on at the same time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lane {
    pub(crate) client: usize,
    pub(crate) operations: Vec<Operation>,
}

/// What a client does about a value that it has read and that few may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// It brings it along with its next operation, whatever its key is (001 Algorithms 8 to 10).
    AsPrinted,
    /// Updates of another key wait until it has had a majority hold the value, and reads do not. To the same
    /// key it brings it along.
    UpdatesWait,
    /// If its next operation is on another key, it has a majority hold the value first, and then begins. To
    /// the same key it brings it along.
    AtNextOperation,
    /// It has a majority hold the value at once, in the background. Operations on another key wait for that;
    /// to the same key it brings it along.
    InBackground,
}

/// A value of a key, by its version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Value {
    key: usize,
    version: Version,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Phase {
    Idle,
    /// Majorities have to hold these first.
    Waiting(Vec<Value>),
    /// It asks what replicas hold: which has answered what.
    First {
        answers: [Option<Version>; REPLICAS],
        brings: Option<Value>,
    },
    /// It has them hold this.
    Second {
        answers: usize,
        version: Version,
        brings: Option<Value>,
    },
}

/// A message to one replica, by what it is about; so it needs no number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Message {
    /// Hold this, and then answer what you hold of the operation's key.
    Bring { lane: usize, operation: usize, value: Value },
    /// Hold this, by an operation.
    Second { lane: usize, operation: usize, value: Value },
    /// Hold this, which a client has read.
    Settle { client: usize, value: Value },
    /// Hold this, by the client that never ends.
    Unfinished(Value),
}

impl Message {
    fn value(&self) -> Value {
        match *self {
            Message::Bring { value, .. }
            | Message::Second { value, .. }
            | Message::Settle { value, .. }
            | Message::Unfinished(value) => value,
        }
    }
}

/// All that is at a moment, and what has happened so far.
#[derive(Clone, Hash, Debug)]
struct World {
    replicas: [[Version; KEYS]; REPLICAS],
    /// What the last read-modify-write of a key has made.
    modified: [Version; KEYS],
    /// How many operations of each lane have begun, and how far the last one is.
    lanes: Vec<(usize, Phase)>,
    /// What each client has read and does not know a majority to hold, and how many hold it by what the
    /// client has sent.
    unsettled: Vec<Vec<(Value, usize)>>,
    /// Sorted.
    network: Vec<(usize, Message)>,
    /// Nothing was delivered since an operation has ended or a client's values have changed.
    fresh: bool,
    events: Vec<Event>,
}

pub(crate) struct Model<'a> {
    pub(crate) lanes: &'a [Lane],
    pub(crate) form: Form,
    /// Whether what the client that never ends has sent to the others may arrive.
    pub(crate) unfinished_arrives: bool,
}

/// What has happened in each execution that has come to its end.
pub(crate) struct Explored {
    pub(crate) states: usize,
    pub(crate) histories: HashSet<Vec<Event>>,
}

impl Model<'_> {
    fn start(&self) -> World {
        let mut replicas = [[ABSENT; KEYS]; REPLICAS];
        replicas[1][0] = UNFINISHED;
        let unfinished = Message::Unfinished(Value { key: 0, version: UNFINISHED });
        let clients = self.lanes.iter().map(|lane| lane.client + 1).max().unwrap_or(0);
        let network = vec![(0, unfinished), (2, unfinished)];
        World {
            replicas,
            modified: [ABSENT; KEYS],
            lanes: vec![(0, Phase::Idle); self.lanes.len()],
            unsettled: vec![Vec::new(); clients],
            network: if self.unfinished_arrives { network } else { Vec::new() },
            fresh: true,
            events: Vec::new(),
        }
    }

    /// Goes through all executions. Panics if there are more states than that.
    pub(crate) fn explore(&self, states_at_most: usize) -> Explored {
        let mut open = vec![self.start()];
        // Their hashes: of ten million, two are the same once in a million times.
        let mut seen = HashSet::new();
        let mut histories = HashSet::new();
        while let Some(world) = open.pop() {
            if self.is_over(&world) {
                histories.insert(world.events);
                continue;
            }
            for mut next in self.steps(&world) {
                self.forget(&mut next);
                let mut hasher = DefaultHasher::new();
                next.hash(&mut hasher);
                if seen.insert(hasher.finish()) {
                    open.push(next);
                }
            }
            assert!(seen.len() <= states_at_most, "more than {states_at_most} states");
        }
        Explored { states: seen.len(), histories }
    }

    fn is_over(&self, world: &World) -> bool {
        let mut lanes = self.lanes.iter().zip(&world.lanes);
        lanes.all(|(lane, (begun, phase))| *begun == lane.operations.len() && *phase == Phase::Idle)
    }

    fn steps(&self, world: &World) -> Vec<World> {
        let mut next = Vec::new();
        let is_idle = |(_, phase): &(usize, Phase)| *phase == Phase::Idle;
        for (lane, (begun, phase)) in world.lanes.iter().enumerate() {
            if *phase == Phase::Idle
                && *begun < self.lanes[lane].operations.len()
                && (world.fresh || world.lanes.iter().all(is_idle))
            {
                let mut world = world.clone();
                self.begin(&mut world, lane);
                next.push(world);
            }
            if let Phase::First { answers, brings: None } = phase {
                self.answer_enough(world, lane, *answers, &mut next);
            }
        }
        for (at, (replica, message)) in world.network.iter().enumerate() {
            let mut world = world.clone();
            world.network.remove(at);
            world.fresh = false;
            for mut world in self.hold(world, *replica, message.value()) {
                self.answered(&mut world, *replica, *message);
                next.push(world);
            }
        }
        next
    }

    /// Replicas answer a question that brings nothing: just as many as still have to, whichever these are.
    fn answer_enough(
        &self,
        world: &World,
        lane: usize,
        answers: [Option<Version>; REPLICAS],
        next: &mut Vec<World>,
    ) {
        let key = self.operation(world, lane).key;
        let missing = MAJORITY - answers.iter().flatten().count();
        for chosen in 0u32..1 << REPLICAS {
            let is_open = |r: usize| chosen >> r & 1 == 0 || answers[r].is_none();
            if chosen.count_ones() as usize != missing || !(0..REPLICAS).all(is_open) {
                continue;
            }
            let mut answers = answers;
            for r in (0..REPLICAS).filter(|r| chosen >> r & 1 == 1) {
                answers[r] = Some(world.replicas[r][key]);
            }
            let mut world = world.clone();
            world.lanes[lane].1 = Phase::First { answers, brings: None };
            self.first_is_over(&mut world, lane);
            next.push(world);
        }
    }

    /// A replica holds something. Each of those who ask it about that key may have been answered before.
    fn hold(&self, world: World, replica: usize, value: Value) -> Vec<World> {
        let Value { key, version } = value;
        let before = world.replicas[replica][key];
        if version <= before {
            return vec![world];
        }
        let mut worlds = vec![world];
        for lane in 0..self.lanes.len() {
            let Phase::First { answers, brings: None } = &worlds[0].lanes[lane].1 else { continue };
            // Had that been the last answer, the phase would have ended.
            let is_last = answers.iter().flatten().count() + 1 == MAJORITY;
            if self.operation(&worlds[0], lane).key != key || answers[replica].is_some() || is_last
            {
                continue;
            }
            let mut answered = worlds.clone();
            for world in &mut answered {
                let Phase::First { answers, .. } = &mut world.lanes[lane].1 else { continue };
                answers[replica] = Some(before);
            }
            worlds.extend(answered);
        }
        for world in &mut worlds {
            world.replicas[replica][key] = version;
        }
        worlds
    }

    /// Drops messages of which nothing can come any more.
    fn forget(&self, world: &mut World) {
        let World { network, lanes, unsettled, replicas, .. } = world;
        network.retain(|(replica, message)| {
            let value = message.value();
            let is_awaited = match *message {
                Message::Bring { lane, operation, .. } => {
                    lanes[lane].0 == operation && matches!(lanes[lane].1, Phase::First { .. })
                }
                Message::Second { lane, operation, .. } => {
                    lanes[lane].0 == operation && matches!(lanes[lane].1, Phase::Second { .. })
                }
                Message::Settle { client, value } => {
                    unsettled[client].iter().any(|(other, _)| *other == value)
                }
                Message::Unfinished(_) => false,
            };
            is_awaited || replicas[*replica][value.key] < value.version
        });
    }

    fn operation(&self, world: &World, lane: usize) -> Operation {
        self.lanes[lane].operations[world.lanes[lane].0 - 1]
    }

    fn begin(&self, world: &mut World, lane: usize) {
        world.lanes[lane].0 += 1;
        world.record(Event::Begin { lane, operation: world.lanes[lane].0 - 1 });
        let client = self.lanes[lane].client;
        let Operation { access, key } = self.operation(world, lane);
        let others = world.unsettled[client].iter().map(|(value, _)| *value);
        let others: Vec<Value> = others.filter(|value| value.key != key).collect();
        let waits = match self.form {
            Form::AsPrinted => false,
            Form::UpdatesWait => access != Access::Read,
            Form::AtNextOperation | Form::InBackground => true,
        };
        if others.is_empty() || !waits {
            return self.ask(world, lane);
        }
        if self.form != Form::InBackground {
            others.iter().for_each(|value| world.settle(client, *value));
        }
        world.lanes[lane].1 = Phase::Waiting(others);
    }

    /// The first phase of an operation of any kind.
    fn ask(&self, world: &mut World, lane: usize) {
        let (operation, key) = (world.lanes[lane].0, self.operation(world, lane).key);
        let unsettled = world.unsettled[self.lanes[lane].client].iter().map(|(value, _)| *value);
        let is_brought = |value: &Value| self.form == Form::AsPrinted || value.key == key;
        let brings = unsettled.filter(is_brought).max_by_key(|value| value.version);
        if let Some(value) = brings {
            world.send(Message::Bring { lane, operation, value });
        }
        world.lanes[lane].1 = Phase::First { answers: [None; REPLICAS], brings };
    }

    /// A replica has held what a message brings, and answers it.
    fn answered(&self, world: &mut World, replica: usize, message: Message) {
        match message {
            Message::Bring { lane, operation, .. } if world.lanes[lane].0 == operation => {
                let held = world.replicas[replica][self.operation(world, lane).key];
                let Phase::First { answers, .. } = &mut world.lanes[lane].1 else { return };
                answers[replica] = Some(held);
                if answers.iter().flatten().count() == MAJORITY {
                    self.first_is_over(world, lane);
                }
            }
            Message::Second { lane, operation, .. } if world.lanes[lane].0 == operation => {
                let Phase::Second { answers, version, brings } = &mut world.lanes[lane].1 else {
                    return;
                };
                *answers += 1;
                if *answers == MAJORITY {
                    let (version, brings) = (*version, *brings);
                    world.end(lane, version);
                    self.is_held(world, self.lanes[lane].client, brings);
                }
            }
            Message::Settle { client, value } => {
                let mut unsettled = world.unsettled[client].iter_mut();
                let Some((_, holders)) = unsettled.find(|(other, _)| *other == value) else {
                    return;
                };
                *holders += 1;
                if *holders == MAJORITY {
                    self.is_held(world, client, Some(value));
                }
            }
            _ => {}
        }
    }

    fn first_is_over(&self, world: &mut World, lane: usize) {
        let client = self.lanes[lane].client;
        let Operation { access, key } = self.operation(world, lane);
        let Phase::First { answers, brings } = world.lanes[lane].1 else { return };
        let latest = answers.into_iter().flatten().max().unwrap_or(ABSENT);
        let version = match access {
            Access::Read => {
                self.is_held(world, client, brings);
                if answers.into_iter().flatten().any(|held| held != latest) {
                    self.enter(world, client, Value { key, version: latest });
                }
                return world.end(lane, latest);
            }
            Access::Write => {
                self.is_held(world, client, brings);
                (latest.0 + 1, lane as u8, 0)
            }
            // What is agreed on comes one after the other.
            Access::Modify => {
                let (timestamp, writer, rmwc) = latest.max(world.modified[key]);
                world.modified[key] = (timestamp, writer, rmwc + 1);
                world.modified[key]
            }
        };
        // What a read-modify-write brings counts as held when that is complete.
        let brings = brings.filter(|_| access == Access::Modify);
        world.lanes[lane].1 = Phase::Second { answers: 0, version, brings };
        let value = Value { key, version };
        world.send(Message::Second { lane, operation: world.lanes[lane].0, value });
    }

    /// A client has read what few may hold.
    fn enter(&self, world: &mut World, client: usize, value: Value) {
        if self.form == Form::AsPrinted {
            world.unsettled[client].clear(); // The most recent one is kept.
        }
        if world.unsettled[client].iter().any(|(other, _)| *other == value) {
            return;
        }
        world.unsettled[client].push((value, 0));
        world.unsettled[client].sort_unstable();
        if self.form == Form::InBackground {
            world.settle(client, value);
        }
    }

    /// A client hears that a majority holds something.
    fn is_held(&self, world: &mut World, client: usize, held: Option<Value>) {
        let Some(held) = held else { return };
        let is_over = |value: &Value| value.key == held.key && value.version <= held.version;
        world.unsettled[client].retain(|(value, _)| !is_over(value));
        world.fresh = true;
        for lane in (0..self.lanes.len()).filter(|lane| self.lanes[*lane].client == client) {
            let Phase::Waiting(values) = &mut world.lanes[lane].1 else { continue };
            values.retain(|value| !is_over(value));
            if values.is_empty() {
                self.ask(world, lane);
            }
        }
    }
}

impl World {
    fn send(&mut self, message: Message) {
        self.network.extend((0..REPLICAS).map(|replica| (replica, message)));
        self.network.sort_unstable();
    }

    fn settle(&mut self, client: usize, value: Value) {
        let message = Message::Settle { client, value };
        if !self.network.iter().any(|(_, other)| *other == message) {
            self.send(message);
        }
    }

    fn end(&mut self, lane: usize, version: Version) {
        self.lanes[lane].1 = Phase::Idle;
        self.fresh = true;
        self.record(Event::End { lane, operation: self.lanes[lane].0 - 1, version });
    }

    /// Which of two operations begins first says nothing, nor which of two ends first: only what ends before
    /// something else begins does.
    fn record(&mut self, event: Event) {
        let is_end = |event: &Event| matches!(event, Event::End { .. });
        let run = self.events.iter().rposition(|other| is_end(other) != is_end(&event));
        self.events.push(event);
        self.events[run.map_or(0, |at| at + 1)..].sort_unstable();
    }
}
