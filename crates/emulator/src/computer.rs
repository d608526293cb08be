//! One computer of a node, with the time passed in: memory, disk, CPUs, network.
//!
//! A request that names an object looks for it in the [`Cache`]. A miss waits for the disk, which then
//! leaves the object in memory. The request then goes through the [`Station`] (its worker, the CPUs, its
//! delay), and its reply through the network link. A request may also state for how long it keeps the disk
//! and the link busy, like a page with measured costs. Disk and link are each a [`Processor`] of one unit.
//! Its requests share it evenly, so a request takes n times as long if n − 1 others are there, and the unit
//! is never idle while there is work. The model follows the LARD studies (Pai et al., ASPLOS 1998, Sec. 3:
//! seek time plus bytes over throughput, memory in front) and mQoS (Feng and Lin: CPU, disk and bandwidth
//! as three resources).
//!
//! Departures: a real disk serves one read after another. This one serves all at once, and does the same
//! amount of work in the same time. Two requests that miss the same object at once both read it. A request
//! holds no worker while it is at the disk or its reply is at the link, as in a server with asynchronous
//! reads and a kernel that buffers replies (Pai et al., *Flash*, USENIX 1999).
//!
//! Until the first request that needs disk or link, a computer is only its station and costs no more.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cache::Cache;
use crate::clock;
use crate::processor::{Processor, Thrashing};
use crate::station::{Demand, Station};

/// A disk, and the memory that keeps the objects read from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disk {
    /// Time of a read before its first byte: seek and rotation.
    pub access: Duration,
    /// Bytes read per second after that, > 0.
    pub bytes_per_s: f64,
    /// Bytes of memory for objects. With 0, every object is read from the disk every time.
    pub cache: u64,
}

/// Work that a request brings to a computer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Its demand.
    pub demand: Demand,
    /// Class of the request, where classes have shares of the CPUs.
    pub class: u32,
    /// Object that the request reads. It is as large as the reply.
    pub object: Option<u64>,
    /// Bytes of its reply.
    pub bytes: u64,
}

/// State of a computer.
#[derive(Debug)]
pub struct Computer {
    station: Station,
    storage: Option<Box<Storage>>,
    link: Option<Box<Link>>,
    /// Requests that have left the station for the link, with the instant.
    worked: Vec<(u64, u64)>,
    /// Instant up to which everything has advanced.
    now: u64,
    stalled: bool,
}

#[derive(Debug)]
struct Storage {
    /// Disk parameters and the memory in front of it. Without them, objects cost nothing.
    objects: Option<(Disk, Cache)>,
    reads: Processor<(u64, Work)>,
    hits: u64,
    misses: u64,
    read: Vec<((u64, Work), u64)>,
}

#[derive(Debug)]
struct Link {
    /// Bandwidth. With `None`, the bytes of a reply cost nothing.
    bytes_per_s: Option<f64>,
    /// Nanoseconds of link time needed by requests that have not reached the link yet.
    replies: BTreeMap<u64, u64>,
    sends: Processor<u64>,
    sent: Vec<(u64, u64)>,
}

/// Resource usage of a computer since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// CPU-nanoseconds during which CPUs were occupied.
    pub busy: f64,
    /// Nanoseconds of nominal CPU time handed out.
    pub done: f64,
    /// Nanoseconds during which the disk was occupied.
    pub disk: f64,
    /// Nanoseconds during which the link was occupied.
    pub link: f64,
    /// Nanoseconds for which requests held workers.
    pub held: f64,
    /// Objects found in memory.
    pub hits: u64,
    /// Objects that had to be read from the disk.
    pub misses: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.busy += other.busy;
        self.done += other.done;
        self.disk += other.disk;
        self.link += other.link;
        self.held += other.held;
        self.hits += other.hits;
        self.misses += other.misses;
    }
}

/// Time to transfer `bytes` at `bytes_per_s`, in nanoseconds.
fn transfer(bytes: u64, bytes_per_s: f64) -> u64 {
    (bytes as f64 * clock::SECOND as f64 / bytes_per_s).round() as u64
}

impl Storage {
    fn new(now: u64, objects: Option<(Disk, Cache)>) -> Storage {
        Storage { objects, reads: Processor::new(now, 1, None), hits: 0, misses: 0, read: Vec::new() }
    }

