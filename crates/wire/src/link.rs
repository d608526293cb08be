//! Sealed lines between an agent and the coordinator of Cluster Reserves: both sides are authenticated, and
//! messages cannot be changed.
//!
//! A peer that can impersonate a node influences the shares of other nodes. So both sides prove in the first
//! three lines that they have the node's token, which is never sent itself: an HMAC-SHA256 (RFC 2104) over
//! the role, a nonce from each side and the node's name. Every later line is `<hex MAC> <JSON>`. The MAC
//! covers its direction, its number from 0 on and the JSON, with a key derived from the token, both nonces
//! and the name. So a line cannot be changed, repeated, left out, sent back, or moved to another connection
//! or another node. It can be read, because shares and use are not secret. Without a token, which both sides
//! only allow on loopback, MACs are empty and lines are bare JSON.
//!
//! ```text
//! agent                                  coordinator
//! Hello { version, node, nonce }    →
//!                                   ←    Challenge { nonce, mac }    or Refused { why }
//! Proof { mac }                     →
//! Report …                          ↔    Shares …
//! ```
//!
//! Sans-IO: lines are passed in and out as bytes, and random bytes are passed in. `reserves_wire` has the
//! messages. [`Lines`] splits a stream into lines and limits their length.

use std::fmt;
use std::marker::PhantomData;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Serialize, de::DeserializeOwned};
use sha2::Sha256;

use crate::reserves_wire::{FromAgent, FromCoordinator, MAX_LINE, WIRE_VERSION};
use crate::token::Token;

/// 16 random bytes, fresh for every connection. Two equal ones are unlikely in a thousand years of
/// connections.
pub type Nonce = [u8; 16];

/// Maximum number of characters of untrusted text that go into an error.
const MAX_QUOTED: usize = 200;

/// An agent's side of an established connection.
pub type AgentLink = Link<FromAgent, FromCoordinator>;

/// The coordinator's side of an established connection.
pub type CoordinatorLink = Link<FromCoordinator, FromAgent>;

/// One side of an established connection. It seals sent lines and opens received ones.
pub struct Link<Sent, Received> {
    key: Option<Key>,
    sends: Direction,
    receives: Direction,
    sent: u64,
    received: u64,
    messages: PhantomData<fn(Sent) -> Received>,
}

/// Error after which a connection cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// The line is not of the expected kind.
    Malformed(String),
    /// The other side does not have the token, or the line was changed, repeated or lost.
    Unproven(&'static str),
    /// The other side uses another version.
    Version(u32),
    /// The coordinator refuses, for this reason.
    Refused(String),
    /// A line is longer than [`MAX_LINE`].
    TooLong,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkError::Malformed(what) => write!(f, "{what}"),
            LinkError::Unproven(what) => f.write_str(what),
            LinkError::Version(version) => {
                write!(
                    f,
                    "the other side speaks version {version}, this one {WIRE_VERSION}: run the same Weirgate on both"
                )
            }
            LinkError::Refused(why) => write!(f, "the coordinator refuses: {why}"),
            LinkError::TooLong => write!(f, "a line is longer than {MAX_LINE} bytes"),
        }
    }
}

impl std::error::Error for LinkError {}

/// Direction of a line. It is part of the sealed data, so that no line can be sent back.
#[derive(Clone, Copy)]
enum Direction {
    ToCoordinator = b'a' as isize,
    ToAgent = b'm' as isize,
}

/// A secret of 256 bits.
type Key = [u8; 32];

