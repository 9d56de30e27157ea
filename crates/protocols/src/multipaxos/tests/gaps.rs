//! A leader fails when another replica has accepted its last entry, and not the one before that.

use super::refusals::{NOW_US, Trio};
use super::*;

#[test]
fn an_update_behind_a_lost_one_is_executed_and_each_takes_effect_once() {
    let mut trio = Trio::new();
    let add = |number| request(number, NOW_US + number, Access::Modify(Modification::add(1)));
    let (lost, later) = (add(1), add(2));
    for update in [&lost, &later] {
        trio.request(0, update);
        trio.step();
        trio.flush();
        if update == &lost {
            trio.network.clear();
        }
    }
    trio.network.retain(|(_, to, _)| *to == NodeId(1));
    while trio.network.iter().any(|(_, to, _)| *to == NodeId(1)) {
        trio.step_where(|(_, to, _)| *to == NodeId(1));
    }
    trio.network.clear();
    trio.fail_over();
    let value = |trio: &mut Trio| match &trio.ask(1, &request(9, NOW_US, Access::Read))[..] {
        [answer] => found(answer),
        answers => panic!("{answers:?}"),
    };
    assert_eq!(value(&mut trio).as_deref(), Some("1"), "the later one was found");
    for update in [later, lost] {
        assert!(matches!(trio.ask(1, &update)[..], [Answer::Done(_)]));
    }
    assert_eq!(value(&mut trio).as_deref(), Some("2"));
}