    /// Nanoseconds for which a request needs the disk, or `None` if it does not need it.
    fn takes(&mut self, work: &Work) -> Option<u64> {
        let mut miss = None;
        if let (Some((disk, cache)), Some(object)) = (&mut self.objects, work.object) {
            let hit = cache.touch(object);
            self.hits += u64::from(hit);
            self.misses += u64::from(!hit);
            miss = (!hit).then(|| clock::nanos(disk.access) + transfer(work.bytes, disk.bytes_per_s));
        }
        (miss.is_some() || work.demand.disk > 0).then(|| miss.unwrap_or(0).saturating_add(work.demand.disk))
    }
}

impl Link {
    fn new(now: u64, bytes_per_s: Option<f64>) -> Link {
        Link { bytes_per_s, replies: BTreeMap::new(), sends: Processor::new(now, 1, None), sent: Vec::new() }
    }
}

impl Computer {
    /// An idle computer at instant `now` without disk or limited link. The arguments are those of
    /// [`Station::new`].
    pub fn new(now: u64, cpus: u32, limit: Option<u32>, thrashing: Option<Thrashing>) -> Computer {
        Computer::around(now, Station::new(now, cpus, limit, thrashing))
    }

    /// A computer with CPUs shared by classes, one class for each share. Otherwise as in [`Computer::new`].
    pub fn shared(now: u64, cpus: u32, limit: Option<u32>, shares: &[f64]) -> Computer {
        Computer::around(now, Station::shared(now, cpus, limit, shares))
    }

    fn around(now: u64, station: Station) -> Computer {
        Computer { station, storage: None, link: None, worked: Vec::new(), now, stalled: false }
    }

    /// Sets the shares of the CPUs by class. Call [`Computer::advance`] to the present first.
    ///
    /// # Panics
    /// If the number of shares changes.
    pub fn set_shares(&mut self, shares: &[f64]) {
        self.station.set_shares(shares);
    }

