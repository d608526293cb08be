//! The client connections of a thread, and the order in which they make room for others.
//!
//! A connection that can be spared is in one of three lists, in the order in which it came there. Entering and leaving
//! a list takes a few instructions, and so does finding the connection that has been in it for longest. At the limit of
//! connections a flood of new ones therefore costs little, however many are open.

use std::cmp::Reverse;
use std::rc::Rc;

use slab::Slab;

use crate::client_conn::ClientConn;

/// Maximum number of connections of a list that are compared to find the one of the greediest peer. Others of such a
/// peer are likely to be among them, and each takes a look into the table of peers.
const COMPARED: usize = 64;

/// Number of connections that leave a megabyte behind at least, so that it is worth asking the allocator for it.
const MANY: usize = 1024;

/// Reason why a connection can be spared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spare {
    /// It has never sent a byte.
    Silent,
    /// No request is being served or received.
    Idle,
    /// Its only request waits, and its class has no guaranteed throughput.
    Waiting,
}

/// Number of lists, one for each [`Spare`].
const LISTS: usize = 3;

/// The connections. Tests have numbers in their place.
pub(crate) struct Roster<C = Rc<ClientConn>> {
    conns: Slab<Entry<C>>,
    /// The ends of each list.
    lists: [Ends; LISTS],
    /// The largest number of connections that [`Roster::has_emptied`] has seen since most had left.
    most: usize,
}

struct Entry<C> {
    conn: C,
    spare: Option<Spare>,
    /// Neighbours in the list: the one that came before, and the one that came after.
    neighbours: Ends,
}

/// The first and the last connection of a list.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    first: Option<usize>,
    last: Option<usize>,
}

impl<C> Default for Roster<C> {
    fn default() -> Roster<C> {
        Roster { conns: Slab::new(), lists: Default::default(), most: 0 }
    }
}

/// The order in which connections make room for others. It is that of the harm to their clients. A client that has just
/// connected or been answered may have sent its next request. One whose request waits is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// A client with more than its part of the connections that has been idle for a while.
    GreedyIdle,
    /// A request that waits, of such a client.
    GreedyWaiting,
    /// Any other client that has been idle for a while.
    Idle,
    /// A client that has just connected.
    New,
    /// A client that has just been answered.
    Answered,
    /// Any other request that waits.
    Waiting,
}

impl Turn {
    fn of(list: Spare, is_fresh: bool, is_greedy: bool) -> Turn {
        match (list, is_greedy) {
            (Spare::Silent, _) => Turn::New,
            (Spare::Waiting, true) => Turn::GreedyWaiting,
            (Spare::Waiting, false) => Turn::Waiting,
            (Spare::Idle, _) if is_fresh => Turn::Answered,
            (Spare::Idle, true) => Turn::GreedyIdle,
            (Spare::Idle, false) => Turn::Idle,
        }
    }
}

impl Roster {
    /// Chooses up to `max` connections that make room for others. First come those that never sent a request and are
    /// no longer new, in the order of their acceptance. The others follow in the order of [`Turn`]. In a turn, the
    /// peer with most connections comes first. Of its connections, those that have been idle for longest come first,
    /// or the requests that came last.
    pub(crate) fn to_spare(&self, max: usize, part: u32) -> Vec<Rc<ClientConn>> {
        let silent = self.oldest(Spare::Silent).take_while(|conn| !conn.is_fresh());
        let mut chosen: Vec<_> = silent.take(max).cloned().collect();
        if chosen.len() < max {
            let new = self.oldest(Spare::Silent).skip(chosen.len()).take(COMPARED).map(|conn| (Spare::Silent, conn));
            let idle = self.oldest(Spare::Idle).take(COMPARED).map(|conn| (Spare::Idle, conn));
            let waiting = self.newest(Spare::Waiting).take(COMPARED).map(|conn| (Spare::Waiting, conn));
            let of = |(list, conn): (Spare, &Rc<ClientConn>)| {
                let has = conn.of_its_peer();
                (Turn::of(list, conn.is_fresh(), has > part), Reverse(has))
            };
            let mut others: Vec<_> = idle.chain(new).chain(waiting).map(|other| (of(other), other.1)).collect();
            others.sort_by_key(|(turn, _)| *turn);
            // No request is refused where a connection without one has made room.
            let is_request = |turn: Turn| matches!(turn, Turn::GreedyWaiting | Turn::Waiting);
            let refuses = chosen.is_empty() && others.first().is_some_and(|((turn, _), _)| is_request(*turn));
            let others = others.into_iter().filter(|((turn, _), _)| is_request(*turn) == refuses);
            chosen.extend(others.take(max - chosen.len()).map(|(_, conn)| Rc::clone(conn)));
        }
        chosen
    }
}

impl<C> Roster<C> {
    /// Adds a connection that has sent nothing. Returns its key.
    pub(crate) fn insert(&mut self, conn: C) -> usize {
        let key = self.conns.insert(Entry { conn, spare: None, neighbours: Ends::default() });
        self.set(key, Some(Spare::Silent));
        key
    }

    /// Puts another connection in the place of one.
    pub(crate) fn replace(&mut self, key: usize, conn: C) {
        if let Some(entry) = self.conns.get_mut(key) {
            entry.conn = conn;
        }
    }