fn mac(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    // HMAC accepts keys of any length.
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes every key");
    for part in parts {
        // The lengths distinguish ("ab", "c") from ("a", "bc"). A line is far shorter than 4 GiB.
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac
}

/// The data of a connection that both sides know before either is authenticated.
struct Opening {
    token: Option<Vec<u8>>,
    node: String,
    agent: Nonce,
    coordinator: Nonce,
}

impl Opening {
    fn mac(&self, purpose: &str) -> Option<Hmac<Sha256>> {
        let token = self.token.as_deref()?;
        Some(mac(token, &[purpose.as_bytes(), &self.agent, &self.coordinator, self.node.as_bytes()]))
    }

    /// Returns the proof in hex, or an empty text without a token.
    fn proof(&self, role: &str) -> String {
        self.mac(role).map_or(String::new(), |mac| hex(&mac.finalize().into_bytes()))
    }

    fn check(&self, role: &str, proof: &str) -> Result<(), LinkError> {
        match (self.mac(role), proof.is_empty()) {
            (None, true) => Ok(()),
            (None, false) => Err(LinkError::Unproven("the other side asks for a token, and this side has none")),
            (Some(_), true) => Err(LinkError::Unproven("the other side has no token, and this side asks for one")),
            (Some(mac), false) => {
                let wrong = LinkError::Unproven("the other side has another token for this node");
                let given: Key = unhex(proof.as_bytes()).ok_or(wrong.clone())?;
                mac.verify_slice(&given).map_err(|_| wrong)
            }
        }
    }

    fn link<Sent, Received>(&self, sends: Direction, receives: Direction) -> Link<Sent, Received> {
        let key = self.mac("session").map(|mac| mac.finalize().into_bytes().into());
        Link { key, sends, receives, sent: 0, received: 0, messages: PhantomData }
    }
}

/// An agent that has sent its greeting and waits for the coordinator's challenge.
pub struct Greeted(Opening);

/// A coordinator that has sent its challenge and waits for the agent's proof.
pub struct Challenged(Opening);

/// An agent's first line, as the coordinator reads it. Nothing in it is authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The name of the node that the agent claims to run on.
    pub node: String,
    nonce: Nonce,
}

impl AgentLink {
    /// Opens a connection as the agent of `node`. Also returns the first line to send.
    #[must_use]
    pub fn agent(token: Option<&Token>, node: &str, nonce: Nonce) -> (Greeted, String) {
        let token = token.map(|token| token.key().to_vec());
        let hello = FromAgent::Hello { version: WIRE_VERSION, node: node.to_owned(), nonce: hex(&nonce) };
        (Greeted(Opening { token, node: node.to_owned(), agent: nonce, coordinator: Nonce::default() }), plain(&hello))
    }
}

impl Greeted {
    /// Reads the coordinator's challenge. Returns the connection, and the line to send to complete it.
    ///
    /// # Errors
    /// Returns an error if the coordinator refuses or does not have the token.
    pub fn challenged(self, line: &[u8]) -> Result<(AgentLink, String), LinkError> {
        let Greeted(mut opening) = self;
        match read(line)? {
            FromCoordinator::Challenge { nonce, mac } => {
                opening.coordinator = unhex(nonce.as_bytes()).ok_or_else(no_nonce)?;
                opening.check("coordinator", &mac)?;
            }
            FromCoordinator::Refused { why } => return Err(LinkError::Refused(quoted(&why))),
            FromCoordinator::Shares { .. } => {
                return Err(LinkError::Malformed("shares came before a challenge".into()));
            }
        }
        let proof = FromAgent::Proof { mac: opening.proof("agent") };
        Ok((opening.link(Direction::ToCoordinator, Direction::ToAgent), plain(&proof)))
    }
}

impl CoordinatorLink {
    /// Reads an agent's first line.
    ///
    /// # Errors
    /// Returns an error if it is not a greeting, or of another version.
    pub fn greeting(line: &[u8]) -> Result<Greeting, LinkError> {
        match read(line)? {
            FromAgent::Hello { version: WIRE_VERSION, node, nonce } => {
                Ok(Greeting { node, nonce: unhex(nonce.as_bytes()).ok_or_else(no_nonce)? })
            }
            FromAgent::Hello { version, .. } => Err(LinkError::Version(version)),
            _ => Err(LinkError::Malformed("the first line is no greeting".into())),
        }
    }

    /// Answers an agent's greeting, with the token of the node that it names. Also returns the line to
    /// send.
    #[must_use]
    pub fn coordinator(token: Option<&Token>, greeting: &Greeting, nonce: Nonce) -> (Challenged, String) {
        let token = token.map(|token| token.key().to_vec());
        let opening = Opening { token, node: greeting.node.clone(), agent: greeting.nonce, coordinator: nonce };
        let challenge = FromCoordinator::Challenge { nonce: hex(&nonce), mac: opening.proof("coordinator") };
        (Challenged(opening), plain(&challenge))
    }

    /// Returns the line that refuses an agent that is not authenticated yet.
    #[must_use]
    pub fn refusal(why: &str) -> String {
        plain(&FromCoordinator::Refused { why: why.to_owned() })
    }
}

