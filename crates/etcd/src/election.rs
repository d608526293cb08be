//! The election of one process among several: who creates a key on a lease is elected.
//!
//! Source: etcd's recipe (`concurrency/election.go`), with one key. The revision of the election is that of the key's
//! creation, so a later election has a greater one. The elected process proves that it still is, by a transaction that
//! holds only while its key does.

use std::time::Duration;

use crate::client::{Client, Error, Guard};

/// One process that stands for election.
#[derive(Debug)]
pub struct Election {
    key: String,
    value: Vec<u8>,
    ttl: Duration,
    /// Lease and revision of this process's own key.
    elected: Option<(u64, u64)>,
}

/// Result of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// This process is elected, as etcd knew at some instant after the turn began.
    Elected {
        /// Revision of the election.
        revision: u64,
    },
    /// Another one is.
    Follow {
        /// Revision of the election.
        revision: u64,
        /// The value that the elected process wrote.
        value: Vec<u8>,
    },
    /// Nobody is. The next turn tries again.
    Nobody,
}

impl Election {
    /// Stands for election by `key`, which will hold `value`. A process that is gone stays elected for `ttl`, at least
    /// one second.
    pub fn new(key: &str, value: &[u8], ttl: Duration) -> Election {
        Election { key: key.into(), value: value.into(), ttl, elected: None }
    }

    /// Proves that this process is elected, or stands for election if nobody is.
    ///
    /// # Errors
    /// There is no answer in time, and this process may be elected or not. Or the key is there without a lease.
    pub async fn turn(&mut self, client: &mut Client) -> Result<Turn, Error> {
        if let Some((lease, revision)) = self.elected {
            if client.holds(Guard::Created(&self.key, revision)).await? {
                // If the lease has ended meanwhile, so has the key, and the next turn finds that out.
                client.keep_alive(lease).await?;
                return Ok(Turn::Elected { revision });
            }
            self.elected = None;
        }
        match self.look(client).await? {
            Turn::Nobody => {}
            other => return Ok(other),
        }
        let lease = client.grant(self.ttl).await?;
        let written = client.write(&[Guard::Unchanged(&self.key, 0)], &self.key, &self.value, Some(lease)).await;
        if let Ok(Some(revision)) = written {
            self.elected = Some((lease, revision));
            return Ok(Turn::Elected { revision });
        }
        // Whether or not it was written: nothing remains of a lease that is not used.
        end(client, lease).await?;
        written.map(|_| Turn::Nobody)
    }

    /// Looks who is elected, without standing for election.
    ///
    /// # Errors
    /// There is no answer in time, or the key is there without a lease.
    pub async fn look(&self, client: &mut Client) -> Result<Turn, Error> {
        match client.get(&self.key).await? {
            None => Ok(Turn::Nobody),
            Some(entry) if entry.lease == 0 => Err(Error::NoLease(self.key.clone())),
            Some(entry) => Ok(Turn::Follow { revision: entry.create_revision, value: entry.value }),
        }
    }

    /// Writes `value` to `key` if this process is still elected, and `key` was last written at revision `last` (0:
    /// never). Returns the revision of the write, or `None` if one of both is not so.
    ///
    /// # Errors
    /// There is no answer in time. It may have been written: see [`Client::replace`].
    pub async fn write(
        &mut self,
        client: &mut Client,
        key: &str,
        last: u64,
        value: &[u8],
    ) -> Result<Option<u64>, Error> {
        let Some((_, revision)) = self.elected else { return Ok(None) };
        client.replace(Some(Guard::Created(&self.key, revision)), key, last, value).await
    }

    /// Gives the election up, so that another process is elected at once.
    ///
    /// # Errors
    /// There is no answer in time. The election then ends with its lease.
    pub async fn resign(&mut self, client: &mut Client) -> Result<(), Error> {
        match self.elected.take() {
            Some((lease, _)) => end(client, lease).await,
            None => Ok(()),
        }
    }
}

/// Ends a lease. etcd refuses if it has ended already.
async fn end(client: &mut Client, lease: u64) -> Result<(), Error> {
    match client.revoke(lease).await {
        Err(Error::Refused(_)) => Ok(()),
        ended => ended,
    }
}
