//! Visits: clients that ask for pages, and the next step of each of them.
//!
//! A page is a request and the objects embedded in its reply. Its client sends the page's own request. Once
//! that is served, the client asks for the objects over a few connections, and each reply releases the next
//! request. After the last reply it thinks, and asks for the next page of its visit (the user equivalent of
//! SURGE: Barford and Crovella, SIGMETRICS 1998). A client that gets no page asks for no objects. An object
//! that does not come leaves the page incomplete, but the others are still requested.
//!
//! The properties of a page (its own demand, the number of objects, the demand of each, the client's think
//! time after it) come from a generator seeded by the stream, the client's number and the page's number.
//! They are therefore the same in every run of a seed, whatever happened to the pages before it.
//!
//! Departures from SURGE: no ON and OFF times of single connections below the page, because HTTP/1.1 keeps
//! connections open. No popularity of files and no locality, which matter only to caches. The machines here
//! have no caches beyond those already reflected in the demands.

use weirgate_emulator::random::Random;
use weirgate_engine::mixed;

use super::{Draw, NO_USER, Stream};
use crate::random::{Lot, Purpose, seed_for};
use crate::run::{Fate, Page};
use crate::{Counts, Experiment, Session, Source};

/// A visit in progress, identified by its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VisitId(u32);

/// Properties of a stream's pages.
#[derive(Clone, Copy, Debug)]
struct Kind {
    session: Option<Session>,
    objects: Option<Objects>,
    seed: u64,
    /// Number of clients so far.
    clients: u64,
}

/// Objects embedded in the pages.
#[derive(Clone, Copy, Debug)]
struct Objects {
    /// Stream that describes the objects.
    traffic: u32,
    count: Counts,
    connections: u32,
}

/// One client.
#[derive(Clone, Debug)]
struct Visit {
    traffic: u32,
    user: u32,
    /// Seed of the generators of its pages.
    seed: u64,
    key: u32,
    flow: u64,
    /// Number of pages after the present one.
    pages_left: u32,
    /// Number of the present page, starting at 1.
    nth: u64,
    /// Generator of the present page.
    random: Random,
    /// Think time of the client after the page, in nanoseconds.
    thinks: u64,
    /// Number of the page among all pages of the run.
    page: u32,
    /// Objects of the page that have not been requested yet.
    unsent: u32,
    /// Requests of the page that are in progress or about to be sent.
    under_way: u32,
    /// Reason why the page is not complete, if it is not.
    lacks: Option<Fate>,
}

/// Next step of a client after a request of its page has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The client waits for other requests.
    Waits,
    /// The client sends this many objects, each by [`Visits::object`].
    Objects(u32),
    /// The client thinks for this many nanoseconds and then asks for its next page by [`Visits::page`].
    Thinks(u64),
    /// The visit is over. Its user, if there is one, comes again after thinking.
    Leaves {
        /// The user, or [`NO_USER`].
        user: u32,
    },
}

/// All visits of a run, and the pages requested in them.
#[derive(Debug)]
pub struct Visits {
    /// Kind of each stream, or `None` if it does not consist of pages.
    kinds: Vec<Option<Kind>>,
    places: Vec<Visit>,
    free: Vec<u32>,
    pages: Vec<Page>,
}

impl Visits {
    /// No visits yet, in the run of `experiment` named by `seed`.
    pub fn new(experiment: &Experiment, seed: u64) -> Visits {
        let kind = |index: usize| {
            let objects = experiment.objects_of(index).and_then(|traffic| match experiment.traffic[traffic].source {
                Source::Objects { count, connections, .. } => {
                    Some(Objects { traffic: traffic as u32, count, connections })
                }
                _ => None,
            });
            let session = experiment.traffic[index].session;
            let seed = seed_for(seed, Purpose::Pages, index);
            experiment.is_pages(index).then_some(Kind { session, objects, seed, clients: 0 })
        };
        let kinds = (0..experiment.traffic.len()).map(kind).collect();
        Visits { kinds, places: Vec::new(), free: Vec::new(), pages: Vec::new() }
    }

