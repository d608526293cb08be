//! Messages about signals: SIGHUP reloads, SIGTERM and SIGINT drain, a second one cuts.

use std::process::ExitCode;
use std::sync::Arc;

use weirgate_gateway::Signalled;

use super::{Running, count};
use crate::exit::{self, say, tell};

/// Waits until a signal or the admin API has ended the gateway.
pub(super) fn follow(running: Running) -> ExitCode {
    let Running { operations, log, admin, file } = running;
    let gateway = operations.gateway().clone();
    let mut cut = false;
    let followed = gateway.run_until_signalled(|signalled| match signalled {
        // Report readiness only now: until here a signal would have ended the process.
        Signalled::Obeyed => say("ready"),
        Signalled::Reloaded(result) => {
            let later = operations.follow(result.as_ref().ok().map(Arc::as_ref));
            match result {
                Ok(active_config) => {
                    let classes = count(active_config.site.policy.classes.len(), "class");
                    say(&format!(
                        "SIGHUP: {file} is in force: version {}, checksum {}, {classes}",
                        active_config.version, active_config.checksum
                    ));
                    later.iter().for_each(|field| {
                        say(&format!("`{field}` has changed: it takes effect at the next start"));
                    });
                }
                Err(error) => {
                    tell(&format!("{}\n", error.to_string().trim_end()));
                    let version = gateway.active_config().version;
                    say(&format!("SIGHUP: version {version} of {file} stays in force"));
                }
            }
        }
        Signalled::Draining => {
            let snapshot = gateway.control().snapshot();
            let deadline = gateway.active_config().site.drain_deadline.as_secs_f64();
            say(&format!(
                "told to stop: accepting no new requests. {} in flight and {} waiting have {deadline} s. A second \
                 signal stops at once",
                snapshot.outstanding, snapshot.waiting
            ));
        }
        Signalled::Cut => {
            cut = true;
            say("told to stop again: stopping at once");
        }
    });
    drop(admin);
    log.close();
    match followed {
        Ok(()) if cut => exit::fail("stopped; requests in flight were cut off"),
        Ok(()) => {
            say("stopped");
            ExitCode::SUCCESS
        }
        Err(error) => exit::fail(&format!("cannot follow signals: {error}")),
    }
}
