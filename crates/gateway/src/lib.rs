//! The data plane and the admin plane of Weirgate: a driver of the engine over real sockets.
//!
//! A request passes the stages *classify → admit → queue → release → dispatch → forward → observe*.
//! `docs/request-life.md` describes them with file names. All decisions are made by `weirgate-engine`. This
//! crate moves bytes, keeps time and carries out the engine's decisions. One thread per core runs a
//! single-threaded runtime with its own listening sockets and its own connections to the nodes. The threads
//! share one engine behind one lock ([`Control`]).
//!
//! Start with [`Gateway::start`].
//!
//! # Modules
//! - The whole: `gateway` (phases), `threads` (commands to them), `worker` (one thread), `hand_over`, `control` (the
//!   engine behind its lock), `active_config` (a configuration in force), `clock`, `timer`, `kernel_timer`, `memory`,
//!   `signals`.
//! - A client connection: `listener`, `tls_files` (certificates), `connection` (its task), `handshake` (TLS), `io`
//!   (its transport), `client_conn` (its state), `request_stream` (one request in, its response out), `client_stream`
//!   (that over HTTP/1.1), `http2` (that over HTTP/2), `stream_state`, `received_body`, `body_pace`.
//! - A request: `exchange` (the stages in order), then `request`, `path`, `client`, `trace` and `classify`, `waiting`,
//!   `permit`, `forward`, `transfer`, `upstream`, `hops`, `forwarded` and `header_edits` (heads for the next hop),
//!   `tunnel`, `websocket`, and `reply`, `refusal` and `grpc` for the gateway's own answers.
//! - Work that no request waits for: `watch_thread`, and on it the requests of the gateway itself: `polling`, `health`,
//!   `collector`.
//! - `learned`: what was learned, for another process: at a hand-over, in a file, from another gateway.
//! - `pages`: the page table, with the costs of routes and their learning.
//! - Observation: `record`, `metrics`, `counters`, `access_log`, `telemetry`, `events` (changes that an operator acts
//!   on).
//! - `admin`: the admin API on its own thread.

mod accept;
pub mod access_log;
mod active_config;
pub mod admin;
mod allocator;
mod body_pace;
pub mod classify;
mod client;
mod client_conn;
mod client_stream;
mod clock;
mod collector;
mod config_thread;
mod connect_rate;
mod connection;
mod control;
mod counters;
mod discovery;
mod events;
#[cfg(test)]
mod examples;
mod exchange;
mod find_class;
mod forward;
mod forwarded;
mod gateway;
mod grpc;
mod hand_over;
mod handshake;
mod header_edits;
mod health;
mod hops;
mod http2;
mod io;
mod kernel_timer;
mod learned;
mod listener;
mod memory;
pub mod metrics;
mod pages;
mod path;
mod permit;
mod places;
mod polling;
mod proxy_protocol;
mod received_body;
mod record;
mod refusal;
mod reply;
mod request;
mod request_stream;
mod rollout;
mod roster;
mod signals;
mod site;
mod socket;
mod stream_state;
pub mod tap;
pub mod telemetry;
#[cfg(test)]
mod tests;
mod threads;
mod timer;
mod tls_files;
mod trace;
mod transfer;
mod tunnel;
mod upstream;
mod visitor;
mod waiting;
mod watch_thread;
mod websocket;
mod worker;

pub use active_config::{ActiveConfig, Endpoint, ReloadError, ReloadSource, Resolve};
pub use allocator::give_back_by;
pub use client::Origin;
pub use clock::Clock;
pub use control::{Control, Held};
pub use counters::Counters;
pub use gateway::{Gateway, Phase};
pub use hand_over::{HandOver, HandOverError};
pub use handshake::{ClientTls, HandshakeFailure, Handshakes};
pub use places::ClassPlaces;
pub use proxy_protocol::{HeaderFailure, HeaderFailures};
pub use record::{AccessRecord, ClassIndex, Ending, Observer, Protocol};
pub use request::Request;
pub use signals::{Signalled, Signals, Succession};
pub use trace::TraceId;
pub use visitor::Visitor;
