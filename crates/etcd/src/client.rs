//! Calls to etcd, each with one deadline.
//!
//! If etcd has users, a call without a valid token logs in first. The name in a certificate does not count: etcd's
//! gateway does not pass it on.
//!
//! A call goes to the member that answered last, and to the next one if that fails. All reads are linearizable, which
//! is etcd's default.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use weirgate_clock::within;
use weirgate_http_client::{Address, Connection, Error as HttpError, Limits, Request};

use crate::answer::{Entry, Failure, Lease, LogIn, Range, Streamed, Transaction};

/// Largest value that is read or written, in bytes: a policy of 60 KiB as JSON. Everything else is much shorter.
pub const MAX_VALUE: usize = 128 << 10;

/// Largest answer, in bytes: a thousand entries with values of a few hundred bytes, in base64.
const MAX_ANSWER: u64 = 1 << 20;

/// Most characters of an error of etcd that are passed on.
const MAX_REASON: usize = 200;

/// A client of one cluster of etcd.
#[derive(Debug)]
pub struct Client {
    members: Vec<(String, Connection)>,
    /// The member that is asked first.
    next: usize,
    deadline: Duration,
    /// User, and the file with the password.
    user: Option<(String, PathBuf)>,
    /// Proof that the user has logged in.
    token: Option<LogIn>,
}

/// A condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard<'a> {
    /// The key was last written at this revision. 0: it does not exist.
    Unchanged(&'a str, u64),
    /// The key exists since this revision, whatever was written to it since.
    Created(&'a str, u64),
}

impl Guard<'_> {
    fn key(&self) -> &str {
        let (Guard::Unchanged(key, _) | Guard::Created(key, _)) = self;
        key
    }

    fn comparison(&self) -> Value {
        let (target, field, revision) = match self {
            Guard::Unchanged(_, revision) => ("MOD", "mod_revision", revision),
            Guard::Created(_, revision) => ("CREATE", "create_revision", revision),
        };
        let key = encoded(self.key().as_bytes());
        json!({ "key": key, "target": target, "result": "EQUAL", field: revision.to_string() })
    }
}

/// Why a call has no answer.
#[derive(Debug)]
pub enum Error {
    /// No member of etcd answered before the deadline. The last one failed for this reason.
    Unreachable(String),
    /// etcd refused, for this reason.
    Refused(String),
    /// The answer is not one of etcd's.
    NotUnderstood,
    /// The password cannot be read from this file.
    NoPassword(PathBuf, std::io::Error),
    /// A value is larger than [`MAX_VALUE`], or there are more entries than were asked for.
    TooLarge,
    /// This key of an election has no lease, so no process that stood for election has written it.
    NoLease(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unreachable(why) => write!(f, "etcd does not answer: {why}"),
            Error::Refused(why) => write!(f, "etcd refuses: {why}"),
            Error::NotUnderstood => f.write_str("the answer is not one of etcd's: is another server at its address?"),
            Error::NoPassword(file, error) => write!(f, "{}: {error}", file.display()),
            Error::NoLease(key) => {
                write!(
                    f,
                    "{key} has no lease, so no gateway wrote it, and none can be elected: delete that key of etcd"
                )
            }
            Error::TooLarge => {
                f.write_str("etcd holds more than was written by gateways: does another program use the prefix?")
            }
        }
    }
}

impl std::error::Error for Error {}

impl Client {
    /// A client of etcd's `members`. A call takes at most `deadline`.
    pub fn new(members: Vec<Address>, deadline: Duration) -> Client {
        let members = members.into_iter().map(|member| (member.to_string(), Connection::new(member))).collect();
        Client { members, next: 0, deadline, user: None, token: None }
    }

    /// Logs in as `user`, whose password is in this file. The file is read at each log-in.
    #[must_use]
    pub fn with_user(self, user: Option<(String, PathBuf)>) -> Client {
        Client { user, ..self }
    }

