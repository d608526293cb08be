//! Open connections per peer, for `limits.connections_per_source`.
//!
//! A peer is an IPv4 address or an IPv6 /64. The table has an entry for each peer with a connection, so it is bounded
//! by `limits.connections`. Connections are counted whether there is a limit or not, so that a reload may set one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weirgate_config::NetworkSize;

use crate::client;

/// The number of connections of each peer, on all threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers(Arc<Mutex<HashMap<u64, u32>>>);

/// Counts one connection of a peer until it is dropped.
#[derive(Debug)]
pub(crate) struct PeerConn {
    peers: Peers,
    key: u64,
}

impl Peers {
    /// Counts one more connection of `peer`, unless it has `max` connections already.
    pub(crate) fn enter(&self, peer: IpAddr, max: Option<u32>) -> Option<PeerConn> {
        let key = client::key(peer.to_canonical(), NetworkSize::ADDRESS);
        let mut counts = self.counts();
        let count = counts.entry(key).or_insert(0);
        if max.is_some_and(|max| *count >= max) {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(PeerConn { peers: self.clone(), key })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<u64, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PeerConn {
    fn drop(&mut self) {
        let mut counts = self.peers.counts();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_has_its_own_limit() {
        let peers = Peers::default();
        let enter = |text: &str| peers.enter(text.parse().expect("an address"), Some(2));
        let first = enter("192.0.2.1").expect("a place");
        let second = enter("::ffff:192.0.2.1").expect("a place");
        assert!(enter("192.0.2.1").is_none() && enter("192.0.2.2").is_some());
        drop(first);
        let again = enter("192.0.2.1").expect("a place is free again");
        assert!(enter("192.0.2.1").is_none());
        drop((second, again));
        assert!(peers.counts().is_empty());
        let network = [enter("2001:db8::1"), enter("2001:db8::2"), enter("2001:db8::3")];
        assert!(network[1].is_some() && network[2].is_none());
    }
}
