//! Clients that misbehave, in mixes drawn at random from a seed.
//!
//! A [`Kind`] is one way to misbehave. A [`Mix`] is a set of kinds, each with a number of clients. [`Attack`] plays a
//! mix on a thread of its own until it is dropped. `client` has the behaviour of each kind, `wire` the connection to
//! the gateway. Every client comes again shortly after its connection has ended, so that a mix keeps its pressure.

mod client;
mod wire;

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use tokio::sync::oneshot;
use weirgate_emulator::random::Random;

pub(crate) use wire::{Wire, status_of};

/// A way to misbehave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Connects and sends nothing.
    Silent,
    /// Sends its head a byte at a time.
    ByteHead,
    /// Sends its body a byte at a time, under each framing.
    SlowBody,
    /// Reads 8 MB at a few kilobytes a second.
    SlowReader,
    /// Resets the connection in the middle of its head.
    DiesInHead,
    /// Resets the connection in the middle of its body.
    DiesInBody,
    /// Resets the connection in the middle of the response.
    DiesInResponse,
    /// One request for each connection, or none.
    Churn,
    /// Fifty requests in one write.
    Pipeliner,
    /// Requests that the gateway refuses.
    Refused,
    /// Requests to a class with a full queue.
    FullQueue,
    /// Hundreds of requests at once from one source.
    Crowd,
    /// One request, and then nothing on an open connection.
    Idle,
    /// Closes its sending side after the request.
    HalfClose,
    /// A head of 100 kB.
    OversizedHead,
    /// Bytes that are not HTTP.
    Garbage,
    /// Requests to a node that dies and returns.
    DyingNode,
    /// Requests to a node that answers 103 without end.
    EndlessInterim,
}

impl Kind {
    /// Every kind, with the name in reports and the smallest and largest number of clients.
    ///
    /// Clients without a pause between requests are few, because each of them occupies a processor. Connections
    /// in the middle of a request are at most 700 in the largest mix. Idle ones and silent ones are as many as
    /// `limits.connections` in `experiments/endurance/door.yaml`, so that they reach it.
    const ALL: [(Kind, &str, u32, u32); 18] = [
        (Kind::Silent, "silent", 100, 1000),
        (Kind::ByteHead, "one-byte heads", 20, 120),
        (Kind::SlowBody, "slow bodies", 20, 120),
        (Kind::SlowReader, "slow readers", 10, 60),
        (Kind::DiesInHead, "die in head", 10, 60),
        (Kind::DiesInBody, "die in body", 10, 60),
        (Kind::DiesInResponse, "die in response", 10, 40),
        (Kind::Churn, "churn", 2, 12),
        (Kind::Pipeliner, "pipeliners", 2, 12),
        (Kind::Refused, "refused flood", 2, 16),
        (Kind::FullQueue, "full queue", 2, 16),
        (Kind::Crowd, "at once from one source", 150, 300),
        (Kind::Idle, "idle keep-alive", 100, 1000),
        (Kind::HalfClose, "half-closes", 5, 40),
        (Kind::OversizedHead, "oversized heads", 2, 12),
        (Kind::Garbage, "garbage", 5, 40),
        (Kind::DyingNode, "to dying node", 5, 40),
        (Kind::EndlessInterim, "to endless 103s", 2, 12),
    ];
}

/// Kinds of clients and their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mix {
    parts: Vec<(Kind, u32)>,
}

/// Smallest and largest number of kinds in a mix. Fewer show a kind almost alone, more show how they add up.
const KINDS: (u64, u64) = (2, 8);

impl Mix {
    /// Draws a mix. The same state of `random` gives the same mix.
    pub(crate) fn draw(random: &mut Random) -> Mix {
        let mut kinds = Kind::ALL.to_vec();
        let count = between(random, KINDS.0, KINDS.1);
        let parts = (0..count).map(|_| {
            let (kind, _, least, most) = kinds.swap_remove(between(random, 0, kinds.len() as u64 - 1) as usize);
            (kind, between(random, least.into(), most.into()) as u32)
        });
        Mix { parts: parts.collect() }
    }

    /// Returns the number of its clients.
    pub(crate) fn clients(&self) -> u64 {
        self.parts.iter().map(|(_, clients)| u64::from(*clients)).sum()
    }

    /// Returns whether it has clients of `kind`.
    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.parts.iter().any(|(own, _)| *own == kind)
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (kind, clients)) in self.parts.iter().enumerate() {
            let name = Kind::ALL.iter().find(|(own, ..)| own == kind).map_or("", |(_, name, ..)| name);
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{clients} {name}")?;
        }
        Ok(())
    }
}