    /// Removes a connection.
    pub(crate) fn remove(&mut self, key: usize) {
        self.set(key, None);
        self.conns.try_remove(key);
    }

    /// Moves a connection to the end of a list, or out of its list.
    pub(crate) fn set(&mut self, key: usize, spare: Option<Spare>) {
        let Some(entry) = self.conns.get_mut(key) else { return };
        let before = std::mem::replace(&mut entry.spare, spare);
        let neighbours = std::mem::take(&mut entry.neighbours);
        if let Some(list) = before {
            self.join(list, neighbours.first, neighbours.last);
        }
        if let Some(list) = spare {
            let last = self.lists[list as usize].last;
            self.join(list, last, Some(key));
            self.join(list, Some(key), None);
        }
    }

    /// Makes two connections neighbours in a list. `None` stands for its end.
    fn join(&mut self, list: Spare, one: Option<usize>, other: Option<usize>) {
        let ends = &mut self.lists[list as usize];
        match one.and_then(|key| self.conns.get_mut(key)) {
            Some(entry) => entry.neighbours.last = other,
            None => ends.first = other,
        }
        match other.and_then(|key| self.conns.get_mut(key)) {
            Some(entry) => entry.neighbours.first = one,
            None => ends.last = one,
        }
    }

    /// Returns whether most of many connections have left since it last returned true, or since the beginning. Frees
    /// their places then, as far as they are behind all others.
    pub(crate) fn has_emptied(&mut self) -> bool {
        let open = self.conns.len();
        self.most = self.most.max(open);
        if self.most - open < open.max(MANY) {
            return false;
        }
        self.most = open;
        self.conns.shrink_to_fit();
        true
    }

    /// Returns all connections.
    pub(crate) fn all(&self) -> impl Iterator<Item = &C> {
        self.conns.iter().map(|(_, entry)| &entry.conn)
    }

    /// Returns the connections of a list, those that have been in it for longest first.
    pub(crate) fn oldest(&self, list: Spare) -> impl Iterator<Item = &C> {
        let first = self.entry(self.lists[list as usize].first);
        std::iter::successors(first, |entry| self.entry(entry.neighbours.last)).map(|entry| &entry.conn)
    }

    /// Returns the connections of a list, those that came last first.
    pub(crate) fn newest(&self, list: Spare) -> impl Iterator<Item = &C> {
        let last = self.entry(self.lists[list as usize].last);
        std::iter::successors(last, |entry| self.entry(entry.neighbours.first)).map(|entry| &entry.conn)
    }

    fn entry(&self, key: Option<usize>) -> Option<&Entry<C>> {
        self.conns.get(key?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Spare; LISTS] = [Spare::Silent, Spare::Idle, Spare::Waiting];

    #[test]
    fn it_has_emptied_once_most_of_many_have_left() {
        let mut roster = Roster::default();
        let mut keys = Vec::new();
        // The number of connections at each look, and whether most have left.
        let looks =
            [(MANY - 1, false), (0, false), (3 * MANY, false), (2 * MANY, false), (3 * MANY / 2, true), (1, true)];
        for (open, expected) in looks {
            while keys.len() < open {
                keys.push(roster.insert(0));
            }
            keys.drain(open..).for_each(|key| roster.remove(key));
            assert_eq!(roster.has_emptied(), expected, "{open} open");
            assert!(!roster.has_emptied(), "once only");
        }
        assert!(roster.conns.capacity() < MANY);
    }

    proptest! {
        /// The lists have what plain vectors have.
        #[test]
        fn lists_keep_the_order_of_arrival(steps in proptest::collection::vec((0usize..12, 0usize..5), 0..200)) {
            let mut roster = Roster::default();
            let mut keys: Vec<usize> = Vec::new();
            let mut model: [Vec<usize>; LISTS] = Default::default();
            for (number, (which, step)) in steps.into_iter().enumerate() {
                if step == 4 || keys.is_empty() {
                    let key = roster.insert(number);
                    // A key that is free is used again.
                    prop_assert!(!keys.contains(&key));
                    keys.push(key);
                    model[0].push(key);
                    continue;
                }
                let key = keys[which % keys.len()];
                model.iter_mut().for_each(|list| list.retain(|&other| other != key));
                match ALL.get(step) {
                    Some(&list) => {
                        roster.set(key, Some(list));
                        model[list as usize].push(key);
                    }
                    None if which % 2 == 0 => roster.set(key, None),
                    None => {
                        roster.remove(key);
                        keys.retain(|&other| other != key);
                    }
                }
                prop_assert_eq!(roster.all().count(), keys.len());
                for list in ALL {
                    let of = |key: &usize| roster.conns[*key].conn;
                    let expected: Vec<usize> = model[list as usize].iter().map(of).collect();
                    prop_assert_eq!(roster.oldest(list).copied().collect::<Vec<_>>(), expected.clone());
                    let backwards: Vec<usize> = expected.into_iter().rev().collect();
                    prop_assert_eq!(roster.newest(list).copied().collect::<Vec<_>>(), backwards);
                }
            }
        }
    }
}
