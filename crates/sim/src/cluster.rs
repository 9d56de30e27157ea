//! A simulated cluster with its clients.

mod turns;

use core::future::Future;
use std::collections::BTreeSet;
use std::sync::Arc;

use serried_actor::{
    Actor, Context, Coordinate, Observation, Protocol, Recover, Standing, Timestamp,
};
use serried_model::{Family, NodeId, TxnId};
use serried_session::Session;

use crate::executor::{Executor, Wakeups};
use crate::fault::{Entry, State};
use crate::hash::{Purpose, generator};
use crate::host::SharedCores;
use crate::network::Network;
use crate::node::{Host, Job, Node, Occurrence};
use crate::port::{ClientPort, Time};
use crate::reach::Place;
use crate::statistics::Traffic;
use crate::store::SimulatedStore;
use crate::world::{Event, Kind, World};
use crate::{Configuration, Fault, FaultId, Interceptor, Plan, Reach, Scheduled, Statistics};

/// Receives the outputs of replicas.
pub type Observer<O> = Box<dyn FnMut(Timestamp, NodeId, O)>;

/// Receives the observations of replicas ([`Context::observe`]).
pub type Watcher = Box<dyn FnMut(Timestamp, NodeId, Observation)>;

/// A run did not finish in time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{protocol} stalled at {at}: {unfinished} tasks of clients {clients:?} have not finished; replay with seed {seed}"
)]
pub struct Stalled {
    /// The protocol's name.
    pub protocol: &'static str,
    /// The run's seed.
    pub seed: u64,
    /// When the run was given up.
    pub at: Timestamp,
    /// How many tasks have not finished.
    pub unfinished: usize,
    /// The clients of these tasks, in ascending order.
    pub clients: Vec<usize>,
}

/// A cluster of replicas and clients that run `P`, in virtual time.
///
/// Nothing happens outside of [`Cluster::run_until`] and [`Cluster::run_until_done`]. Wall clocks start
/// at 1,700,000,000 s after the Unix epoch, plus or minus their skew. If anything panics during a run,
/// the protocol and the seed are printed.
pub struct Cluster<P: Protocol> {
    configuration: Configuration,
    world: World<P::Message>,
    replicas: Vec<Node<P::Replica>>,
    clients: Vec<Client<P::Family, P::Coordinator>>,
    observer: Option<Observer<<P::Replica as Actor>::Output>>,
    watcher: Option<Watcher>,
    executor: Executor,
    wakeups: Arc<Wakeups>,
    time: Arc<Time>,
    faults: Vec<Entry>,
    /// Machines whose disk was lost since they were last started.
    lost_disks: BTreeSet<usize>,
    /// Machines that have rejoined after that. If they are started again before anything is durable there, they must
    /// rejoin again.
    rejoined: BTreeSet<usize>,
    /// Machines that have lost their disks and have not taken part fully since, as far as was checked.
    replaced: BTreeSet<usize>,
}

struct Client<F: Family, C: Coordinate<F>> {
    node: Node<C>,
    port: Arc<ClientPort<F>>,
    /// A reused buffer for operations, empty between events.
    operations: Vec<(TxnId, F::Operation)>,
}

/// The host of a replica: outputs go to the observer.
struct ReplicaHost<'a, O> {
    now: Timestamp,
    id: NodeId,
    observer: &'a mut Option<Observer<O>>,
    watcher: &'a mut Option<Watcher>,
}

impl<A: Recover> Host<A> for ReplicaHost<'_, A::Output> {
    fn operate(&mut self, _: &mut A, _: &mut Context<'_, A>) {
        unreachable!("operations are for coordinators")
    }

    fn rejoin(&mut self, actor: &mut A, cx: &mut Context<'_, A>) {
        actor.rejoin(cx);
        actor.on_start(cx);
    }

    fn stop(&mut self, actor: &mut A, cx: &mut Context<'_, A>) {
        actor.on_stop(cx);
    }

    fn output(&mut self, output: A::Output) {
        if let Some(observer) = self.observer {
            observer(self.now, self.id, output);
        }
    }

    fn is_watched(&self) -> bool {
        self.watcher.is_some()
    }

    fn observe(&mut self, observation: Observation) {
        if let Some(watcher) = self.watcher {
            watcher(self.now, self.id, observation);
        }
    }
}

