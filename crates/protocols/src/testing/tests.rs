//! The network itself.

use core::time::Duration;

use serde::{Deserialize, Serialize};
use serried_actor::{Actor, Context, NodeSet, Recover, Store};
use serried_model::NodeId;

use super::net::Net;
use super::node::{client_id, set};

/// A message, which is also a record: a number.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Message {
    /// Is recorded and answered.
    Add(u64),
    /// Is answered when what was recorded before is durable.
    Sync,
    Done(u64),
}

/// A sum that survives restarts, and what else has happened.
#[derive(Default)]
struct Sum {
    total: u64,
    fired: Vec<u8>,
    asks: Option<NodeId>,
    has_rejoined: bool,
}

impl Actor for Sum {
    type Message = Message;
    type Timer = u8;
    type Record = u64;
    type Output = ();

    fn on_start(&mut self, cx: &mut Context<'_, Self>) {
        cx.set_timer(2, Duration::from_millis(20));
        cx.set_timer(1, Duration::from_millis(30));
    }

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Context<'_, Self>) {
        match message {
            Message::Add(number) => {
                self.total += number;
                cx.append(number);
                cx.send(from, Message::Done(self.total));
            }
            Message::Sync => {
                self.asks = Some(from);
                cx.await_durable();
            }
            Message::Done(_) => cx.reject(|| format!("{from} answers nobody")),
        }
    }

    fn on_timer(&mut self, timer: u8, cx: &mut Context<'_, Self>) {
        self.fired.push(timer);
        if timer == 2 {
            cx.store().put(b"total", Some(&self.total.to_be_bytes()));
            cx.trim_log(cx.log_position());
        }
    }

    fn on_durable(&mut self, cx: &mut Context<'_, Self>) {
        if let Some(from) = self.asks.take() {
            cx.send_before_durable(from, Message::Done(self.total));
        }
    }
}

impl Recover for Sum {
    fn replay(&mut self, record: u64, store: &mut dyn Store) {
        if self.total == 0 {
            self.total = stored(store);
        }
        self.total += record;
    }

    fn rejoin(&mut self, _: &mut Context<'_, Self>) {
        self.has_rejoined = true;
    }
}

fn stored(store: &dyn Store) -> u64 {
    let total = store.get(b"total");
    total.map_or(0, |total| u64::from_be_bytes(total.try_into().expect("eight bytes")))
}

fn net(members: usize) -> Net<Sum> {
    let mut net = Net::new(1, members, |_| Sum::default());
    net.start();
    net
}

fn add(net: &mut Net<Sum>, number: u64) {
    net.deliver((client_id(0), NodeId(0), Message::Add(number)));
}

#[test]
fn messages_are_delivered_in_order_unless_they_are_held_lost_or_taken() {
    let mut net = net(3);
    let add = |to: u64, number| (client_id(0), NodeId(to), Message::Add(number));
    net.network.extend([add(0, 1), add(1, 10), add(0, 2), add(2, 20)]);
    net.held = set(&[1]);
    net.away = set(&[2]);
    net.settle();
    let done = |from: u64, total| (NodeId(from), client_id(0), Message::Done(total));
    assert_eq!(net.delivered, [done(0, 1), done(0, 3)]);
    assert_eq!(net.network, [add(1, 10)]);
    assert_eq!(net.nodes[2].total, 0);
    net.held = NodeSet::EMPTY;
    assert_eq!(net.take_first(|(_, to, _)| *to == NodeId(1)), Some(add(1, 10)));
    assert!(!net.step());
    // A message can come twice.
    net.deliver(add(1, 10));
    net.deliver(add(1, 10));
    assert_eq!(net.take(|_| true), [done(1, 10), done(1, 20)]);
}

#[test]
fn a_link_that_is_cut_loses_what_is_sent_and_not_what_was_sent_before() {
    let mut net = net(2);
    add(&mut net, 1);
    net.cut.insert((NodeId(0), client_id(0)));
    add(&mut net, 2);
    net.settle();
    assert_eq!(net.delivered, [(NodeId(0), client_id(0), Message::Done(1))]);
}

#[test]
fn timers_go_off_when_they_are_due_in_that_order_and_clocks_differ_as_they_are_set() {
    let mut net = net(1);
    net.set_clock_us(1_000_000);
    net.ahead_us.insert(NodeId(0), -5);
    net.pass(Duration::from_millis(29));
    assert_eq!(net.nodes[0].fired, [2]);
    net.pass(Duration::from_millis(1));
    assert_eq!(net.nodes[0].fired, [2, 1]);
    let clock_us = net.act(0, |_, cx| cx.clock().latest_us);
    assert_eq!((net.clock_us(), clock_us), (1_030_000, 1_029_995));
    net.wait_with_clocks_stopped(Duration::from_secs(1));
    assert_eq!((net.clock_us(), net.now), (1_030_000, 1_030_000));
}

#[test]
fn a_restart_keeps_what_is_durable_and_no_more() {
    let mut net = net(1);
    add(&mut net, 1);
    net.pass(Duration::from_millis(20));
    assert_eq!((net.nodes[0].trimmed, net.nodes[0].records.len()), (Some(1), 0));
    add(&mut net, 2);
    add(&mut net, 4);
    net.nodes[0].hold_log();
    add(&mut net, 8);
    net.crash(0);
    add(&mut net, 16);
    net.restart(0, Sum::default());
    assert_eq!(net.nodes[0].total, 1 + 2 + 4);
    net.nodes[0].keep_records(1);
    net.restart(0, Sum::default());
    assert_eq!((net.nodes[0].total, net.nodes[0].log_position()), (1 + 2, 2));
    net.replace(0, Sum::default());
    assert!(net.nodes[0].has_rejoined);
    assert_eq!((stored(&net.nodes[0].store), net.nodes[0].log_position()), (0, 0));
    assert_eq!(net.appended.len(), 4, "all that was ever appended");
}

#[test]
fn who_waits_until_all_is_durable_hears_of_that_when_it_is() {
    let mut net = net(1);
    let durable = |cx: &mut Context<'_, Sum>| cx.durable_position();
    assert_eq!(net.act(0, |_, cx| durable(cx)), u64::MAX);
    net.durable_at_once = false;
    assert_eq!(net.act(0, |_, cx| durable(cx)), 0);
    let sync = (client_id(0), NodeId(0), Message::Sync);
    net.deliver(sync.clone());
    assert_eq!(net.early.len(), 1, "at once, if nothing is held");
    net.nodes[0].hold_log();
    add(&mut net, 1);
    net.deliver(sync);
    assert_eq!(net.early.len(), 1);
    net.flush(0);
    assert_eq!(net.early.last(), Some(&(NodeId(0), client_id(0), Message::Done(1))));
}

#[test]
#[should_panic(expected = "nobody forges messages here")]
fn a_message_that_is_rejected_fails_the_test_unless_messages_are_forged() {
    let mut net = net(1);
    net.forged = true;
    let forged = (client_id(0), NodeId(0), Message::Done(7));
    net.deliver(forged.clone());
    assert_eq!(net.nodes[0].rejected, 1);
    net.forged = false;
    net.deliver(forged);
}
