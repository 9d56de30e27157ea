//! A node: an actor with a processor and a log.

use core::time::Duration;

use rand::RngExt;
use serried_actor::{Actor, Context, Durable, Effect, Observation, Random, Recover, Store};
use serried_model::NodeId;

use crate::clock::Clock;
use crate::cpu::Processor;
use crate::disk::{Receivers, SimulatedLog};
use crate::store::SimulatedStore;
use crate::timers::{Setting, Timers};
use crate::world::{Event, World};
use crate::{Configuration, CostModel, Load, hash};

/// An event for a node's actor.
pub(crate) enum Job<M> {
    Start,
    /// Start in place of a node whose disk was lost.
    Rejoin,
    /// Prepare to stop.
    Stop,
    Message {
        from: NodeId,
        length: u32,
        message: M,
    },
    Timer(Setting),
    /// The records that the actor awaits have become durable.
    Durable,
    /// Handle the operations that wait at the client's port.
    Operations,
}

/// Something that happens to a node.
pub(crate) enum Occurrence<M> {
    Job(Job<M>),
    Served {
        incarnation: u32,
        number: u64,
    },
    Flushed {
        incarnation: u32,
    },
    Pause,
    Resume,
    Jump {
        by_us: i64,
    },
    /// The process that the node is part of has used its turn on a machine that all nodes share.
    TurnEnded,
}