/// The host of a coordinator: operations come from its port, and outputs go there.
struct ClientHost<'a, F: Family> {
    port: &'a ClientPort<F>,
    operations: &'a mut Vec<(TxnId, F::Operation)>,
}

impl<F: Family, A: Coordinate<F>> Host<A> for ClientHost<'_, F> {
    fn operate(&mut self, actor: &mut A, cx: &mut Context<'_, A>) {
        self.port.take_operations(self.operations);
        for (txn, operation) in self.operations.drain(..) {
            actor.on_operation(txn, operation, cx);
        }
        actor.on_batch_end(cx);
    }

    fn rejoin(&mut self, _: &mut A, _: &mut Context<'_, A>) {
        unreachable!("a client has no disk to lose")
    }

    fn stop(&mut self, _: &mut A, _: &mut Context<'_, A>) {
        unreachable!("a client is not asked to stop")
    }

    fn output(&mut self, (txn, output): A::Output) {
        self.port.deliver(txn, output);
    }
}

impl<P: Protocol> Cluster<P> {
    /// A cluster at time zero, before the first event.
    ///
    /// # Panics
    /// If [`serried_actor::Group`] does not accept the number of replicas, partitions or sites, the geography has too
    /// few sites for them, or a node has no core.
    pub fn new(configuration: Configuration) -> Self {
        let Configuration { seed, sites, replicas: members, clients, geography, .. } =
            configuration;
        let places = geography.sites.len();
        assert!(
            sites == 1 || usize::from(sites) <= places,
            "{sites} sites do not fit the geography {}, which has {places}",
            geography.name
        );
        let replicas = configuration.all_replicas();
        let total = replicas + clients;
        let id = |number: usize| match number.checked_sub(replicas) {
            None => NodeId::replica((number / members) as u16, number % members),
            Some(client) => client_id(client),
        };
        let any_group = configuration.group_at(0);
        // The machine that a replica is on, or that a client is next to.
        let machine = |number: usize| match number.checked_sub(replicas) {
            None => any_group.host(id(number)),
            Some(client) => configuration.machine_near(client),
        };
        let place = |number: usize| Place {
            node: id(number),
            machine: (number < replicas).then(|| machine(number)),
            site: configuration.place_of_machine(machine(number)),
        };
        let nodes = (0..total).map(place).collect();
        let random = generator(seed, Purpose::Network);
        let network = Network::new(&geography, configuration.network, nodes, replicas, random);
        let (costs, client_costs) = (configuration.costs, configuration.client_costs);
        let client_costs = client_costs.unwrap_or(costs);
        let (mut replica_byte, mut client_byte) = (costs.byte_ps, client_costs.byte_ps);
        if let Some(machine) = &configuration.one_machine {
            (replica_byte, client_byte) = (machine.replica.byte_ps, machine.client.byte_ps);
        }
        let measures = replica_byte > 0 || client_byte > 0;
        let mut world = World::new(network, (replicas as u32, members as u32), total as u32);
        let shared = |machine| SharedCores::new(machine, replicas as u32);
        world.shared_cores = configuration.one_machine.map(shared);
        world.measures = measures || configuration.hash_contents;
        world.hash_contents = configuration.hash_contents;
        let (time, wakeups) = (Arc::new(Time::default()), Arc::new(Wakeups::default()));
        let (settings, may_crash) = (configuration.settings, configuration.disk.keep_records);
        let store = || {
            let initial = configuration.initial.clone();
            SimulatedStore::new(initial, P::Replica::stored, may_crash)
        };
        let replica = |number: usize| {
            let (id, group) = (id(number), configuration.group_at(machine(number)));
            let (actor, cores) = (P::replica(id, group, &settings), configuration.replica_cores);
            Node::new(number as u32, id, actor, (cores, costs), store(), &configuration)
        };
        let client = |i: usize| {
            let (number, cores) = (replicas + i, configuration.client_cores);
            let actor = P::coordinator(configuration.group_at(machine(number)), &settings);
            let random = generator(seed, Purpose::Session(i as u64));
            let capacity = configuration.open_attempts;
            let site = configuration.site_of_machine(configuration.machine_near(i));
            let port = ClientPort::new((i, site), capacity, random, time.clone(), wakeups.clone());
            let (id, cores) = (id(number), (cores, client_costs));
            let node = Node::new(number as u32, id, actor, cores, store(), &configuration);
            Client { node, port: Arc::new(port), operations: Vec::new() }
        };
        let replicas = (0..replicas).map(replica).collect();
        let clients = (0..clients).map(client).collect();
        for node in 0..total as u32 {
            world.scheduler.schedule(Timestamp(0), Event::Start { node });
        }
        Cluster {
            configuration,
            world,
            replicas,
            clients,
            observer: None,
            watcher: None,
            executor: Executor::new(wakeups.clone()),
            wakeups,
            time,
            faults: Vec::new(),
            lost_disks: BTreeSet::new(),
            rejoined: BTreeSet::new(),
            replaced: BTreeSet::new(),
        }
    }

