//! Listening sockets, how they pass from one process to another, and messages to the service manager.
//!
//! `address` names a socket, `socket` is one of either kind, and `file` opens Unix sockets. A process also gets its
//! listening sockets from systemd (`activation`) or from the process that it replaces (`predecessor`). In both cases it
//! gets the very sockets, not new ones on the same addresses: connections that wait in their queues are accepted by the
//! new process, and none is refused. `successor` is the other side: it starts the process that takes over. `notify`
//! tells the service manager which process is in charge. `deferred` has the kernel wait for the first bytes of a
//! connection.
//!
//! Source: `sd_listen_fds(3)`, `sd_notify(3)`, `unix(7)`. The exchange between predecessor and successor is ours:
//!
//! ```text
//! predecessor                                    successor
//!   starts it, with one end of a socket as its standard input
//!   weirgate handover 1 ──────────────────────────►
//!   socket NAME, with a descriptor (any number) ──►
//!   lent NAME, the same without its file ─────────►
//!   all ──────────────────────────────────────────►
//!                                                  reads its policy, starts its threads, accepts nothing
//!   ◄───────────────────────────────────────── ready
//!   go ───────────────────────────────────────────►
//!   drains                                         accepts
//! ```
//!
//! Up to `go` the predecessor serves as before, whatever happens to the successor.

mod activation;
mod address;
mod channel;
mod deferred;
mod file;
mod inherited;
mod notify;
mod predecessor;
mod socket;
mod successor;

pub use activation::from_service_manager;
pub use address::{Address, UNIX, abstract_name, unix_address};
pub use deferred::defer_accept;
pub use file::{FileAccess, SocketFile, group_id, user_id};
pub use inherited::{Inherited, Origin};
pub use notify::{monotonic_micros, notify};
pub use predecessor::{Approval, Predecessor};
pub use socket::Socket;
pub use successor::{Killer, Successor, Unready};