    /// Nanoseconds of nominal CPU time handed out, by class.
    pub fn done_of(&self) -> impl Iterator<Item = f64> + '_ {
        self.station.done_of()
    }

    /// Adds a disk.
    #[must_use]
    pub fn with_disk(mut self, now: u64, disk: Disk) -> Computer {
        self.storage = Some(Box::new(Storage::new(now, Some((disk, Cache::new(disk.cache))))));
        self
    }

    /// Adds a link of `bytes_per_s` bytes per second.
    #[must_use]
    pub fn with_link(mut self, now: u64, bytes_per_s: f64) -> Computer {
        self.link = Some(Box::new(Link::new(now, Some(bytes_per_s))));
        self
    }

    /// Requests at the disk, with a worker, or at the link.
    pub fn in_flight(&self) -> usize {
        let reading = self.storage.as_ref().map_or(0, |storage| storage.reads.len());
        let sending = self.link.as_ref().map_or(0, |link| link.sends.len());
        self.station.in_flight() + reading + sending
    }

    /// Requests that wait for a worker.
    pub fn waiting(&self) -> usize {
        self.station.waiting()
    }

    /// Resource usage so far.
    pub fn usage(&self) -> Usage {
        let (hits, misses, disk) =
            self.storage.as_ref().map_or((0, 0, 0.0), |storage| (storage.hits, storage.misses, storage.reads.busy()));
        let link = self.link.as_ref().map_or(0.0, |link| link.sends.busy());
        let held = self.station.held_at(self.now);
        Usage { busy: self.station.busy(), done: self.station.done(), disk, link, held, hits, misses }
    }

    /// Nanoseconds for which CPUs, disk and link were occupied until `at`, and workers held. Nothing may
    /// happen here before `at`, so call [`Computer::advance`] to every event first. The computer itself
    /// does not advance, so reading these values changes none of them.
    pub fn occupied_at(&self, at: u64) -> [f64; 4] {
        let disk = self.storage.as_ref().map_or(0.0, |storage| storage.reads.busy_at(at));
        let link = self.link.as_ref().map_or(0.0, |link| link.sends.busy_at(at));
        [self.station.busy_at(at), disk, link, self.station.held_at(at)]
    }

    /// Adds request `id`. Call [`Computer::advance`] to the present first.
    pub fn arrive(&mut self, id: u64, work: Work) {
        let (now, speed) = (self.now, if self.stalled { 0.0 } else { 1.0 });
        if self.link.is_none() && work.demand.link > 0 {
            let mut link = Link::new(now, None);
            link.sends.set_speed(speed);
            self.link = Some(Box::new(link));
        }
        if self.storage.is_none() && work.demand.disk > 0 {
            let mut storage = Storage::new(now, None);
            storage.reads.set_speed(speed);
            self.storage = Some(Box::new(storage));
        }
        if let Some(link) = &mut self.link {
            let bytes = link.bytes_per_s.map_or(0, |bytes_per_s| transfer(work.bytes, bytes_per_s));
            link.replies.insert(id, bytes.saturating_add(work.demand.link));
        }
        if let Some(storage) = &mut self.storage
            && let Some(takes) = storage.takes(&work)
        {
            return storage.reads.enter((id, work), takes);
        }
        self.station.arrive_of(work.class, id, work.demand);
    }

    /// Instant of the next event that needs no input.
    pub fn next_event(&self) -> Option<u64> {
        let read = self.storage.as_ref().and_then(|storage| storage.reads.next_departure());
        let sent = self.link.as_ref().and_then(|link| link.sends.next_departure());
        self.station.next_event().into_iter().chain(read).chain(sent).min()
    }

    /// Advances to `to` and appends the finished requests with their instants, in order.
    pub fn advance(&mut self, to: u64, finished: &mut Vec<(u64, u64)>) {
        self.now = self.now.max(to);
        if self.storage.is_none() && self.link.is_none() {
            return self.station.advance(to, finished);
        }
        // Advances one event at a time, because a departure from one stage changes the speed of the next.
        while let Some(at) = self.next_event()
            && at <= to
        {
            self.step(at, finished);
        }
        self.step(to, finished);
    }

    /// Advances all stages to `at` and passes on the requests that leave a stage then. Nothing may leave
    /// any stage before `at`.
    fn step(&mut self, at: u64, finished: &mut Vec<(u64, u64)>) {
        let Computer { station, storage, link, worked, .. } = self;
        station.advance(at, if link.is_some() { &mut *worked } else { &mut *finished });
        if let Some(storage) = storage {
            storage.reads.advance(at, &mut storage.read);
            for ((id, work), _) in storage.read.drain(..) {
                if let (Some((_, cache)), Some(object)) = (&mut storage.objects, work.object) {
                    cache.insert(object, work.bytes);
                }
                station.arrive_of(work.class, id, work.demand);
            }
        }
        if let Some(link) = link {
            link.sends.advance(at, &mut link.sent);
            finished.append(&mut link.sent);
            for (id, _) in worked.drain(..) {
                let takes = link.replies.remove(&id).unwrap_or(0);
                link.sends.enter(id, takes);
            }
        }
    }

    /// Takes the ids of replies that have sent their first byte, or a keep-alive byte, since the last call,
    /// with the instants.
    pub fn begun(&mut self) -> std::vec::Drain<'_, (u64, u64)> {
        self.station.begun()
    }

    /// Whether [`Computer::begun`] would return any id.
    pub fn has_begun(&self) -> bool {
        self.station.has_begun()
    }

    /// Sets the speed of the CPUs. 1 is nominal. At 0 the whole computer stands still.
    pub fn set_speed(&mut self, speed: f64) {
        self.station.set_speed(speed);
        self.stalled = speed <= 0.0;
        let others = if speed > 0.0 { 1.0 } else { 0.0 };
        if let Some(storage) = &mut self.storage {
            storage.reads.set_speed(others);
        }
        if let Some(link) = &mut self.link {
            link.sends.set_speed(others);
        }
    }

    /// Removes request `id`, which has been abandoned, at whatever stage it is. Returns `false` if it is
    /// not here. Call [`Computer::advance`] to the present first. Costs O(n).
    pub fn remove(&mut self, id: u64) -> bool {
        if let Some(link) = &mut self.link {
            link.replies.remove(&id);
        }
        self.station.remove(id)
            || self.storage.as_mut().is_some_and(|storage| storage.reads.remove(|(other, _)| *other == id))
            || self.link.as_mut().is_some_and(|link| link.sends.remove(|other| *other == id))
    }

    /// Removes all requests and empties the memory.
    pub fn clear(&mut self) {
        self.station.clear();
        if let Some(storage) = &mut self.storage {
            if let Some((_, cache)) = &mut storage.objects {
                cache.clear();
            }
            storage.reads.clear();
        }
        if let Some(link) = &mut self.link {
            link.replies.clear();
            link.sends.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// 10 ms per read plus 1 ms for each 1000 bytes, and memory for 4000 bytes.
    const DISK: Disk = Disk { access: Duration::from_millis(10), bytes_per_s: 1e6, cache: 4000 };

    fn work(cpu: u64, object: Option<u64>, bytes: u64) -> Work {
        Work { demand: Demand { cpu: cpu * MS, ..Demand::default() }, class: 0, object, bytes }
    }

    fn finish(computer: &mut Computer) -> Vec<(u64, u64)> {
        let mut finished = Vec::new();
        while let Some(at) = computer.next_event() {
            computer.advance(at, &mut finished);
        }
        finished
    }

    #[test]
    fn a_miss_takes_disk_time_and_a_hit_does_not() {
        let mut computer = Computer::new(0, 1, None, None).with_disk(0, DISK);
        computer.arrive(1, work(5, Some(7), 2000));
        assert_eq!(finish(&mut computer), [(1, 17 * MS)]);
        computer.arrive(2, work(5, Some(7), 2000));
        computer.arrive(3, work(0, None, 2000));
        assert_eq!(finish(&mut computer), [(3, 17 * MS), (2, 22 * MS)]);
        assert_eq!(
            computer.usage(),
            Usage { busy: 10e6, done: 10e6, disk: 12e6, link: 0.0, held: 10e6, hits: 1, misses: 1 }
        );
    }

    #[test]
    fn a_working_set_larger_than_memory_always_misses() {
        let mut computer = Computer::new(0, 1, None, None).with_disk(0, DISK);
        for id in 0..9 {
            computer.arrive(id, work(0, Some(id % 3), 2000));
            finish(&mut computer);
        }
        assert_eq!((computer.usage().hits, computer.usage().misses), (0, 9));
    }

    #[test]
    fn the_link_is_shared_by_all_replies() {
        let mut computer = Computer::new(0, 4, None, None).with_link(0, 1e6);
        computer.arrive(1, work(2, None, 4000));
        computer.arrive(2, work(2, None, 8000));
        computer.arrive(3, work(4, None, 0));
        // From 2 ms on, 1 and 2 share the link. 3 sends nothing and is finished as soon as its CPU time is
        // over. 1 takes 8 ms for its 4 ms of transfer. Then 2 has its other 4 ms alone.
        assert_eq!(finish(&mut computer), [(3, 4 * MS), (1, 10 * MS), (2, 14 * MS)]);
        assert_eq!(computer.usage().link, 12e6);
    }

    #[test]
    fn what_a_request_says_it_takes_is_taken_of_disk_cpu_and_link_in_turn() {
        let mut computer = Computer::new(0, 1, None, None);
        let page = |cpu, disk, link| {
            let demand = Demand { cpu: cpu * MS, disk: disk * MS, link: link * MS, ..Demand::default() };
            Work { demand, ..Work::default() }
        };
        computer.arrive(1, page(9, 3, 3));
        computer.arrive(2, page(3, 9, 3));
        computer.arrive(3, page(2, 0, 0));
        // Disk: 1 until 6 ms, 2 until 12. CPU: 3 until 2, 1 from 6 and 2 from 12 on, which share it until
        // 18. Link: both from 18 on, which share it until 24.
        assert_eq!(finish(&mut computer), [(3, 2 * MS), (1, 24 * MS), (2, 24 * MS)]);
        let Usage { busy, disk, link, .. } = computer.usage();
        assert_eq!((busy, disk, link), (14e6, 12e6, 6e6));
    }

    #[test]
    fn a_disk_that_is_first_needed_during_a_stall_stands_still() {
        let mut computer = Computer::new(0, 1, None, None);
        computer.advance(5 * MS, &mut Vec::new());
        computer.set_speed(0.0);
        computer.arrive(1, Work { demand: Demand { disk: 2 * MS, link: MS, ..Demand::default() }, ..Work::default() });
        computer.advance(9 * MS, &mut Vec::new());
        assert_eq!(computer.next_event(), None);
        computer.set_speed(1.0);
        assert_eq!(finish(&mut computer), [(1, 12 * MS)]);
    }

    #[test]
    fn a_stall_stops_disk_and_link_and_loses_nothing() {
        let mut computer = Computer::new(0, 1, None, None).with_disk(0, DISK).with_link(0, 1e6);
        computer.arrive(1, work(0, Some(1), 0));
        computer.arrive(2, work(0, None, 8000));
        let mut finished = Vec::new();
        computer.advance(4 * MS, &mut finished);
        computer.set_speed(0.0);
        assert_eq!(computer.next_event(), None);
        computer.advance(100 * MS, &mut finished);
        assert_eq!((finished.len(), computer.in_flight()), (0, 2));
        computer.set_speed(0.1);
        assert_eq!(finish(&mut computer), [(2, 104 * MS), (1, 106 * MS)]);
    }

    #[test]
    fn one_that_is_given_up_leaves_nothing_behind() {
        let mut computer = Computer::new(0, 1, None, None).with_disk(0, DISK).with_link(0, 1e6);
        computer.arrive(1, work(0, Some(1), 2000));
        computer.arrive(2, work(0, None, 2000));
        let mut finished = Vec::new();
        computer.advance(MS, &mut finished);
        assert!(computer.remove(1) && !computer.remove(1), "at the disk");
        assert!(computer.remove(2) && !computer.remove(2), "at the link");
        assert_eq!((computer.in_flight(), computer.next_event()), (0, None));
        // An object that was not read completely is not in memory.
        computer.arrive(3, work(0, Some(1), 0));
        assert_eq!((computer.usage().misses, finish(&mut computer)), (2, vec![(3, 11 * MS)]));
        computer.clear();
        computer.arrive(4, work(0, Some(1), 0));
        assert_eq!(computer.usage().misses, 3, "a crash empties the memory");
    }

    proptest! {
        /// For any input: everything is finished once, and nothing sooner than its stages take. Hits and
        /// misses add up. The disk was busy for exactly the bytes read and the link for the bytes sent. One
        /// large step ends like many small steps.
        #[test]
        fn nothing_is_lost_and_every_stage_does_its_work(
            requests in prop::collection::vec((0u64..20, 0u64..20, 0u64..6, 0u64..4000), 1..80),
        ) {
            let fresh = || Computer::new(0, 2, Some(3), None).with_disk(0, DISK).with_link(0, 1e6);
            let mut computer = fresh();
            let (mut finished, mut at, mut read, mut sent) = (Vec::new(), 0, 0.0, 0.0);
            let mut arrivals = Vec::new();
            for (id, &(gap, cpu, object, bytes)) in (0..).zip(&requests) {
                at += gap * MS;
                computer.advance(at, &mut finished);
                let misses = computer.usage().misses;
                let object = (object > 0).then_some(object);
                computer.arrive(id, work(cpu, object, bytes));
                let missed = computer.usage().misses > misses;
                let reading = if missed { 10 * MS + bytes * 1000 } else { 0 };
                read += reading as f64;
                sent += (bytes * 1000) as f64;
                arrivals.push((at, cpu * MS + bytes * 1000 + reading));
            }
            finished.extend(finish(&mut computer));
            prop_assert_eq!(computer.in_flight() + computer.waiting(), 0);
            let mut ids: Vec<u64> = finished.iter().map(|(id, _)| *id).collect();
            ids.sort_unstable();
            prop_assert_eq!(ids, (0..requests.len() as u64).collect::<Vec<_>>());
            for &(id, end) in &finished {
                let (arrived, min) = arrivals[id as usize];
                prop_assert!(end - arrived >= min, "{id} took {} of {min} ns", end - arrived);
            }
            let named = requests.iter().filter(|(.., object, _)| *object > 0).count() as u64;
            let usage = computer.usage();
            prop_assert_eq!(usage.hits + usage.misses, named);
            // Each departure is rounded up by less than a nanosecond.
            let rounding = 1.0 + requests.len() as f64;
            prop_assert!((usage.disk - read).abs() <= rounding, "{} of {read}", usage.disk);
            prop_assert!((usage.link - sent).abs() <= rounding, "{} of {sent}", usage.link);
        }

        /// Many small steps and one large step give the same result.
        #[test]
        fn steps_do_not_matter(
            requests in prop::collection::vec((0u64..20, 0u64..6, 0u64..4000), 1..20),
            mut cuts in prop::collection::vec(0u64..400_000_000, 0..30),
        ) {
            let run = |cuts: &[u64]| {
                let mut computer = Computer::new(0, 1, Some(2), None).with_disk(0, DISK).with_link(0, 1e6);
                for (id, &(cpu, object, bytes)) in (0..).zip(&requests) {
                    computer.arrive(id, work(cpu, Some(object), bytes));
                }
                let mut finished = Vec::new();
                for cut in cuts.iter().copied().chain([100_000_000_000]) {
                    computer.advance(cut, &mut finished);
                }
                finished.sort_unstable();
                finished
            };
            cuts.sort_unstable();
            let (leap, steps) = (run(&[]), run(&cuts));
            prop_assert_eq!(leap.len(), steps.len());
            // Each stage rounds its departures by less than a nanosecond, and passes the error on to the others.
            for (a, b) in leap.iter().zip(&steps) {
                prop_assert!(a.0 == b.0 && a.1.abs_diff(b.1) <= 100, "{a:?} against {b:?}");
            }
        }
    }
}