    /// The configuration that determines the run.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// A client's handle to the keyspace. It uses this client's coordinator.
    pub fn keyspace(&self, client: usize) -> <P::Family as Session>::Keyspace
    where
        P::Family: Session,
    {
        P::Family::keyspace(self.clients[client].port.clone(), self.configuration.limits, P::OFFERS)
    }

    /// Adds a task to a client's workload. A client may have many.
    pub fn spawn(&mut self, client: usize, task: impl Future<Output = ()> + Send + 'static) {
        assert!(client < self.clients.len(), "there is no client {client}");
        self.executor.spawn(client, task);
    }

    /// Counts what a client sends and is sent from now on. Its tasks can look at the numbers.
    pub fn count_traffic(&mut self, client: usize) -> Arc<Traffic> {
        let number = (self.configuration.all_replicas() + client) as u32;
        self.world.counted.entry(number).or_default().clone()
    }

    /// Passes all outputs of replicas to `observer`.
    pub fn set_observer(&mut self, observer: Observer<<P::Replica as Actor>::Output>) {
        self.observer = Some(observer);
    }

    /// Passes all observations of replicas to `watcher` from now on.
    pub fn watch(&mut self, watcher: Watcher) {
        self.watcher = Some(watcher);
    }

    /// Passes every message to `interceptor`, which decides its fate before the network does.
    pub fn set_interceptor(&mut self, interceptor: Interceptor<P::Message>) {
        self.world.interceptor = Some(interceptor);
    }

    /// Delivers a message to `to` now that `from` has not sent. From now on, messages to nodes that do not exist are lost
    /// instead of causing a panic.
    ///
    /// # Panics
    /// If `from` or `to` does not exist.
    pub fn forge(&mut self, from: NodeId, to: NodeId, message: P::Message) {
        self.world.forge(from, to, message);
    }

    /// Handles all events up to `end`, and sets the time to `end`.
    pub fn run_until(&mut self, end: Timestamp) {
        self.settle();
        while self.step(end) {}
        self.set_now(end.max(self.world.now));
    }

    /// Runs until every task has finished.
    ///
    /// # Errors
    /// If a task has not finished at `limit`, or if no events are left.
    pub fn run_until_done(&mut self, limit: Timestamp) -> Result<(), Stalled> {
        self.settle();
        while self.executor.unfinished() > 0 {
            if !self.step(limit) {
                return Err(Stalled {
                    protocol: P::NAME,
                    seed: self.configuration.seed,
                    at: self.world.now,
                    unfinished: self.executor.unfinished(),
                    clients: self.executor.unfinished_clients(),
                });
            }
        }
        Ok(())
    }

    /// The time since the start of the run.
    pub fn now(&self) -> Timestamp {
        self.world.now
    }

    /// A hash of every event handled so far. Runs of the same configuration and workload have the
    /// same one.
    pub fn event_hash(&self) -> u64 {
        self.world.hash.value()
    }

    /// How many events have been handled.
    pub fn events(&self) -> u64 {
        self.world.counts.events
    }