impl Challenged {
    /// Reads the agent's proof. Returns the connection.
    ///
    /// # Errors
    /// Returns an error if the agent does not have the token.
    pub fn proven(self, line: &[u8]) -> Result<CoordinatorLink, LinkError> {
        let FromAgent::Proof { mac } = read(line)? else {
            return Err(LinkError::Malformed("the second line is no proof".into()));
        };
        self.0.check("agent", &mac)?;
        Ok(self.0.link(Direction::ToAgent, Direction::ToCoordinator))
    }
}

impl<Sent: Serialize, Received: DeserializeOwned> Link<Sent, Received> {
    /// Returns the sealed line for `message`, with its line end. Lines must be sent in the order in which
    /// they were sealed.
    #[must_use]
    pub fn seal(&mut self, message: &Sent) -> String {
        let line = plain(message);
        let Some(key) = &self.key else { return line };
        let json = line.trim_end();
        let mac = mac(key, &[&[self.sends as u8], &self.sent.to_be_bytes(), json.as_bytes()]);
        self.sent += 1;
        format!("{} {json}\n", hex(&mac.finalize().into_bytes()))
    }

    /// Returns the message in a line without its line end. After an error the connection is unusable.
    ///
    /// # Errors
    /// Returns an error if the line is not the other side's next one, or not a message.
    pub fn open(&mut self, line: &[u8]) -> Result<Received, LinkError> {
        let Some(key) = &self.key else { return read(line) };
        let unproven = LinkError::Unproven("a line has a wrong seal: it was changed, repeated or lost");
        let (given, json) = line.split_at_checked(64).ok_or(unproven.clone())?;
        let json = json.strip_prefix(b" ").ok_or(unproven.clone())?;
        let given: Key = unhex(given).ok_or(unproven.clone())?;
        let mac = mac(key, &[&[self.receives as u8], &self.received.to_be_bytes(), json]);
        mac.verify_slice(&given).map_err(|_| unproven)?;
        self.received += 1;
        read(json)
    }
}

impl<Sent, Received> fmt::Debug for Link<Sent, Received> {
    /// Formats the link without its key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sealed = self.key.is_some();
        f.debug_struct("Link").field("sealed", &sealed).field("sent", &self.sent).finish_non_exhaustive()
    }
}

impl fmt::Debug for Greeted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Greeted(…)")
    }
}

impl fmt::Debug for Challenged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Challenged(…)")
    }
}

/// Splits a stream of bytes into lines of at most [`MAX_LINE`] bytes.
#[derive(Debug, Default)]
pub struct Lines {
    bytes: Vec<u8>,
    /// Number of bytes already returned.
    taken: usize,
    /// Number of bytes already searched for a line end.
    searched: usize,
}

impl Lines {
    /// Adds bytes that were read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.searched -= self.taken;
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next line without its line end, if it is complete.
    ///
    /// # Errors
    /// Returns an error if the line is too long. Nothing more can be read from this stream.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, LinkError> {
        let end = self.bytes[self.searched..].iter().position(|&b| b == b'\n').map(|at| self.searched + at);
        let length = end.map_or(self.bytes.len(), |end| end + 1) - self.taken;
        if length > MAX_LINE {
            return Err(LinkError::TooLong);
        }
        let Some(end) = end else {
            self.searched = self.bytes.len();
            return Ok(None);
        };
        let line = self.taken..end;
        (self.taken, self.searched) = (end + 1, end + 1);
        Ok(Some(&self.bytes[line]))
    }
}

/// Formats a message as a line with its line end.
fn plain<T: Serialize>(message: &T) -> String {
    // The messages consist of structs, numbers and texts, which JSON can represent.
    let mut line = serde_json::to_string(message).expect("messages are JSON");
    line.push('\n');
    line
}

fn read<T: DeserializeOwned>(line: &[u8]) -> Result<T, LinkError> {
    serde_json::from_slice(line)
        .map_err(|error| LinkError::Malformed(format!("a line is no message: {}", quoted(&error.to_string()))))
}

fn no_nonce() -> LinkError {
    LinkError::Malformed("a nonce is not 16 bytes in hex".into())
}

/// Cuts a text and removes characters that could control a terminal.
fn quoted(text: &str) -> String {
    text.chars()
        .take(MAX_QUOTED)
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]))
        .collect()
}

/// Decodes exactly `N` bytes of lower-case hex.
fn unhex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
#[path = "tests/link.rs"]
mod tests;
