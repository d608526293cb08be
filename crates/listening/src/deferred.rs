//! Connections that are accepted with their first bytes (`TCP_DEFER_ACCEPT` in `tcp(7)`).
//!
//! The kernel keeps a connection to itself until its client has sent something. A client of HTTP speaks first, so a
//! process that accepts it earlier only waits for it: it wakes up twice, and has the connection watched in between.
//! A client that stays silent is handed over after the first retransmission of the handshake.
//!
//! This is `unsafe` code, because no library that we know of sets the option.
#![expect(unsafe_code, reason = "the standard library's function for it is unstable")]

use std::ffi::c_int;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;

/// Seconds for which the kernel waits for the first bytes. It counts in retransmissions, and the first one follows
/// after one second. Whoever connects and stays silent is a matter of the gateway's own limits, so the kernel keeps it
/// no longer than it must.
const SECONDS: c_int = 1;

/// Lets connections to `listener` be accepted with their first bytes.
///
/// # Errors
/// That of the system.
pub fn defer_accept(listener: &TcpListener) -> io::Result<()> {
    let (fd, name, value) = (listener.as_raw_fd(), libc::TCP_DEFER_ACCEPT, SECONDS);
    let size = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the descriptor is open for as long as `listener` is borrowed. The kernel reads `size` bytes of `value`
    // and keeps no pointer.
    let failed = unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, name, (&raw const value).cast(), size) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_waits_for_the_first_bytes_for_a_second() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        defer_accept(&listener).expect("it is set");
        let (mut value, mut size): (c_int, _) = (0, size_of::<c_int>() as libc::socklen_t);
        let (fd, name) = (listener.as_raw_fd(), libc::TCP_DEFER_ACCEPT);
        // SAFETY: the descriptor is open, and both pointers are to variables that live longer than the call.
        let failed = unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, name, (&raw mut value).cast(), &raw mut size) };
        assert_eq!((failed, value), (0, SECONDS));
    }
}