    /// The statistics of the run so far.
    pub fn statistics(&self) -> Statistics {
        let counts = &self.world.counts;
        let queues = self.replicas.iter().map(Node::longest_queue);
        let queues = queues.chain(self.clients.iter().map(|client| client.node.longest_queue()));
        Statistics {
            events: counts.events,
            messages: counts.messages,
            bytes: counts.bytes,
            lost: counts.lost,
            partitioned: counts.partitioned,
            undeliverable: counts.undeliverable,
            duplicated: counts.duplicated,
            reordered: counts.reordered,
            rejected: counts.rejected,
            replica_busy: self.replicas.iter().map(Node::busy).collect(),
            replica_load: self.replicas.iter().map(Node::load).sum(),
            client_load: self.clients.iter().map(|client| client.node.load()).sum(),
            client_busy: self.clients.iter().map(|client| client.node.busy()).sum(),
            longest_queue: queues.max().unwrap_or_default(),
        }
    }

    /// The replica of its site's first partition on a machine, for checking invariants.
    pub fn replica(&self, machine: usize) -> &P::Replica {
        &self.first_on(machine).actor
    }

    /// A replica of any partition at any site.
    pub fn replica_of(&self, partition: u16, member: usize) -> &P::Replica {
        &self.replicas[self.world.number(NodeId::replica(partition, member)) as usize].actor
    }

    /// The gauge called `name` of a replica, or `None` if the replica has none of that name.
    pub fn gauge(&self, partition: u16, member: usize, name: &str) -> Option<u64> {
        let mut found = None;
        self.replica_of(partition, member).gauges(&mut |other, value| {
            if name == other {
                found = Some(value);
            }
        });
        found
    }

    /// Whether a machine is up and all its replicas take part fully. If it has lost its disk, something must also be
    /// durable there: otherwise a crash would lose its data again.
    pub fn is_whole(&self, machine: usize) -> bool {
        let is_full = |replica: &Node<P::Replica>| replica.actor.standing() == Standing::Full;
        let is_kept = |replica: &Node<P::Replica>| replica.has_records();
        let mut replicas = self.replicas_on(machine).map(|number| &self.replicas[number]);
        let rejoined = self.rejoined.contains(&machine);
        self.is_up(machine)
            && replicas.all(|replica| is_full(replica) && (!rejoined || is_kept(replica)))
    }

    /// A client's coordinator, for checking invariants.
    pub fn coordinator(&self, client: usize) -> &P::Coordinator {
        &self.clients[client].node.actor
    }

    /// The identity of a client's coordinator.
    pub fn client_id(&self, client: usize) -> NodeId {
        client_id(client)
    }

    /// Whether a machine is up.
    pub fn is_up(&self, machine: usize) -> bool {
        self.first_on(machine).is_up()
    }

    /// Cuts these links now.
    pub fn partition(&mut self, reach: Reach) -> FaultId {
        self.begin(Fault::Partition(reach))
    }

    /// Crashes a machine now, if it is up, with its replicas of all partitions.
    ///
    /// # Panics
    /// If the disk does not keep records.
    pub fn crash(&mut self, machine: usize) -> FaultId {
        self.begin(Fault::Crash(machine))
    }

    /// Announces to a machine's replicas that the machine is about to stop. The caller crashes it as soon as it [may
    /// stop](Cluster::may_stop).
    pub fn prepare_to_stop(&mut self, machine: usize) {
        for number in self.replicas_on(machine) {
            self.happen(number as u32, Occurrence::Job(Job::Stop));
        }
    }

    /// Whether all replicas of a machine may stop now.
    pub fn may_stop(&self, machine: usize) -> bool {
        self.replicas_on(machine).all(|number| self.replicas[number].actor.may_stop())
    }

    /// Starts a machine again if it is down, with its durable data. Crashes that are scheduled for later still happen.
    pub fn restart(&mut self, machine: usize) {
        for fault in 0..self.faults.len() {
            let Entry { fault: what, state } = &self.faults[fault];
            if *what == Fault::Crash(machine) && *state == State::Active {
                self.end(FaultId(fault));
            }
        }
    }

    /// Stops a client for ever: its coordinator forgets everything, and its tasks are dropped.
    pub fn crash_client(&mut self, client: usize) {
        self.executor.abandon(client);
        self.clients[client].node.crash();
    }

    /// Stops a client for ever after it has sent `messages` more messages. The next one is not sent.
    pub fn crash_client_after(&mut self, client: usize, messages: u64) {
        self.world.doomed.insert((self.replicas.len() + client) as u32, messages);
    }

