//! Listening sockets that the gateway does not open itself: from systemd, or from the process that it replaces.

use std::collections::BTreeMap;
use std::fs::File;

use weirgate_config::{ListenerName, Site};
use weirgate_listening::{Approval, Inherited, Origin, Predecessor, Socket, from_service_manager};

use crate::exit::say;

/// Role of the sockets that clients connect to.
pub(super) const LISTEN: &str = "listen";

/// Role of the socket of the admin API.
pub(super) const ADMIN: &str = "admin";

/// Sockets by the listeners of the policy.
pub(super) type Listening = BTreeMap<ListenerName, Vec<Socket>>;

/// Finds the sockets that were passed to this process, and the process that it replaces.
pub(super) fn find() -> Result<(Option<Predecessor>, Inherited), String> {
    let found = Predecessor::find().map_err(|e| format!("not started: the sockets of the running process: {e}"))?;
    match found {
        Some((predecessor, inherited)) => Ok((Some(predecessor), inherited)),
        None => Ok((None, from_service_manager().map_err(|why| format!("not started: {why}"))?)),
    }
}

/// Sorts the sockets by the addresses of `site`, read from `file`.
///
/// # Errors
/// The service manager passes a socket that the policy does not name. Clients would connect to it and wait for ever.
pub(super) fn sort(site: &Site, file: &str, inherited: &mut Inherited) -> Result<(Listening, Option<Socket>), String> {
    let names = || site.listeners.iter().map(|listener| &listener.name);
    let listening = names().map(|name| (name.clone(), inherited.take(LISTEN, name))).collect();
    let admin = site.admin.as_ref().and_then(|admin| inherited.take(ADMIN, &admin.address).pop());
    let left = inherited.left();
    match inherited.origin() {
        Origin::Predecessor => left.iter().for_each(|name| say(&format!("{file} no longer names `{name}`: closed"))),
        Origin::ServiceManager if left.is_empty() => {}
        Origin::ServiceManager => {
            let named: Vec<_> = names().map(ToString::to_string).collect();
            let admin = site.admin.as_ref().map(|admin| format!(", and `admin` {}", admin.address));
            return Err(format!(
                "not started: the service manager passes a socket on {}, which {file} does not name. `listen` names {}{}. \
                 The addresses must be the same, also `0.0.0.0` or `[::]`",
                left.join(", "),
                named.join(", "),
                admin.unwrap_or_default()
            ));
        }
    }
    Ok((listening, admin))
}

/// The state that the process with this number has left for this one.
pub(super) type Handed = Option<(u32, File)>;

/// Takes over from `predecessor`. Returns the message for the service manager, which the predecessor sends if it can,
/// and the state that the process has learned.
pub(super) fn take_over(predecessor: Predecessor) -> Result<(String, Handed), String> {
    let old = predecessor.process();
    let approval = predecessor.take_over().map_err(|e| format!("not started: taking over from process {old}: {e}"))?;
    Ok(match approval {
        Approval::Given(learned) => {
            say(&format!("took over from process {old}"));
            (String::new(), learned.map(|file| (old, file)))
        }
        Approval::Ended => {
            say(&format!("process {old} has ended: serving in its place"));
            (format!("MAINPID={}\nREADY=1", std::process::id()), None)
        }
    })
}