/// How the two kinds of nodes, replicas and clients, differ.
pub(crate) trait Host<A: Actor> {
    /// Makes the actor handle the operations at its port.
    fn operate(&mut self, actor: &mut A, cx: &mut Context<'_, A>);

    /// Makes the actor start in place of one whose disk was lost.
    fn rejoin(&mut self, actor: &mut A, cx: &mut Context<'_, A>);

    /// Makes the actor prepare to stop.
    fn stop(&mut self, actor: &mut A, cx: &mut Context<'_, A>);

    /// Takes an output of the actor.
    fn output(&mut self, output: A::Output);

    /// Whether the node is watched.
    fn is_watched(&self) -> bool {
        false
    }

    /// Takes an observation of the actor.
    fn observe(&mut self, _: Observation) {}
}

/// The effects of a handler, in a reused buffer.
type Effects<A> = Vec<Effect<A>>;

pub(crate) struct Node<A: Actor> {
    number: u32,
    id: NodeId,
    pub(crate) actor: A,
    clock: Clock,
    random: Random,
    timers: Timers<A::Timer>,
    processor: Processor<Job<A::Message>, Effects<A>>,
    log: SimulatedLog<A::Record, A::Message>,
    costs: CostModel,
    load: Load,
    /// The observations of an event. Empty between events.
    observations: Vec<Observation>,
    store: SimulatedStore,
    /// The position of the next record that the actor appends. Records of events in service are counted although they
    /// are not in the log yet.
    log_position: u64,
    /// The actor's `on_durable` is called when the records before this position are durable. `None` if the actor does
    /// not wait.
    awaited: Option<u64>,
    buffers: Vec<Effects<A>>,
    /// The services of the turn of its process on a machine that all nodes share.
    in_turn: Vec<u64>,
    /// How often the node has crashed. Events of earlier incarnations are void.
    incarnation: u32,
    up: bool,
    pauses: u32,
}

impl<A: Actor> Node<A> {
    pub(crate) fn new(
        number: u32,
        id: NodeId,
        actor: A,
        (cores, costs): (usize, CostModel),
        store: SimulatedStore,
        configuration: &Configuration,
    ) -> Node<A> {
        let seed = configuration.seed;
        let mut clock_random = hash::generator(seed, hash::Purpose::Clock(id.0));
        Node {
            number,
            id,
            actor,
            clock: Clock::new(configuration.clocks, &mut clock_random),
            random: hash::generator(seed, hash::Purpose::Node(id.0)),
            timers: Timers::new(),
            processor: Processor::new(cores),
            log: SimulatedLog::new(configuration.disk),
            costs,
            load: Load::default(),
            observations: Vec::new(),
            store,
            log_position: 0,
            awaited: None,
            buffers: Vec::new(),
            in_turn: Vec::new(),
            incarnation: 0,
            up: true,
            pauses: 0,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up
    }

    pub(crate) fn busy(&self) -> Duration {
        Duration::from_nanos(self.processor.busy_ns())
    }

    pub(crate) fn longest_queue(&self) -> usize {
        self.processor.longest_queue()
    }

    pub(crate) fn load(&self) -> Load {
        self.load
    }

    pub(crate) fn timer_is_set(&self, setting: Setting) -> bool {
        self.timers.holds(setting)
    }

    /// Handles an occurrence. This is the only way in which anything happens to a node.
    pub(crate) fn handle(
        &mut self,
        occurrence: Occurrence<A::Message>,
        world: &mut World<A::Message>,
        host: &mut impl Host<A>,
    ) {
        match occurrence {
            Occurrence::Job(job) if !self.up => {
                let undeliverable = matches!(job, Job::Message { .. });
                world.counts.undeliverable += u64::from(undeliverable);
            }
            Occurrence::Job(job) if world.shared_cores.is_some() => {
                self.processor.wait(job);
                self.ask_for_turn(world);
            }
            Occurrence::Job(job) if self.pauses == 0 && self.processor.is_free() => {
                self.serve(job, world, host);
            }
            Occurrence::Job(job) => self.processor.wait(job),
            Occurrence::Served { incarnation, number } if incarnation == self.incarnation => {
                self.processor.end(number);
                self.proceed(world, host);
            }
            Occurrence::Flushed { incarnation } if incarnation == self.incarnation => {
                self.log.end_flush();
                self.store.persist_before(self.log.durable());
                self.trim();
                self.proceed(world, host);
                if self.awaited.is_some_and(|end| end <= self.log.durable()) {
                    self.awaited = None;
                    self.handle(Occurrence::Job(Job::Durable), world, host);
                }
            }
            // From before a crash.
            Occurrence::Served { .. } | Occurrence::Flushed { .. } => {}
            Occurrence::Pause => self.pauses += 1,
            Occurrence::Resume => {
                self.pauses -= 1;
                self.proceed(world, host);
            }
            Occurrence::Jump { by_us } => self.clock.jump(by_us),
            Occurrence::TurnEnded => {
                for number in core::mem::take(&mut self.in_turn) {
                    self.processor.end(number);
                }
                self.proceed(world, host);
            }
        }
    }

    /// Does everything that can be done now: sends messages whose records are durable, releases effects, and serves
    /// waiting jobs.
    fn proceed(&mut self, world: &mut World<A::Message>, host: &mut impl Host<A>) {
        if self.pauses > 0 || !self.up {
            return;
        }
        while let Some((receivers, message)) = self.log.release() {
            world.transmit(self.number, receivers, message);
        }
        self.start_flush(world);
        while let Some(effects) = self.processor.release() {
            self.carry_out(effects, world, host);
        }
        if world.shared_cores.is_some() {
            return self.ask_for_turn(world);
        }
        while let Some(job) = self.processor.next_waiting() {
            self.serve(job, world, host);
        }
    }

    /// Asks for a turn on the machine that all nodes share, if there is one and the node has something to do.
    fn ask_for_turn(&self, world: &mut World<A::Message>) {
        if let Some(cores) = &mut world.shared_cores
            && self.pauses == 0
            && self.processor.has_waiting()
        {
            cores.ask(self.number);
        }
    }

    /// Serves everything that waits, in the turn of the node's process. Returns how long that takes without system
    /// calls. What comes of it is held until the turn has ended.
    pub(crate) fn serve_turn(
        &mut self,
        world: &mut World<A::Message>,
        host: &mut impl Host<A>,
    ) -> u64 {
        if self.pauses > 0 || !self.up {
            return 0;
        }
        let mut all_ns = 0;
        for job in self.processor.take_waiting() {
            if let Job::Message { from, .. } = &job {
                world.note_sender(self.number, *from);
            }
            if let Some((effects, cost_ns)) = self.execute(job, world, host) {
                self.note_receivers(&effects, world);
                all_ns += cost_ns;
                self.in_turn.push(self.processor.start(cost_ns, effects));
            }
        }
        all_ns
    }

    /// Notes the connections over which these effects go.
    fn note_receivers(&self, effects: &Effects<A>, world: &mut World<A::Message>) {
        for effect in effects {
            let (partition, members) = match effect {
                Effect::Send { to, .. }
                | Effect::SendUnhurried { to, .. }
                | Effect::SendBeforeDurable { to, .. } => {
                    world.note_receiver(self.number, *to);
                    continue;
                }
                Effect::Broadcast { partition, to, .. } => (*partition, *to),
                _ => continue,
            };
            for member in members.members() {
                world.note_receiver(self.number, NodeId::replica(partition, member));
            }
        }
    }

    /// The system calls of the node's process have taken so long.
    pub(crate) fn add_system_calls(&mut self, ns: u64) {
        self.processor.add_busy(ns);
    }

    /// Runs the handler of a job, and occupies a core for as long as it costs.
    fn serve(
        &mut self,
        job: Job<A::Message>,
        world: &mut World<A::Message>,
        host: &mut impl Host<A>,
    ) {
        let Some((effects, cost_ns)) = self.execute(job, world, host) else { return };
        if cost_ns > 0 {
            let number = self.processor.start(cost_ns, effects);
            let (node, incarnation) = (self.number, self.incarnation);
            let served = Event::Served { node, incarnation, number };
            world.after(Duration::from_nanos(cost_ns), served);
        } else if self.processor.is_idle() {
            self.carry_out(effects, world, host);
        } else {
            self.processor.pass(effects);
        }
    }

    /// Runs the handler of a job. Returns its effects and what it costs, unless it is void.
    fn execute(
        &mut self,
        job: Job<A::Message>,
        world: &mut World<A::Message>,
        host: &mut impl Host<A>,
    ) -> Option<(Effects<A>, u64)> {
        let mut effects = self.buffers.pop().unwrap_or_default();
        let (now, clock) = (self.clock.monotonic(world.now), self.clock.wall(world.now));
        let durable = Durable {
            store: &mut self.store,
            log_position: self.log_position,
            durable_position: self.log.durable_position(),
        };
        let mut cx = Context::new(self.id, now, clock, &mut self.random, &mut effects, durable);
        if host.is_watched() {
            cx = cx.watched(&mut self.observations);
        }
        let mut bytes = 0;
        match job {
            Job::Start => self.actor.on_start(&mut cx),
            Job::Rejoin => host.rejoin(&mut self.actor, &mut cx),
            Job::Stop => host.stop(&mut self.actor, &mut cx),
            Job::Message { from, length, message } => {
                bytes = u64::from(length);
                self.actor.on_message(from, message, &mut cx);
            }
            Job::Operations => host.operate(&mut self.actor, &mut cx),
            Job::Durable => self.actor.on_durable(&mut cx),
            Job::Timer(setting) => match self.timers.fire(setting) {
                Some(timer) => self.actor.on_timer(timer, &mut cx),
                // Moved or cancelled while it waited for a core.
                None => {
                    self.buffers.push(effects);
                    return None;
                }
            },
        }
        if let Some(why) = cx.take_rejected() {
            assert!(world.forged, "{why}: nobody forges or damages messages here");
            world.counts.rejected += 1;
        }
        let work = u64::from(cx.work().0);
        self.log_position = cx.log_position();
        if cx.awaits_durable() {
            self.awaited.get_or_insert(self.log_position);
        }
        self.observations.drain(..).for_each(|observation| host.observe(observation));
        let sent = self.set_timers(&effects, world);
        self.load += Load { events: 1, sent_messages: sent, work_units: work, bytes };
        let shared = world.shared_cores.as_ref().map(|cores| cores.costs(self.number).events());
        let costs = shared.unwrap_or(self.costs);
        let cost_ns = costs.event_ns
            + costs.sent_message_ns * sent
            + costs.work_unit_ns * work
            + costs.byte_ps * bytes / 1000;
        Some((effects, cost_ns))
    }

    /// Sets and cancels timers as soon as the handler has run, so that no cancelled timer fires. Returns how many
    /// messages are to be sent.
    fn set_timers(&mut self, effects: &Effects<A>, world: &mut World<A::Message>) -> u64 {
        let mut sent = 0;
        for effect in effects {
            match effect {
                Effect::SetTimer { timer, after } => {
                    let setting = self.timers.set(*timer);
                    let timer = Event::Timer { node: self.number, setting };
                    world.after(self.clock.true_duration(*after), timer);
                }
                Effect::CancelTimer(timer) => self.timers.cancel(*timer),
                Effect::Send { .. }
                | Effect::SendUnhurried { .. }
                | Effect::SendBeforeDurable { .. } => sent += 1,
                Effect::Broadcast { to, .. } => sent += to.len() as u64,
                Effect::Append(_) | Effect::TrimLog(_) | Effect::Output(_) => {}
            }
        }
        sent
    }

    fn carry_out(
        &mut self,
        mut effects: Effects<A>,
        world: &mut World<A::Message>,
        host: &mut impl Host<A>,
    ) {
        for effect in effects.drain(..) {
            match effect {
                Effect::Append(record) => self.log.append(record),
                Effect::TrimLog(position) => {
                    self.log.trim(position);
                    self.trim();
                }
                Effect::Send { to, message } | Effect::SendUnhurried { to, message } => {
                    self.send(Receivers::One(to), message, world);
                }
                Effect::Broadcast { partition, to, message } => {
                    self.send(Receivers::All(partition, to), message, world);
                }
                Effect::SendBeforeDurable { to, message } => {
                    world.transmit(self.number, Receivers::One(to), message);
                }
                Effect::Output(output) => host.output(output),
                Effect::SetTimer { .. } | Effect::CancelTimer(_) => {}
            }
        }
        self.buffers.push(effects);
        self.start_flush(world);
    }

    fn send(&mut self, receivers: Receivers, message: A::Message, world: &mut World<A::Message>) {
        if self.log.is_durable() {
            world.transmit(self.number, receivers, message);
        } else {
            self.log.hold(receivers, message);
        }
    }

    fn start_flush(&mut self, world: &mut World<A::Message>) {
        if let Some(takes) = self.log.start_flush() {
            let (node, incarnation) = (self.number, self.incarnation);
            world.after(takes, Event::Flushed { node, incarnation });
        }
    }

    fn trim(&mut self) {
        if self.log.trim_what_is_due() {
            self.store.persist();
        }
    }

    /// Makes the disk slower by `factor`.
    pub(crate) fn slow_disk(&mut self, factor: u32) {
        self.log.slow_down(factor);
    }

    /// Stops the node. It keeps its durable records. In half of the crashes it also keeps some records that were not
    /// durable.
    pub(crate) fn crash(&mut self) {
        let kept = match self.random.random_bool(0.5) {
            true => self.random.random_range(0..=self.log.unflushed()),
            false => 0,
        };
        self.up = false;
        self.incarnation += 1;
        self.timers.clear();
        self.awaited = None;
        self.processor.clear();
        self.in_turn.clear();
        self.log.crash(kept);
        self.log_position = self.log.appended();
        self.store.persist_before(self.log.durable());
        self.store.crash(&mut self.random);
        self.store.set_log_position(self.log_position);
    }

    /// Whether any record was ever durable in its log, trimmed ones included.
    pub(crate) fn has_records(&self) -> bool {
        self.log.durable() > 0
    }

    /// Loses the durable data too. The node must be down.
    pub(crate) fn lose_disk(&mut self) {
        self.log.lose();
        self.log_position = 0;
        self.store.lose();
    }
}

impl<A: Recover> Node<A> {
    /// Starts the node again as `actor`, and replays the durable records. A [`Job::Start`] must follow.
    pub(crate) fn restart(&mut self, mut actor: A) {
        for record in self.log.records() {
            actor.replay(record.clone(), &mut self.store);
        }
        self.actor = actor;
        self.up = true;
    }
}