    /// Begins a fault now.
    pub fn begin(&mut self, fault: Fault) -> FaultId {
        let id = self.enter(fault);
        self.fault_begins(id);
        id
    }

    /// Schedules a fault.
    pub fn schedule(&mut self, scheduled: Scheduled) -> FaultId {
        let Scheduled { begins, ends, fault } = scheduled;
        let id = self.enter(fault);
        let fault = id.0 as u32;
        let (begins, ends) = (begins.max(self.world.now), ends.max(self.world.now));
        self.world.scheduler.schedule(begins, Event::FaultBegins { fault });
        self.world.scheduler.schedule(ends, Event::FaultEnds { fault });
        id
    }

    /// Schedules a plan's faults, and healing at its end. For the plan's network and clocks, see [`Plan::apply_to`].
    pub fn follow(&mut self, plan: &Plan) {
        for scheduled in &plan.faults {
            self.schedule(scheduled.clone());
        }
        self.world.scheduler.schedule(plan.ends.max(self.world.now), Event::Heal);
    }

    /// Ends a fault, or prevents it if it has not begun.
    pub fn end(&mut self, id: FaultId) {
        let entry = &mut self.faults[id.0];
        let was = core::mem::replace(&mut entry.state, State::Over);
        if was != State::Active {
            return;
        }
        match entry.fault.clone() {
            Fault::Partition(_) | Fault::Slow(..) => self.world.network.restore(id),
            Fault::Pause(node) => self.happen_to(node, Occurrence::Resume),
            Fault::ClockJump(node, by_us) => {
                self.happen_to(node, Occurrence::Jump { by_us: -by_us });
            }
            Fault::Crash(machine) | Fault::LostDisk(machine) => self.restart_machine(machine),
            Fault::LostSite(site) => {
                self.machines_of(site).for_each(|machine| self.restart_machine(machine));
            }
            Fault::SlowDisk(machine, _) => self.slow_disk(machine, 1),
            Fault::ClientDeath(_) => {}
        }
    }

    /// Ends all faults, and prevents those that are scheduled: the network delivers everything once and in order, jumps
    /// of clocks are undone, and every replica is up.
    pub fn heal(&mut self) {
        self.world.network.set_faults(self.configuration.network.healed());
        for fault in 0..self.faults.len() {
            self.end(FaultId(fault));
        }
    }

    fn enter(&mut self, fault: Fault) -> FaultId {
        if matches!(fault, Fault::Crash(_) | Fault::LostDisk(_) | Fault::LostSite(_)) {
            let kept = self.configuration.disk.keep_records;
            assert!(kept, "a replica can restart only if `Disk::keep_records` is set");
        }
        self.faults.push(Entry { fault, state: State::Scheduled });
        FaultId(self.faults.len() - 1)
    }

    fn fault_begins(&mut self, id: FaultId) {
        let entry = &mut self.faults[id.0];
        if entry.state != State::Scheduled {
            return;
        }
        entry.state = State::Active;
        if let Fault::LostDisk(machine) = entry.fault
            && !self.can_do_without_the_disk_of(machine)
        {
            self.faults[id.0].fault = Fault::Crash(machine);
        }
        match self.faults[id.0].fault.clone() {
            Fault::Partition(reach) => self.world.network.disturb(id, &reach, None),
            Fault::Slow(reach, factor) => self.world.network.disturb(id, &reach, Some(factor)),
            Fault::Pause(node) => self.happen_to(node, Occurrence::Pause),
            Fault::ClockJump(node, by_us) => self.happen_to(node, Occurrence::Jump { by_us }),
            Fault::Crash(machine) => self.stop_machine(machine, false),
            Fault::LostDisk(machine) => self.stop_machine(machine, true),
            Fault::LostSite(site) => {
                self.machines_of(site).for_each(|machine| self.stop_machine(machine, true));
            }
            Fault::SlowDisk(machine, factor) => self.slow_disk(machine, factor),
            Fault::ClientDeath(client) => self.crash_client(client),
        }
    }