/// Parses a mix as it is printed, such as `15 slow readers, 200 silent`.
impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Mix, String> {
        let names = || Kind::ALL.map(|(_, name, ..)| name).join(", ");
        let part = |part: &str| {
            let (clients, name) = part.trim().split_once(' ').ok_or_else(|| format!("{part:?} has no number"))?;
            let clients = clients.parse().map_err(|_| format!("{clients:?} is not a number of clients"))?;
            let kind = Kind::ALL.iter().find(|(_, own, ..)| *own == name.trim());
            let (kind, ..) = kind.ok_or_else(|| format!("there is no kind {name:?}; write one of {}", names()))?;
            Ok((*kind, clients))
        };
        Ok(Mix { parts: text.split(',').map(part).collect::<Result<_, String>>()? })
    }
}

/// Returns a whole number from `least` to `most`.
pub(crate) fn between(random: &mut Random, least: u64, most: u64) -> u64 {
    least + ((most - least + 1) as f64 * random.unit()) as u64
}

/// Observations of the clients of an attack.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Connections that were made.
    pub(crate) connections: AtomicU64,
    /// Connections that could not be made.
    pub(crate) refused: AtomicU64,
    /// Responses, by the first digit of their status.
    pub(crate) responses: [AtomicU64; 6],
}

impl Seen {
    fn response(&self, status: u16) {
        if let Some(count) = self.responses.get(usize::from(status / 100)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of connections that were made.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the number of responses with a status of `hundreds`.
    pub(crate) fn count(&self, hundreds: usize) -> u64 {
        self.responses[hundreds].load(Ordering::Relaxed)
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} connections, {}/{}/{} of 2xx/4xx/5xx",
            self.connections(),
            self.count(2),
            self.count(4),
            self.count(5)
        )
    }
}

/// A running attack. All connections are reset when it is dropped.
pub(crate) struct Attack {
    seen: Arc<Seen>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Attack {
    /// Starts the clients of `mix` against `target`. Their choices are drawn from `seed`.
    ///
    /// # Errors
    /// The system has no thread or descriptor left.
    pub(crate) fn start(mix: &Mix, seed: u64, target: SocketAddr) -> Result<Attack, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("hostile clients: {error}"))?;
        let seen = Arc::new(Seen::default());
        let (stop, stopped) = oneshot::channel();
        let (parts, record) = (mix.parts.clone(), Arc::clone(&seen));
        let run = move || {
            let mut number = 0;
            for (kind, clients) in parts {
                for _ in 0..clients {
                    number += 1;
                    let wire = Wire::new(target, kind, number, Arc::clone(&record));
                    drop(runtime.spawn(client::play(kind, wire, Random::new(seed.wrapping_add(number)))));
                }
            }
            // An error says that the sender is gone, which means the same.
            let _ = runtime.block_on(stopped);
        };
        let thread = std::thread::Builder::new().name("hostile".into()).spawn(run);
        let thread = thread.map_err(|error| format!("hostile clients: {error}"))?;
        Ok(Attack { seen, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the observations of its clients so far.
    pub(crate) fn seen(&self) -> &Seen {
        &self.seen
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // If that thread panicked, the panic has been printed.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_its_mixes_and_mixes_differ() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..50).map(|_| Mix::draw(&mut random)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let mixes = draw(7);
        for (kind, name, least, most) in Kind::ALL {
            assert!(mixes.iter().any(|mix| mix.has(kind)), "{name} is in no mix of 50");
            assert!(least <= most);
        }
        for mix in &mixes {
            assert!((KINDS.0..=KINDS.1).contains(&(mix.parts.len() as u64)), "{mix}");
            let twice =
                mix.parts.iter().filter(|(kind, _)| mix.parts.iter().filter(|(own, _)| own == kind).count() > 1);
            assert_eq!(twice.count(), 0, "{mix}");
            assert_eq!(mix.to_string().parse().as_ref(), Ok(mix));
        }
    }

    #[test]
    fn a_mix_with_a_mistake_is_explained() {
        let error = |text: &str| text.parse::<Mix>().expect_err("a mistake");
        assert!(error("5 slow").contains("one of silent, one-byte heads"), "{}", error("5 slow"));
        assert!(error("some silent").contains("not a number"));
        assert!(error("silent").contains("no number"));
    }

    #[test]
    fn numbers_are_drawn_from_the_whole_range() {
        let mut random = Random::new(1);
        let drawn: Vec<u64> = (0..1000).map(|_| between(&mut random, 3, 5)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&5)));
    }
}
