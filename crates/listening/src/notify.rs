//! Messages to the service manager (`sd_notify(3)`): ready, reloading, stopping, another main process.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// Sends `state`, lines such as `READY=1`, to the service manager, if one has asked for it with `NOTIFY_SOCKET`.
///
/// # Errors
/// The message cannot be sent.
pub fn notify(state: &str) -> io::Result<()> {
    match std::env::var("NOTIFY_SOCKET") {
        Ok(path) if !path.is_empty() => send(&path, state),
        _ => Ok(()),
    }
}

fn send(path: &str, state: &str) -> io::Result<()> {
    // A leading `@` stands for the zero byte of a name that is not in the file system.
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

/// Returns the time that `RELOADING=1` must carry as `MONOTONIC_USEC`.
pub fn monotonic_micros() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_names_are_reached() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let abstract_name = format!("weirgate-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        for (manager, name) in [
            (UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap().to_owned()),
            (UnixDatagram::bind_addr(&address).unwrap(), format!("@{abstract_name}")),
        ] {
            send(&name, "READY=1\n").unwrap();
            let mut bytes = [0; 64];
            let read = manager.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..read], b"READY=1\n");
        }
    }
}