    /// Whether a majority of its site's machines still has its disks if this machine loses its disk.
    fn can_do_without_the_disk_of(&mut self, machine: usize) -> bool {
        let mut replaced = core::mem::take(&mut self.replaced);
        replaced.retain(|other| self.lost_disks.contains(other) || !self.is_whole(*other));
        self.replaced = replaced;
        let site = |machine: usize| self.configuration.site_of_machine(machine);
        let is_neighbour = |other: &&usize| **other != machine && site(**other) == site(machine);
        let others = self.replaced.iter().filter(is_neighbour).count();
        others < (self.configuration.replicas - 1) / 2
    }

    fn slow_disk(&mut self, machine: usize, factor: u32) {
        for number in self.replicas_on(machine) {
            self.replicas[number].slow_disk(factor);
        }
    }

    fn stop_machine(&mut self, machine: usize, disk_is_lost: bool) {
        for number in self.replicas_on(machine) {
            let replica = &mut self.replicas[number];
            if replica.is_up() {
                replica.crash();
            }
            if disk_is_lost {
                replica.lose_disk();
            }
        }
        let is_blank = self.rejoined.remove(&machine)
            && self.replicas_on(machine).any(|number| !self.replicas[number].has_records());
        if disk_is_lost || is_blank {
            self.lost_disks.insert(machine);
            self.replaced.insert(machine);
        }
    }

    /// Starts a machine again, unless another fault keeps it down.
    fn restart_machine(&mut self, machine: usize) {
        let site = self.configuration.site_of_machine(machine);
        let down = [Fault::Crash(machine), Fault::LostDisk(machine), Fault::LostSite(site)];
        let mut active = self.faults.iter().filter(|entry| entry.state == State::Active);
        if active.any(|entry| down.contains(&entry.fault)) {
            return;
        }
        let disk_is_lost = self.lost_disks.remove(&machine);
        if disk_is_lost {
            self.rejoined.insert(machine);
        }
        for number in self.replicas_on(machine) {
            let group = self.configuration.group_at(machine);
            let id = self.world.id(number as u32);
            let actor = P::replica(id, group, &self.configuration.settings);
            self.replicas[number].restart(actor);
            // As with real disks: a replica that has something durable knows what it has promised.
            let rejoins = disk_is_lost && !self.replicas[number].has_records();
            let job = if rejoins { Job::Rejoin } else { Job::Start };
            self.happen(number as u32, Occurrence::Job(job));
        }
    }

    /// The machines of a site.
    fn machines_of(&self, site: u16) -> impl Iterator<Item = usize> + use<P> {
        let Configuration { replicas, sites, .. } = self.configuration;
        assert!(site < sites, "there is no site {site}");
        let first = usize::from(site) * replicas;
        first..first + replicas
    }

    /// The numbers of the replicas on a machine, one of each partition of its site.
    fn replicas_on(&self, machine: usize) -> impl Iterator<Item = usize> + use<P> {
        let Configuration { replicas: members, partitions, .. } = self.configuration;
        assert!(machine < self.configuration.machines(), "there is no machine {machine}");
        let before = machine / members * members * usize::from(partitions);
        let first = before + machine % members;
        (first..).step_by(members).take(usize::from(partitions))
    }

    /// The replica of the first partition on a machine.
    fn first_on(&self, machine: usize) -> &Node<P::Replica> {
        let first = self.replicas_on(machine).next();
        &self.replicas[first.expect("each site has a partition")]
    }

    fn happen_to(&mut self, node: NodeId, occurrence: Occurrence<P::Message>) {
        self.happen(self.world.number(node), occurrence);
    }

    /// Handles an occurrence at a node, and gives turns to processes that wait for a core of a machine that all share.
    fn happen(&mut self, node: u32, occurrence: Occurrence<P::Message>) {
        self.happen_alone(node, occurrence);
        self.give_turns();
    }

    fn happen_alone(&mut self, node: u32, occurrence: Occurrence<P::Message>) {
        let number = node as usize;
        if let Some(replica) = self.replicas.get_mut(number) {
            let (now, id) = (self.world.now, self.world.id(node));
            let (observer, watcher) = (&mut self.observer, &mut self.watcher);
            let mut host = ReplicaHost { now, id, observer, watcher };
            replica.handle(occurrence, &mut self.world, &mut host);
        } else {
            let Client { node, port, operations } = &mut self.clients[number - self.replicas.len()];
            node.handle(occurrence, &mut self.world, &mut ClientHost { port, operations });
        }
    }

