//! Number of connections of a server, from the kernel: for servers without a status page.
//!
//! `/proc/net/tcp` and `tcp6` have a line for each socket of this machine (more precisely, of this network
//! namespace). To produce them the kernel walks its whole table of sockets. This takes milliseconds even if
//! there are few sockets, so it is not done in every window. Idle connections count like connections with a
//! request being served, which a status page would distinguish.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};

/// Code of the state "established".
const ESTABLISHED: &str = "01";

/// Returns the number of established connections to `port` of this machine.
///
/// # Errors
/// The kernel does not provide the table.
pub fn connections(port: u16) -> Result<u32, String> {
    // The table may change while it is read, and then a line may occur twice.
    let mut seen = BTreeSet::new();
    for name in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let file = match File::open(name) {
            // The machine has no IPv6.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            file => file.map_err(|error| format!("{name}: {error}"))?,
        };
        let lines = BufReader::new(file).lines().map_while(Result::ok);
        seen.extend(lines.filter_map(|line| connection(&line, port)));
    }
    Ok(u32::try_from(seen.len()).unwrap_or(u32::MAX))
}

/// Returns the two addresses of a line of the table if it is a connection to `port`. The format of a line is
/// `sl: local_address:port remote_address:port state …`.
fn connection(line: &str, port: u16) -> Option<String> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, remote, state) = (words.next()?, words.next()?, words.next()?);
    let of = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
    (of == port && state == ESTABLISHED).then(|| format!("{local} {remote}"))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn lines_are_told_apart() {
        let line = "   1: 0100007F:0050 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 1 1";
        assert!(connection(line, 80).is_some() && connection(line, 50_000).is_none(), "the server's side counts");
        assert_eq!(connection(&line.replace(" 01 ", " 0A "), 80), None, "a listening socket is none");
        assert_eq!(connection("  sl  local_address rem_address   st tx_queue rx_queue", 80), None);
        assert_eq!(connection("", 80), None);
    }

    #[test]
    fn real_connections_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it has one");
        assert_eq!(connections(address.port()), Ok(0));
        let clients: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(address).expect("it accepts")).collect();
        assert_eq!(connections(address.port()), Ok(3));
        drop(clients);
    }
}