    /// The entry of `key`.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn get(&mut self, key: &str) -> Result<Option<Entry>, Error> {
        let range: Range = self.call("/v3/kv/range", &json!({ "key": encoded(key.as_bytes()) })).await?;
        Ok(checked(range, 1)?.pop())
    }

    /// The entries of all keys that begin with `prefix`, at most `limit`.
    ///
    /// # Errors
    /// There is no answer, or there are more.
    pub async fn list(&mut self, prefix: &str, limit: usize) -> Result<Vec<Entry>, Error> {
        let mut end = prefix.as_bytes().to_vec();
        // The first key after all with the prefix. Prefixes are ASCII, so no byte is the last one.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        let asked =
            json!({ "key": encoded(prefix.as_bytes()), "range_end": encoded(&end), "limit": limit.to_string() });
        checked(self.call("/v3/kv/range", &asked).await?, limit)
    }

    /// Writes `value` to `key` if all `guards` hold, bound to a lease if there is one. Returns the revision of the
    /// write, or `None` if a guard does not hold.
    ///
    /// # Errors
    /// There is no answer. It may have been written, or may be later: a member of etcd that hung carries out a call
    /// when it goes on, although another member has answered meanwhile. So guard each write by [`Guard::Unchanged`], as
    /// [`Self::replace`] does.
    pub async fn write(
        &mut self,
        guards: &[Guard<'_>],
        key: &str,
        value: &[u8],
        lease: Option<u64>,
    ) -> Result<Option<u64>, Error> {
        if value.len() > MAX_VALUE {
            return Err(Error::TooLarge);
        }
        let put = json!({ "request_put": {
            "key": encoded(key.as_bytes()), "value": encoded(value), "lease": lease.unwrap_or(0).to_string(),
        }});
        self.transaction(guards, put).await
    }

    /// Writes `value` to `key` if that was last written at revision `last` (0: never), and if `guard` holds. Returns
    /// the revision of the write, or `None` if `key` has another value by now, or `guard` does not hold.
    ///
    /// Repeat it with the same `last` if there is no answer. A copy that is carried out late changes nothing, because
    /// the first one has changed `key`.
    ///
    /// # Errors
    /// There is no answer. It may have been written.
    pub async fn replace(
        &mut self,
        guard: Option<Guard<'_>>,
        key: &str,
        last: u64,
        value: &[u8],
    ) -> Result<Option<u64>, Error> {
        let guards: Vec<Guard<'_>> = guard.into_iter().chain([Guard::Unchanged(key, last)]).collect();
        if let Some(revision) = self.write(&guards, key, value, None).await? {
            return Ok(Some(revision));
        }
        // A copy of this call may have been carried out before. It was that only if the guard holds after this look.
        let there = self.get(key).await?.filter(|entry| entry.value == value);
        match guard {
            Some(guard) if !self.holds(guard).await? => Ok(None),
            _ => Ok(there.map(|entry| entry.mod_revision)),
        }
    }

    /// Whether `guard` holds now, as a majority of etcd's members knows.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn holds(&mut self, guard: Guard<'_>) -> Result<bool, Error> {
        // etcd answers a transaction without operations from its own copy, which may be old. With one read in it, it
        // asks a majority first.
        let read = json!({ "request_range": { "key": encoded(guard.key().as_bytes()) } });
        Ok(self.transaction(&[guard], read).await?.is_some())
    }

    async fn transaction(&mut self, guards: &[Guard<'_>], success: Value) -> Result<Option<u64>, Error> {
        let compare: Vec<Value> = guards.iter().map(Guard::comparison).collect();
        let answer: Transaction = self.call("/v3/kv/txn", &json!({ "compare": compare, "success": [success] })).await?;
        Ok(answer.succeeded.then_some(answer.header.revision))
    }

    /// Makes a lease. etcd deletes the keys on it when it was not kept alive for `ttl`, which it may lengthen.
    ///
    /// # Errors
    /// There is no answer. There may be a lease, which then ends by itself.
    pub async fn grant(&mut self, ttl: Duration) -> Result<u64, Error> {
        let lease: Lease = self.call("/v3/lease/grant", &json!({ "TTL": ttl.as_secs().max(1).to_string() })).await?;
        if lease.id == 0 { Err(Error::NotUnderstood) } else { Ok(lease.id) }
    }

    /// Keeps a lease alive. Returns whether it still exists.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn keep_alive(&mut self, lease: u64) -> Result<bool, Error> {
        let answer: Streamed<Lease> = self.call("/v3/lease/keepalive", &json!({ "ID": lease.to_string() })).await?;
        Ok(answer.result.ttl > 0)
    }

    /// Ends a lease and deletes the keys on it.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn revoke(&mut self, lease: u64) -> Result<(), Error> {
        let _: Value = self.call("/v3/lease/revoke", &json!({ "ID": lease.to_string() })).await?;
        Ok(())
    }

    /// Makes a call, and logs in before it if necessary.
    async fn call<T: DeserializeOwned>(&mut self, path: &str, body: &Value) -> Result<T, Error> {
        let body = body.to_string();
        let deadline = self.deadline;
        // On the heap: every future that makes a call contains this one, some of them several times.
        let calling = Box::pin(async {
            let knew = self.token.is_some();
            self.log_in().await?;
            match self.ask(path, &body).await {
                // etcd forgets tokens after some minutes, and when its users change.
                Err(Error::Refused(why)) if knew && is_stale(&why) => {
                    self.token = None;
                    self.log_in().await?;
                    self.ask(path, &body).await
                }
                answer => answer,
            }
        });
        within(deadline, calling).await.unwrap_or_else(|| Err(Error::Unreachable(format!("no answer in {deadline:?}"))))
    }

    /// Gets a token, if etcd has users and there is none.
    async fn log_in(&mut self) -> Result<(), Error> {
        let Some((user, file)) = self.user.as_ref().filter(|_| self.token.is_none()) else { return Ok(()) };
        let password = std::fs::read_to_string(file).map_err(|error| Error::NoPassword(file.clone(), error))?;
        let body = json!({ "name": user, "password": password.trim_end_matches(['\r', '\n']) });
        let answer: LogIn = self.ask("/v3/auth/authenticate", &body.to_string()).await?;
        self.token = Some(answer);
        Ok(())
    }

    /// Asks the members in turn, each once, until the deadline.
    async fn ask<T: DeserializeOwned>(&mut self, path: &str, body: &str) -> Result<T, Error> {
        // A member that hangs must leave time for the others.
        let each = self.deadline / self.members.len().max(1) as u32;
        let mut failed = "it has no members".to_owned();
        let mut refused = None;
        let attempts = async {
            for _ in 0..self.members.len() {
                let (host, connection) = &mut self.members[self.next];
                let request = Request::post(host, path, body.to_owned()).field("content-type", "application/json");
                let request = match &self.token {
                    Some(LogIn { token }) => request.authorization(token),
                    None => request,
                };
                match connection.send(&request, &Limits::new(each, MAX_ANSWER)).await {
                    Ok(answer) if answer.status == 200 => {
                        return Some(serde_json::from_slice(&answer.body).map_err(|_| Error::NotUnderstood));
                    }
                    Ok(answer) => {
                        // Some refusals are plain text.
                        let said = serde_json::from_slice(&answer.body)
                            .map_or_else(|_| answer.text(), |Failure { error }| error);
                        let said: String = said.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect();
                        refused = Some(format!("status {} {said}", answer.status).trim_end().to_owned());
                    }
                    Err(HttpError::TooLong(_)) => return Some(Err(Error::TooLarge)),
                    Err(error) => failed = format!("{host}: {error}"),
                }
                self.next = (self.next + 1) % self.members.len();
            }
            None
        };
        match within(self.deadline, attempts).await.flatten() {
            Some(answer) => answer,
            None => Err(refused.map_or_else(|| Error::Unreachable(failed), Error::Refused)),
        }
    }
}

/// Whether etcd refuses a token that it does not know any more.
fn is_stale(why: &str) -> bool {
    ["invalid auth token", "auth store is old", "status 401"].iter().any(|part| why.contains(part))
}

fn encoded(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The entries of an answer that has at most `limit`, with values that are not too large.
fn checked(range: Range, limit: usize) -> Result<Vec<Entry>, Error> {
    let sound = !range.more && range.kvs.len() <= limit && range.kvs.iter().all(|entry| entry.value.len() <= MAX_VALUE);
    if sound { Ok(range.kvs) } else { Err(Error::TooLarge) }
}
