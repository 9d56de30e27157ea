//! Messages of clients that were damaged and still can be read.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::replicated::world_with;
use super::*;
use crate::janus::message::PreAccept;

/// What becomes of a message when a few bytes of it change, if it can be read then and its call is the same. A replica that
/// has got another call has another call: nothing tells it that.
fn damaged(message: &Message, random: &mut Pcg64Mcg) -> Option<Message> {
    let mut bytes = postcard::to_allocvec(message).expect("it can be encoded");
    for _ in 0..random.random_range(1..3) {
        let at = random.random_range(0..bytes.len());
        match random.random_range(0..4) {
            0 => bytes[at] = 0xff,
            1 => drop(bytes.remove(at)),
            2 => bytes.insert(at, random.random()),
            _ => bytes[at] ^= 1 << random.random_range(0..8),
        }
        if bytes.is_empty() {
            return None;
        }
    }
    let damaged = postcard::from_bytes(&bytes).ok()?;
    let work = |message: &Message| match message {
        Message::Request(Request::PreAccept(PreAccept { work, .. })) => work.clone(),
        _ => None,
    };
    (work(&damaged) == work(message)).then_some(damaged)
}

/// Some messages of two clients are damaged on their way. Then no more are. A third client calls a procedure with rows that
/// were not in use before, and asks for the list of procedures.
fn goes_on_after_damage(seed: u64) {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut net = world_with(Mutated::NONE);
    net.forged = true;
    let mut txn = 10;
    for step in 0..40 {
        txn += 1;
        match random.random_range(0..12) {
            0 => {
                let set = if step % 2 == 0 { set() } else { other_set() };
                net.operate(0, txn, Operation::Register { set, replaces: None });
            }
            1 => call(&mut net, 1, txn, "chain", &[random.random_range(0..4), 7]),
            _ => {
                let inputs = [random.random_range(0..4), random.random_range(0..4), 7];
                call(&mut net, 1, txn, "both", &inputs);
            }
        }
        while let Some((from, to, message)) = net.take_first(|_| true) {
            let is_hit = from.is_coordinator() && random.random_ratio(1, 8);
            let other = is_hit.then(|| damaged(&message, &mut random)).flatten();
            let is_repeated = random.random();
            if other.is_none() || is_repeated {
                net.deliver((from, to, message));
            }
            if let Some(other) = other {
                net.deliver((from, to, other));
            }
        }
        net.pass(Duration::from_millis(random.random_range(0..200)));
    }
    net.pass(Duration::from_secs(30));
    net.outputs.clear();
    net.operate(2, 1000, Operation::List);
    call(&mut net, 2, 1001, "both", &[700, 701, 7]);
    net.pass(Duration::from_secs(5));
    let is_answered = |txn: u64| {
        let outputs = net.outputs.iter();
        outputs.filter(|(_, (of, _))| of.0 == txn).any(|(_, (_, end))| !is_beginning(end))
    };
    assert!(is_answered(1000) && is_answered(1001), "seed {seed}");
}

fn is_beginning(output: &Output) -> bool {
    matches!(output, Output::Began(_))
}

#[test]
fn a_keyspace_goes_on_when_messages_of_clients_were_damaged() {
    (0..60).for_each(goes_on_after_damage);
}
