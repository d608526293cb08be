//! The machine's share-out: one core for the servers, another for everything else.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Priority of everything here, where it may be had, for the minutes that it takes: other work on the machine
/// would else decide the figures. The highest; with -10 a few builds beside it took a third of the servers' core.
const PRIORITY: i32 = -20;

/// Priority of what only has to be there.
const LOWEST: i32 = 19;

/// Linux shares time out among sessions first, and priorities count within a session only; this file has
/// the session's own.
const SESSION: &str = "/proc/self/autogroup";

/// Who runs where.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    /// Load and proxy.
    pub front: usize,
    /// The servers.
    pub servers: usize,
}

/// A raised priority of the session, as long as this value lives.
pub(crate) struct Priority;

/// Moves the calling thread, and with it whatever it starts, to the first core, and raises its priority
/// where that is allowed.
///
/// # Errors
/// The process may use one core only.
pub(crate) fn divide() -> Result<(Cores, Priority), String> {
    let all = sched_getaffinity(None).map_err(|e| format!("the system does not tell its cores: {e}"))?;
    let mut usable = (0..CpuSet::MAX_CPU).filter(|&core| all.is_set(core));
    let (Some(front), Some(servers)) = (usable.next(), usable.next()) else {
        return Err("the experiment needs two cores: one for the servers, one for load and proxy".into());
    };
    let mut set = CpuSet::new();
    set.set(front);
    sched_setaffinity(None, &set).map_err(|e| format!("cannot move to core {front}: {e}"))?;
    // Ordinary users may not; it works without, less evenly.
    let _ = setpriority_process(None, PRIORITY);
    let _ = std::fs::write(SESSION, PRIORITY.to_string());
    Ok((Cores { front, servers }, Priority))
}

impl Drop for Priority {
    fn drop(&mut self) {
        // As it is for everybody; where it could not be raised there is nothing to lower.
        let _ = std::fs::write(SESSION, "0");
    }
}

/// Keeps the calling thread's core busy with work that yields to everything else, as long as this value lives.
///
/// Two cores of a virtual machine are often two threads of one: each is slower while the other works, by a
/// third or more. What is measured under this holds also while the proxy, or anybody, uses the first core.
pub(crate) struct Busy {
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Busy {
    pub(crate) fn start() -> Busy {
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let work = move || {
            // Without the lowest priority it would hold up the clients that measure.
            if setpriority_process(None, LOWEST).is_err() {
                return;
            }
            let mut x = 1_u64;
            while !seen.load(Ordering::Relaxed) {
                x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            }
        };
        Busy { done, thread: Some(std::thread::spawn(work)) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell.
            let _ = thread.join();
        }
    }
}

/// Addresses on loopback that nobody listens on now.
pub(crate) fn free_addresses<const N: usize>() -> Result<[SocketAddr; N], String> {
    let fault = |e: std::io::Error| format!("no free port on 127.0.0.1: {e}");
    // All are held until the last one is known, so that no two are the same.
    let mut held = Vec::with_capacity(N);
    let mut addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); N];
    for address in &mut addresses {
        let socket = TcpListener::bind(*address).map_err(fault)?;
        *address = socket.local_addr().map_err(fault)?;
        held.push(socket);
    }
    Ok(addresses)
}
