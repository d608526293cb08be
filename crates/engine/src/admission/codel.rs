//! [`crate::Admit::Codel`]: controlled delay of the time that requests wait.
//!
//! Source: Nichols, Jacobson, McGregor and Iyengar, *Controlled Delay Active Queue Management* (RFC 8289,
//! 2018), Sec. 5. If the heads of a queue have waited longer than `target` for a whole `interval`, it is a
//! standing queue. Then heads are dropped, the next one after `interval / √count`, until one has waited
//! less. CoDel is a well-known baseline and ignores guarantees.
//!
//! Departures: the queue is a class's sub-queue, and requests are dropped. A queue of one request is short,
//! like a queue of one packet in the RFC. Facebook's variant, which serves the newest first under overload,
//! is not implemented.
//!
//! Sources: the head in the RFC is the oldest request here, although its source may not have the turn. So the
//! dropped request belongs to the backlog, and a source with requests that wait for a moment only loses none. FQ-CoDel
//! (RFC 8290) controls each source by itself instead. That finds no standing queue if many sources wait with one
//! request each.

use core::time::Duration;

use crate::demand::RESOURCES;
use crate::discipline::Codel as Figures;
use crate::index::Table;
use crate::request::ClassId;
use crate::time::Time;

/// Intervals after which the last rate of dropping is forgotten: 16, as in the RFC.
const REMEMBERED: u32 = 16;

/// The state of a queue, with the RFC's names.
#[derive(Clone, Copy, Debug)]
struct Queue {
    /// Time at which heads will have been above the target for an interval, if they are above it now.
    first_above: Option<Time>,
    drop_next: Time,
    count: u32,
    last_count: u32,
    dropping: bool,
    /// Result of the last call, within the same call of the RFC's `dequeue`.
    dropped: Dropped,
}

/// Result of the last call for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dropped {
    Nothing,
    /// Dropped the head that started the dropping state. The next head is not dropped.
    First,
    /// Dropped a head in the dropping state.
    Another,
}

impl Queue {
    const FRESH: Queue = Queue {
        first_above: None,
        drop_next: Time::ZERO,
        count: 0,
        last_count: 0,
        dropping: false,
        dropped: Dropped::Nothing,
    };

    /// Whether to drop the head, which has waited for `sojourn` in a queue of `len` requests.
    fn drops(&mut self, now: Time, sojourn: Duration, len: u32, figures: &Figures) -> bool {
        let above = self.is_above(now, sojourn, len, figures);
        match core::mem::replace(&mut self.dropped, Dropped::Nothing) {
            Dropped::First => return false,
            Dropped::Another if above => self.drop_next = after(self.drop_next, self.count, figures),
            Dropped::Another => self.dropping = false,
            Dropped::Nothing => {}
        }
        if self.dropping {
            self.dropping = above;
            if above && now >= self.drop_next {
                self.count += 1;
                self.dropped = Dropped::Another;
                return true;
            }
            return false;
        }
        if above {
            self.dropping = true;
            let delta = self.count - self.last_count;
            let lately = now.since(self.drop_next) < figures.interval * REMEMBERED;
            self.count = if delta > 1 && lately { delta } else { 1 };
            self.drop_next = after(now, self.count, figures);
            self.last_count = self.count;
            self.dropped = Dropped::First;
        }
        above
    }

    /// The RFC's `ok_to_drop`: whether heads have been above the target for an interval.
    fn is_above(&mut self, now: Time, sojourn: Duration, len: u32, figures: &Figures) -> bool {
        if sojourn < figures.target || len <= 1 {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            Some(at) => now >= at,
            None => {
                self.first_above = Some(now + figures.interval);
                false
            }
        }
    }
}

/// The RFC's control law: the more drops, the sooner the next one.
fn after(time: Time, count: u32, figures: &Figures) -> Time {
    time + figures.interval.div_f64(f64::from(count.max(1)).sqrt())
}

/// The queues of all classes.
#[derive(Clone, Debug)]
pub(crate) struct Codel {
    figures: Figures,
    queues: Table<ClassId, [Queue; RESOURCES]>,
}

impl Codel {
    pub(super) fn new(figures: Figures, classes: usize) -> Codel {
        Codel { figures, queues: Table::filled(classes, [Queue::FRESH; RESOURCES]) }
    }

    pub(super) fn open(&mut self, class: ClassId) {
        self.queues.put(class, [Queue::FRESH; RESOURCES]);
    }