    /// Handles the next event. Returns false if there is none up to `limit`.
    fn step(&mut self, limit: Timestamp) -> bool {
        let Some((now, event)) = self.world.scheduler.next(limit) else { return false };
        self.set_now(now);
        match event {
            Event::Message { from, to, length, digest, message } => {
                self.world.record(Kind::Message, to, from);
                if digest != 0 {
                    self.world.hash.fold(digest ^ u64::from(length));
                }
                let from = self.world.id(from);
                self.happen(to, Occurrence::Job(Job::Message { from, length, message }));
            }
            Event::Served { node, incarnation, number } => {
                self.world.record(Kind::Served, node, 0);
                self.happen(node, Occurrence::Served { incarnation, number });
            }
            Event::TurnEnded { process } => {
                self.world.record(Kind::TurnEnded, process, 0);
                self.end_turn(process);
            }
            Event::Timer { node, setting } => {
                let number = node as usize;
                let is_set = match number.checked_sub(self.replicas.len()) {
                    None => self.replicas[number].timer_is_set(setting),
                    Some(client) => self.clients[client].node.timer_is_set(setting),
                };
                if !is_set {
                    return true;
                }
                self.world.record(Kind::Timer, node, setting.number() as u32);
                self.happen(node, Occurrence::Job(Job::Timer(setting)));
            }
            Event::Flushed { node, incarnation } => {
                self.world.record(Kind::Flushed, node, 0);
                self.happen(node, Occurrence::Flushed { incarnation });
            }
            Event::Alarm { client } => {
                self.world.record(Kind::Alarm, client, 0);
                self.clients[client as usize].port.ring();
                self.schedule_alarm(client as usize);
            }
            Event::Start { node } => {
                self.world.record(Kind::Start, node, 0);
                self.happen(node, Occurrence::Job(Job::Start));
            }
            Event::FaultBegins { fault } => {
                self.world.record(Kind::FaultBegins, fault, 0);
                self.fault_begins(FaultId(fault as usize));
            }
            Event::FaultEnds { fault } => {
                self.world.record(Kind::FaultEnds, fault, 0);
                self.end(FaultId(fault as usize));
            }
            Event::Heal => {
                self.world.record(Kind::Heal, 0, 0);
                self.heal();
            }
        }
        self.settle();
        if !self.world.doomed.is_empty() {
            self.crash_doomed();
        }
        true
    }

    /// Crashes the clients that have sent their last messages.
    fn crash_doomed(&mut self) {
        let replicas = self.replicas.len();
        while let Some((&node, _)) = self.world.doomed.iter().find(|(_, left)| **left == 0) {
            self.world.doomed.remove(&node);
            self.crash_client(node as usize - replicas);
        }
    }

    /// Polls tasks and passes on their operations, until no task can run.
    fn settle(&mut self) {
        while self.wakeups.take_any() {
            while let Some(task) = self.wakeups.next_task() {
                self.executor.poll(task);
            }
            while let Some(client) = self.wakeups.next_client() {
                self.attend(client);
            }
        }
    }

    /// Fetches the operations of a client's sessions.
    fn attend(&mut self, client: usize) {
        let new_operations = self.clients[client].port.answer();
        self.schedule_alarm(client);
        if new_operations {
            let node = (self.replicas.len() + client) as u32;
            self.world.record(Kind::Operations, node, 0);
            self.happen(node, Occurrence::Job(Job::Operations));
        }
    }

    fn schedule_alarm(&mut self, client: usize) {
        if let Some(at) = self.clients[client].port.missing_alarm_event() {
            self.world.scheduler.schedule(at, Event::Alarm { client: client as u32 });
        }
    }

    fn set_now(&mut self, now: Timestamp) {
        self.world.now = now;
        self.time.set(now);
    }
}

/// If a run panics, the last line says how to replay it.
impl<P: Protocol> Drop for Cluster<P> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (seed, now, events) = (self.configuration.seed, self.world.now, self.events());
            eprintln!(
                "{} failed at {now}, after {events} events; replay with seed {seed}",
                P::NAME
            );
        }
    }
}

/// The identity of a client's coordinator.
fn client_id(client: usize) -> NodeId {
    NodeId(NodeId::FIRST_COORDINATOR + client as u64)
}
