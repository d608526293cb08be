//! Messages about signals, for people and for the service manager: SIGHUP reloads, SIGUSR2 hands over to a new process,
//! SIGTERM and SIGINT drain, a second one cuts.

use std::process::ExitCode;
use std::sync::Arc;

use weirgate_gateway::{ActiveConfig, Gateway, Phase, ReloadError, Signalled};
use weirgate_listening::monotonic_micros;
use weirgate_log::Level;

use super::{Running, count};
use crate::exit::{self, say};

/// Tells the service manager `state`, if one has asked for it.
pub(super) fn notify(state: &str) {
    if !state.is_empty()
        && let Err(error) = weirgate_listening::notify(state)
    {
        weirgate_log::say(
            Level::Warning,
            &format!("the service manager cannot be told {}: {error}", state.replace('\n', " ")),
        );
    }
}

/// Waits until a signal or the admin API has ended the gateway.
pub(super) fn follow(running: Running) -> ExitCode {
    let Running { operations, log, telemetry, succession, signals, file } = running;
    let gateway = operations.gateway().clone();
    let (mut cut, mut in_charge) = (false, true);
    let successors: Arc<dyn weirgate_gateway::Succession> = Arc::clone(&succession) as _;
    // A process that drains is not the one that the service manager asks about.
    let notify_serving = |state: &str| {
        if gateway.phase() == Phase::Ready {
            notify(state);
        }
    };
    signals.follow(&gateway, &successors, |signalled| match signalled {
        Signalled::Reloading => notify_serving(&reloading()),
        Signalled::Reloaded(result) => {
            let later = operations.follow(result.as_ref().ok().map(Arc::as_ref));
            reloaded(&gateway, &file, result, &later);
            notify_serving("READY=1");
        }
        Signalled::HandingOver => {
            say("SIGUSR2: starting a new process to take over");
            notify_serving(&reloading());
        }
        Signalled::HandedOver(Ok(process)) => {
            in_charge = false;
            say(&format!("process {process} has taken over: accepting no new connections. {}", remaining(&gateway)));
        }
        Signalled::HandedOver(Err(why)) => {
            let serving = if gateway.phase() == Phase::Ready { ". This process serves on" } else { "" };
            weirgate_log::say(Level::Error, &format!("not handed over: {why}{serving}"));
            notify_serving("READY=1");
        }
        Signalled::Draining => {
            if in_charge {
                notify("STOPPING=1");
            }
            say(&format!(
                "told to stop: accepting no new requests. {}. A second signal stops at once",
                remaining(&gateway)
            ));
        }
        Signalled::Cut => {
            cut = true;
            say("told to stop again: stopping at once");
        }
    });
    gateway.keep_learned();
    succession.end_admin();
    log.close();
    telemetry.close();
    if cut {
        return exit::fail("stopped; requests in flight were cut off");
    }
    say("stopped");
    ExitCode::SUCCESS
}

fn reloading() -> String {
    format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_micros())
}

/// Returns the work that a drain waits for, and its time.
fn remaining(gateway: &Gateway) -> String {
    let snapshot = gateway.control().snapshot();
    let deadline = gateway.active_config().site.drain_deadline.as_secs_f64();
    format!("{} in flight and {} waiting have {deadline} s", snapshot.outstanding, snapshot.waiting)
}

/// Reports a reload. The fields `later` take effect at the next start.
fn reloaded(gateway: &Gateway, file: &str, result: Result<Arc<ActiveConfig>, ReloadError>, later: &[&'static str]) {
    match result {
        Ok(active_config) => {
            let classes = count(active_config.site.policy.classes.len(), "class");
            say(&format!(
                "SIGHUP: {file} is in force: version {}, checksum {}, {classes}",
                active_config.version, active_config.checksum
            ));
            later.iter().for_each(|field| say(&format!("`{field}` has changed: it takes effect at the next start")));
        }
        Err(error) => {
            weirgate_log::located(Level::Error, &error.to_string());
            let version = gateway.active_config().version;
            weirgate_log::say(Level::Error, &format!("SIGHUP: version {version} of {file} stays in force"));
        }
    }
}