    /// Whether to drop the head of a sub-queue instead of releasing it.
    pub(super) fn drops(
        &mut self,
        now: Time,
        class: ClassId,
        sub_queue: usize,
        (sojourn, len): (Duration, u32),
    ) -> bool {
        self.queues[class][sub_queue].drops(now, sojourn, len, &self.figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pseudo-code of RFC 8289, Sec. 5, as printed, over a queue of arrival times in milliseconds.
    #[derive(Default)]
    struct Printed {
        first_above_time: f64,
        drop_next: f64,
        count: u32,
        lastcount: u32,
        dropping: bool,
    }

    const TARGET: f64 = 5.0;
    const INTERVAL: f64 = 100.0;

    impl Printed {
        fn dodequeue(&mut self, queue: &mut Vec<f64>, now: f64) -> (Option<f64>, bool) {
            if queue.is_empty() {
                self.first_above_time = 0.0;
                return (None, false);
            }
            let packet = queue.remove(0);
            // At most one packet is left: the RFC counts the bytes behind the removed packet.
            if now - packet < TARGET || queue.is_empty() {
                self.first_above_time = 0.0;
                return (Some(packet), false);
            }
            if self.first_above_time == 0.0 {
                self.first_above_time = now + INTERVAL;
                return (Some(packet), false);
            }
            (Some(packet), now >= self.first_above_time)
        }

        fn law(t: f64, count: u32) -> f64 {
            t + INTERVAL / f64::from(count).sqrt()
        }

        /// The packet that is sent, and those that were dropped before it.
        fn dequeue(&mut self, queue: &mut Vec<f64>, now: f64) -> (Option<f64>, Vec<f64>) {
            let mut dropped = Vec::new();
            let (mut packet, mut ok) = self.dodequeue(queue, now);
            if self.dropping {
                if !ok {
                    self.dropping = false;
                }
                while now >= self.drop_next && self.dropping {
                    dropped.extend(packet);
                    self.count += 1;
                    (packet, ok) = self.dodequeue(queue, now);
                    if ok {
                        self.drop_next = Printed::law(self.drop_next, self.count);
                    } else {
                        self.dropping = false;
                    }
                }
            } else if ok {
                dropped.extend(packet);
                (packet, _) = self.dodequeue(queue, now);
                self.dropping = true;
                let delta = self.count - self.lastcount;
                self.count = 1;
                if delta > 1 && now - self.drop_next < 16.0 * INTERVAL {
                    self.count = delta;
                }
                self.drop_next = Printed::law(now, self.count);
                self.lastcount = self.count;
            }
            (packet, dropped)
        }
    }

    /// Fills and drains queues at random. The same packets are sent and dropped as by the printed code.
    #[test]
    fn it_drops_what_the_printed_code_drops() {
        let figures = Figures::default();
        for seed in 0..20 {
            let mut random = crate::random::Random::new(seed);
            let (mut printed, mut ours) = (Printed::default(), Queue::FRESH);
            let (mut theirs, mut mine): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
            let mut drops = 0;
            for ms in 1..20_000u32 {
                let now = f64::from(ms);
                // Two seconds of overload, then two of low load.
                let arrivals = if ms / 2000 % 2 == 0 { 2 } else { 1 };
                if random.below(3) < arrivals {
                    theirs.push(now);
                    mine.push(now);
                }
                if random.below(2) == 0 {
                    continue;
                }
                let (sent, dropped) = printed.dequeue(&mut theirs, now);
                let at = Time::from_millis(u64::from(ms));
                let mut ours_dropped = Vec::new();
                let ours_sent = loop {
                    let Some(head) = mine.first().copied() else {
                        // An empty queue is not a standing queue. The RFC's code records that.
                        ours.first_above = None;
                        ours.dropping &= matches!(ours.dropped, Dropped::First);
                        ours.dropped = Dropped::Nothing;
                        break None;
                    };
                    let sojourn = Duration::from_secs_f64((now - head) / 1e3);
                    let drop = ours.drops(at, sojourn, mine.len() as u32, &figures);
                    mine.remove(0);
                    if !drop {
                        break Some(head);
                    }
                    ours_dropped.push(head);
                };
                drops += dropped.len();
                assert_eq!((ours_sent, ours_dropped), (sent, dropped), "seed {seed}, {ms} ms");
            }
            assert!(drops > 20, "seed {seed}: {drops}");
        }
    }
}
