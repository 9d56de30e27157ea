//! A node's timers.

use std::collections::BTreeMap;

use slab::Slab;

/// A setting of a timer, as events refer to it: the timer's slot, and which setting of the slot is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setting {
    slot: u32,
    generation: u64,
}

impl Setting {
    /// A number that distinguishes the settings of one node.
    pub(crate) fn number(self) -> u64 {
        self.generation
    }
}

/// The timers that are set. When a timer is moved or cancelled, its event stays in the scheduler, but the event's
/// setting is then no longer the current one of its slot.
pub(crate) struct Timers<T> {
    slots: Slab<(T, u64)>,
    slot_of: BTreeMap<T, u32>,
    generation: u64,
}

impl<T: Copy + Ord> Timers<T> {
    pub(crate) fn new() -> Timers<T> {
        Timers { slots: Slab::new(), slot_of: BTreeMap::new(), generation: 0 }
    }

    /// Sets or moves a timer.
    pub(crate) fn set(&mut self, timer: T) -> Setting {
        self.generation += 1;
        let generation = self.generation;
        let slots = &mut self.slots;
        let slot = *self.slot_of.entry(timer).or_insert_with(|| slots.insert((timer, 0)) as u32);
        slots[slot as usize].1 = generation;
        Setting { slot, generation }
    }

    /// Cancels a timer, if it is set.
    pub(crate) fn cancel(&mut self, timer: T) {
        if let Some(slot) = self.slot_of.remove(&timer) {
            self.slots.remove(slot as usize);
        }
    }

    /// Whether this setting still holds.
    pub(crate) fn holds(&self, setting: Setting) -> bool {
        let found = self.slots.get(setting.slot as usize);
        found.is_some_and(|(_, generation)| *generation == setting.generation)
    }

    /// Removes the timer and returns it, if this setting still holds.
    pub(crate) fn fire(&mut self, setting: Setting) -> Option<T> {
        self.holds(setting).then(|| {
            let (timer, _) = self.slots.remove(setting.slot as usize);
            self.slot_of.remove(&timer);
            timer
        })
    }

    /// Cancels all timers. Their settings stay invalid.
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.slot_of.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_setting_of_a_timer_fires_once() {
        let mut timers = Timers::new();
        let (first, second) = (timers.set('a'), timers.set('a'));
        assert_eq!((timers.fire(first), timers.fire(second)), (None, Some('a')));
        assert_eq!(timers.fire(second), None);
    }

    #[test]
    fn an_old_setting_does_not_hold_for_the_next_timer_in_its_slot() {
        let mut timers = Timers::new();
        let cancelled = timers.set('a');
        timers.cancel('a');
        let other = timers.set('b');
        assert!(!timers.holds(cancelled) && timers.holds(other));
        timers.clear();
        let restarted = timers.set('b');
        assert!(!timers.holds(other) && timers.holds(restarted));
    }
}
