//! Hand-over to a new process at SIGUSR2. It runs the program that is installed now, with the same arguments.

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weirgate_gateway::Gateway;
use weirgate_gateway::admin::AdminServer;
use weirgate_listening::{Inherited, Killer, Successor};

use super::signals;
use super::sockets::{ADMIN, LISTEN};

/// Maximum time for a new process to become ready. It reads the policy and its page table and opens new listeners,
/// which takes less than a second. A process that hangs must not block the next attempt for long.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Starts processes that take over.
pub(super) struct Succession {
    gateway: Gateway,
    admin: Mutex<Option<AdminServer>>,
    starting: Mutex<Starting>,
}

/// The process that is being started.
#[derive(Default)]
struct Starting {
    killer: Option<Killer>,
    /// Whether this process was told to stop.
    abandoned: bool,
}

impl Succession {
    pub(super) fn new(gateway: Gateway, admin: Option<AdminServer>) -> Succession {
        Succession { gateway, admin: Mutex::new(admin), starting: Mutex::default() }
    }

    /// Ends the admin API.
    pub(super) fn end_admin(&self) {
        drop(lock(&self.admin).take());
    }

    /// Calls `change` with the admin API, if there is one.
    fn with_admin(&self, change: impl FnOnce(&mut AdminServer)) {
        if let Some(admin) = &mut *lock(&self.admin) {
            change(admin);
        }
    }

    /// Starts the new process, and lets `killer` end it.
    fn start(&self) -> Result<Successor, String> {
        let command = command()?;
        let program = command.get_program().display().to_string();
        let successor = Successor::start(command, READY_WITHIN).map_err(|e| format!("{program}: {e}"))?;
        let mut starting = lock(&self.starting);
        if starting.abandoned {
            return Err("told to stop".into());
        }
        starting.killer = Some(successor.killer());
        Ok(successor)
    }
}

impl weirgate_gateway::Succession for Succession {
    fn hand_over(&self) -> Result<u32, String> {
        let hand_over = self.gateway.begin_hand_over().map_err(|e| e.to_string())?;
        let listening = hand_over.sockets().map_err(|e| e.to_string())?;
        let successor = self.start()?;
        let process = successor.process();
        let admin = {
            let admin = lock(&self.admin);
            let admin = admin.as_ref().and_then(AdminServer::socket);
            admin.map(|(address, socket)| Ok((Inherited::name(ADMIN, address), socket.try_clone()?))).transpose()
        };
        let admin = admin.map_err(|e: std::io::Error| e.to_string())?;
        let listening = listening.into_iter().map(|(named, socket)| (Inherited::name(LISTEN, named), socket));
        let ready = successor.ready(listening.chain(admin), READY_WITHIN);
        lock(&self.starting).killer = None;
        ready.map_err(|e| format!("process {process}: {e}"))?;
        let learned = self.gateway.learned().to_json();
        // Before it goes, because a signal may end this process right afterwards.
        let go = || {
            self.with_admin(AdminServer::leave);
            successor.go(learned.as_bytes()).inspect_err(|_| self.with_admin(AdminServer::take_back))
        };
        hand_over.finish(go).map_err(|e| format!("process {process}: {e}"))?;
        signals::notify(&format!("MAINPID={process}\nREADY=1"));
        self.with_admin(AdminServer::release);
        Ok(process)
    }

    fn abandon(&self) {
        let mut starting = lock(&self.starting);
        starting.abandoned = true;
        if let Some(killer) = starting.killer.take() {
            killer.kill();
        }
    }
}

/// Returns the command that started this process. The program is looked up again, so that a new version at its place is
/// used, also behind a symbolic link.
fn command() -> Result<Command, String> {
    let mut words = std::env::args_os();
    let program = words.next().ok_or("the name of the program is not known")?;
    let mut command = Command::new(program);
    // The descriptors that they announce are not passed on.
    command.args(words).env_remove("LISTEN_PID").env_remove("LISTEN_FDS").env_remove("LISTEN_FDNAMES");
    Ok(command)
}

/// Locks `mutex`, even after a panic. These locks protect plain data, which stays usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