    /// Starts a visit at `at` by a client of stream `traffic`, or by its `user`. Returns the first request
    /// and the visit that it belongs to. There is no visit if the stream does not consist of pages.
    pub fn first(&mut self, stream: &mut Stream<'_>, traffic: u32, at: u64, user: u32) -> (Draw, Option<VisitId>) {
        let Some(kind) = self.kinds.get_mut(traffic as usize).and_then(Option::as_mut) else {
            return (stream.draw(at, user), None);
        };
        let seed = mixed(kind.seed ^ kind.clients);
        let client = if user == NO_USER { kind.clients } else { u64::from(user) };
        kind.clients += 1;
        let mut random = Random::new(mixed(seed));
        let lot = Lot::draw(&mut random);
        let pages = kind.session.map_or(1, |session| lot.count(&session.pages));
        let visit = Visit {
            traffic,
            user,
            seed,
            key: stream.key_at(random.unit()),
            flow: stream.flow_of(client),
            pages_left: pages,
            nth: 0,
            random,
            thinks: 0,
            page: 0,
            unsent: 0,
            under_way: 0,
            lacks: None,
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = visit;
                place
            }
            None => {
                self.places.push(visit);
                self.places.len() as u32 - 1
            }
        };
        let id = VisitId(place);
        (self.page(stream, id, at), Some(id))
    }

    /// Returns the own request of the next page of `id`, asked for at `at`.
    pub fn page(&mut self, stream: &mut Stream<'_>, id: VisitId, at: u64) -> Draw {
        let visit = &mut self.places[id.0 as usize];
        let kind = self.kinds[visit.traffic as usize];
        // 0 names the generator of the visit itself.
        visit.nth += 1;
        visit.random = Random::new(mixed(visit.seed.wrapping_add(visit.nth)));
        visit.pages_left = visit.pages_left.saturating_sub(1);
        let [thinks, count] = [Lot::draw(&mut visit.random), Lot::draw(&mut visit.random)];
        visit.thinks = kind.and_then(|kind| kind.session).map_or(0, |session| thinks.time(&session.think));
        visit.unsent = kind.and_then(|kind| kind.objects).map_or(0, |objects| count.count(&objects.count));
        visit.under_way = 1;
        visit.lacks = None;
        visit.page = self.pages.len() as u32;
        self.pages.push(Page {
            traffic: visit.traffic,
            fate: Fate::Cut,
            arrived: at,
            ended: at,
            objects: visit.unsent,
        });
        stream.draw_by(&mut visit.random, at, visit.key, visit.flow)
    }

    /// Returns the request for the next object of the page of `id`, asked for at `at`. `stream` is the
    /// second of [`Visits::traffic_of`].
    pub fn object(&mut self, stream: &mut Stream<'_>, id: VisitId, at: u64) -> Draw {
        let visit = &mut self.places[id.0 as usize];
        stream.draw_by(&mut visit.random, at, visit.key, visit.flow)
    }

    /// Streams of the present page of `id` and of its objects.
    pub fn traffic_of(&self, id: VisitId) -> (u32, u32) {
        let traffic = self.places[id.0 as usize].traffic;
        let objects = self.kinds[traffic as usize].and_then(|kind| kind.objects);
        (traffic, objects.map_or(traffic, |objects| objects.traffic))
    }

    /// Number of that page among all pages of the run, which is its index in [`Visits::finish`].
    pub fn page_of(&self, id: VisitId) -> u32 {
        self.places[id.0 as usize].page
    }

    /// Records that a request of stream `traffic` that belongs to `id` ended for good at `at`, without
    /// another retry. Returns the next step of the client.
    pub fn ended(&mut self, id: VisitId, traffic: u32, fate: Fate, at: u64) -> Then {
        let visit = &mut self.places[id.0 as usize];
        let objects = self.kinds[visit.traffic as usize].and_then(|kind| kind.objects);
        visit.under_way -= 1;
        let page = &mut self.pages[visit.page as usize];
        page.ended = page.ended.max(at);
        if fate != Fate::Served {
            visit.lacks = visit.lacks.or(Some(fate));
        }
        let is_itself = traffic == visit.traffic;
        if is_itself && fate != Fate::Served {
            visit.unsent = 0;
        }
        // A reply releases one further request. The reply with the page itself releases one per connection.
        let may = if is_itself { objects.map_or(0, |objects| objects.connections) } else { 1 };
        let sent = visit.unsent.min(may);
        if sent > 0 {
            visit.unsent -= sent;
            visit.under_way += sent;
            return Then::Objects(sent);
        }
        if visit.under_way > 0 {
            return Then::Waits;
        }
        page.fate = visit.lacks.unwrap_or(Fate::Served);
        if visit.pages_left > 0 {
            return Then::Thinks(visit.thinks);
        }
        let user = visit.user;
        self.free.push(id.0);
        Then::Leaves { user }
    }

    /// Ends the run at `at`. Returns every page, in order of their first requests. Pages in progress are cut off.
    pub fn finish(mut self, at: u64) -> Vec<Page> {
        for page in self.pages.iter_mut().filter(|page| page.fate == Fate::Cut) {
            page.ended = at.max(page.arrived);
        }
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::path::Path;

    const MS: u64 = 1_000_000;

    fn experiment(traffic: &str) -> Experiment {
        let text = format!(
            "policy:\n  upstreams: {{ web: {{ nodes: [n1:80] }} }}\n  classes: [{{ name: A }}, {{ name: B }}]\n\
             traffic: [{{ {traffic} }}]\nphases: [{{ name: all, until: 60s }}]\n"
        );
        let loaded = crate::load_experiment("test.yaml", &text, Path::new(""), &[]);
        loaded.unwrap_or_else(|errors| panic!("{errors}")).experiment
    }

    fn streams(experiment: &Experiment) -> Vec<Stream<'_>> {
        (0..experiment.traffic.len()).map(|index| Stream::new(experiment, index, 7)).collect()
    }

    /// CPU times drawn for a client's pages, that of each page itself first. `comes` tells which requests
    /// are served (by their order).
    fn visit(experiment: &Experiment, visits: &mut Visits, comes: impl Fn(usize) -> bool) -> Vec<Vec<u64>> {
        let mut streams = streams(experiment);
        let (draw, id) = visits.first(&mut streams[0], 0, 0, NO_USER);
        let id = id.expect("it comes as pages");
        let mut pages = vec![vec![draw.demand.cpu]];
        // Streams of the requests in progress. One request ends every millisecond.
        let mut open = VecDeque::from([0]);
        let mut at = 0;
        for request in 1.. {
            at += MS;
            let fate = if comes(request) { Fate::Served } else { Fate::Shed };
            let traffic = open.pop_front().expect("something is under way");
            match visits.ended(id, traffic, fate, at) {
                Then::Waits => {}
                Then::Objects(count) => {
                    for _ in 0..count {
                        let draw = visits.object(&mut streams[1], id, at);
                        pages.last_mut().expect("a page").push(draw.demand.cpu);
                        open.push_back(1);
                    }
                    assert!(open.len() <= 2, "{open:?} are under way");
                }
                Then::Thinks(thinks) => {
                    at += thinks;
                    pages.push(vec![visits.page(&mut streams[0], id, at).demand.cpu]);
                    open.push_back(0);
                }
                Then::Leaves { user } => {
                    assert_eq!((user, open.len()), (NO_USER, 0));
                    break;
                }
            }
        }
        pages
    }

    const SHOP: &str = "class: A, rate: 10/s, session: { pages: 3, think: { exponential: 1s } }, \
                        demand: { exponential: 5ms }, \
                        objects: { class: B, count: { pareto: { shape: 1.2, min: 3, max: 9 } }, \
                        demand: { exponential: 1ms } }";

    #[test]
    fn a_page_that_does_not_come_changes_nothing_of_what_follows() {
        let experiment = experiment(SHOP);
        let mut visits = [Visits::new(&experiment, 7), Visits::new(&experiment, 7)];
        let all = visit(&experiment, &mut visits[0], |_| true);
        // The first page is refused, so its objects are never requested.
        let fewer = visit(&experiment, &mut visits[1], |request| request != 1);
        assert_eq!((all.len(), fewer.len(), fewer[0].len()), (3, 3, 1));
        assert_eq!((all[0][0], &all[1..]), (fewer[0][0], &fewer[1..]));
        let [all, fewer] = visits.map(|visits| visits.finish(0));
        assert_eq!([all[0].fate, fewer[0].fate, fewer[1].fate], [Fate::Served, Fate::Shed, Fate::Served]);
        assert_eq!((all[0].objects, all[2].objects), (fewer[0].objects, fewer[2].objects));
        assert!(all.iter().all(|page| (3..=9).contains(&page.objects)));
    }

    #[test]
    fn a_client_and_a_seed_name_a_visit() {
        let experiment = experiment(SHOP);
        let mut visits = Visits::new(&experiment, 7);
        let [first, second] = [0, 1].map(|_| visit(&experiment, &mut visits, |_| true));
        assert_ne!(first, second);
        assert_ne!(first, visit(&experiment, &mut Visits::new(&experiment, 8), |_| true));
        assert_eq!(first, visit(&experiment, &mut Visits::new(&experiment, 7), |_| true));
        assert_eq!(visits.places.len(), 1, "a place is used again");
    }

    #[test]
    fn an_object_that_does_not_come_leaves_the_page_incomplete_and_the_others_are_asked_for() {
        let experiment = experiment("class: A, rate: 1/s, demand: 1ms, objects: { count: 5, demand: 1ms }");
        let mut visits = Visits::new(&experiment, 1);
        let pages = visit(&experiment, &mut visits, |request| request != 3);
        assert_eq!(pages[0].len(), 6);
        let page = visits.finish(0)[0];
        assert_eq!((page.fate, page.objects, page.arrived, page.ended), (Fate::Shed, 5, 0, 6 * MS));
    }

    #[test]
    fn requests_of_other_streams_are_as_ever() {
        let experiment = experiment("class: A, rate: 10/s, demand: { exponential: 5ms }");
        let (mut with, mut without) = (streams(&experiment), streams(&experiment));
        let mut visits = Visits::new(&experiment, 7);
        for _ in 0..10 {
            let (draw, id) = visits.first(&mut with[0], 0, 0, NO_USER);
            assert_eq!((draw.demand.cpu, id), (without[0].draw(0, NO_USER).demand.cpu, None));
        }
        assert!(visits.finish(9).is_empty());
    }
}
