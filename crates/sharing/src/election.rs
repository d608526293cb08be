//! The gateway's side of etcd: its number, the election, and the records of the elected one.
//!
//! Keys are `PREFIX/coordinator` (the name of the elected gateway, on a lease), `PREFIX/members/NAME` (the address of a
//! gateway and a number of its process, written when it begins) and `PREFIX/records/NAME` (whether it holds
//! shares).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weirgate_config::Sharing;
use weirgate_engine::Time;
use weirgate_etcd::{Client, Election, Error, Turn};
use weirgate_http_client::Address;
use weirgate_log::Level;
use weirgate_site::{Coordinator, MAX_MEMBERS, Record, Stage};
use weirgate_tls::told as faults_told;
use weirgate_wire::admin::EventKind;

use crate::rollout::Rollout;
use crate::state::{Elected, Shared};
use crate::told::say;

/// Time between two questions to etcd about the election. A proof of the election lasts for a second, so it is renewed
/// four times in it.
const EVERY: Duration = Duration::from_millis(250);

/// Time for an answer of etcd, over all its members. A longer one would be of no use as a proof.
const DEADLINE: Duration = Duration::from_millis(900);

/// How long a gateway that is gone stays elected. etcd grants no shorter lease than 2 s by default.
const STAYS: Duration = Duration::from_secs(2);

/// Number of questions between two looks whether another process has taken the name of this gateway.
const LOOKS: u32 = 4;

/// Number of times that a process begins under its name before it leaves the name to another one.
const BEGINNINGS: u32 = 3;

/// Time for the end of a lease when the process ends.
const RESIGNATION: Duration = Duration::from_secs(1);

/// Records of gateways that are no longer members stay, so there may be more than there are members.
const MAX_RECORDS: usize = 2 * MAX_MEMBERS;

/// Stands for election and keeps records, until the work ends.
pub(crate) async fn follow(shared: Arc<Shared>) {
    let mut voter = Voter::new(&shared);
    loop {
        let asked = shared.floors.now();
        if voter.ends().await {
            return;
        }
        if shared.lock().listens {
            let result = voter.turn(asked).await;
            voter.tell(result);
        }
        // News are records to keep, a listener that is open now, or the end.
        shared.wait(asked + EVERY, &shared.election).await;
    }
}

struct Voter<'s> {
    shared: &'s Shared,
    /// Made at the first question, and again after failures, with the present files.
    client: Option<Client>,
    election: Election,
    /// The value that it writes when it begins. An attempt without an answer may be written late, so revisions do not
    /// tell processes apart.
    own: String,
    /// Number of this process, once it is known.
    incarnation: Option<u64>,
    /// Number of times that it has begun.
    begun: u32,
    /// Revisions at which the records of the members were last written, once this gateway is elected.
    kept: Vec<u64>,
    /// Since when the key of the election has the name of this gateway, which is not elected.
    misnamed_since: Option<Time>,
    turns: u32,
    rollout: Rollout,
    /// Another process has the name of this gateway.
    replaced: bool,
    asked: Time,
}

fn key(settings: &Sharing, rest: &str) -> String {
    format!("{}/{rest}", settings.etcd.prefix)
}

impl Voter<'_> {
    fn new(shared: &Shared) -> Voter<'_> {
        let election = Election::new(&key(&shared.settings, "coordinator"), shared.name().as_bytes(), STAYS);
        let (client, incarnation) = (None, None);
        let own = format!("{} {:016x}", shared.settings.members[shared.settings.own].1, weirgate_clock::seed());
        let rollout = Rollout::default();
        let asked = Time::ZERO;
        Voter {
            shared,
            client,
            election,
            own,
            incarnation,
            begun: 0,
            kept: Vec::new(),
            misnamed_since: None,
            turns: 0,
            rollout,
            replaced: false,
            asked,
        }
    }

    /// Asks etcd for the elected gateway, unless it was asked just now, and keeps records.
    async fn turn(&mut self, now: Time) -> Result<(), String> {
        if self.client.is_none() {
            self.client = Some(connect(&self.shared.settings)?);
        }
        let Some(client) = &mut self.client else { return Ok(()) };
        if self.turns == 0 || now.since(self.asked) >= EVERY {
            self.asked = now;
            if self.incarnation.is_none() {
                let own = key(&self.shared.settings, &format!("members/{}", self.shared.name()));
                let failed = |error: Error| error.to_string();
                let last = client.get(&own).await.map_err(failed)?.map_or(0, |entry| entry.mod_revision);
                let written = client.replace(None, &own, last, self.own.as_bytes()).await.map_err(failed)?;
                let Some(incarnation) = written else { return Err(format!("another process has written {own}")) };
                self.incarnation = Some(incarnation);
                self.begun += 1;
                self.shared.begin(incarnation);
            }
            if self.turns.is_multiple_of(LOOKS) {
                self.look().await?;
            }
            self.turns = self.turns.wrapping_add(1);
            if self.replaced {
                return Ok(());
            }
            self.vote(now).await?;
            self.roll_out().await;
        }
        self.keep_records().await.map_err(|error| error.to_string())
    }

    /// Looks whether another process has begun under the name of this gateway. Two would both use its share.
    async fn look(&mut self) -> Result<(), String> {
        let Some(client) = &mut self.client else { return Ok(()) };
        let own = key(&self.shared.settings, &format!("members/{}", self.shared.name()));
        let entry = client.get(&own).await.map_err(|error| error.to_string())?;
        if self.replaced || entry.is_none_or(|entry| entry.value == self.own.as_bytes()) {
            return Ok(());
        }
        if self.begun < BEGINNINGS {
            // Perhaps the value of a process before this one came late.
            self.incarnation = None;
            return Ok(());
        }
        self.replaced = true;
        {
            let mut state = self.shared.lock();
            state.member.leave();
            state.coordinator = None;
        }
        let _ = self.election.resign(client).await;
        self.shared.member.notify_one();
        let text = format!(
            "site: another process runs as {}: this one keeps the minimum of each guarantee. Give each gateway a name of \
             its own, and start this one again",
            self.shared.name()
        );
        self.shared.floors.tell(EventKind::GatewayFenced, text);
        Ok(())
    }

    /// Follows a rollout, once a second or if a policy is proposed here.
    async fn roll_out(&mut self) {
        let Some(client) = &mut self.client else { return };
        let is_due = self.turns.is_multiple_of(LOOKS) || self.shared.lock().proposal.is_some();
        if self.shared.settings.rollouts && is_due {
            // It is rare and large, so it is not part of this future.
            Box::pin(self.rollout.turn(self.shared, client, &mut self.election)).await;
        }
    }

    /// Stands for election, or proves it.
    async fn vote(&mut self, asked: Time) -> Result<(), String> {
        let Some(client) = &mut self.client else { return Ok(()) };
        let settings = &self.shared.settings;
        let turn = match settings.electable.contains(&settings.own) {
            true => self.election.turn(client).await,
            false => self.election.look(client).await,
        };
        let elected = match turn.map_err(|error| error.to_string())? {
            Turn::Elected { revision } => {
                let name = self.shared.name().to_owned();
                let known = self.shared.lock().coordinator.as_ref().map(Coordinator::revision);
                if known != Some(revision) {
                    let elected_at = self.shared.floors.now();
                    let prefix = key(&self.shared.settings, "records/");
                    let entries = match client.list(&prefix, MAX_RECORDS).await {
                        Ok(entries) => entries,
                        Err(error) => {
                            // Without records it cannot divide anything, so another one may try.
                            let _ = self.election.resign(client).await;
                            return Err(error.to_string());
                        }
                    };
                    let (records, kept) = records(&self.shared.settings, prefix.len(), entries);
                    self.kept = kept;
                    let agreed = Arc::clone(&self.shared.settings.agreed);
                    let mut state = self.shared.lock();
                    state.coordinator = Some(Coordinator::new(elected_at, agreed, revision, &records));
                    state.records.clear();
                }
                let mut state = self.shared.lock();
                state.coordinator.iter_mut().for_each(|coordinator| coordinator.proved(asked));
                Some(Elected { revision, name })
            }
            Turn::Follow { revision, value } => {
                let name = String::from_utf8_lossy(&value).into_owned();
                if name == self.shared.name() {
                    // The process before this one was elected, and its lease has not ended yet.
                    let since = *self.misnamed_since.get_or_insert(asked);
                    if asked.since(since) < 2 * STAYS {
                        return self.follow(None);
                    }
                    return Err(format!(
                        "etcd says that this gateway is elected, and it is not: does another process run as \
                                        {name}?"
                    ));
                }
                self.misnamed_since = None;
                match settings.members.iter().position(|(known, _)| *known == name) {
                    None => {
                        return Err(format!(
                            "{name:?} is elected, and no member: does another site use the same prefix?"
                        ));
                    }
                    Some(member) if !settings.electable.contains(&member) => {
                        return Err(format!("{name} is elected, and is not among `electable:`. It is not followed"));
                    }
                    Some(_) => {}
                }
                Some(Elected { revision, name })
            }
            Turn::Nobody => None,
        };
        self.follow(elected)
    }

    /// Follows the elected gateway.
    ///
    /// # Errors
    /// An earlier election has a greater revision.
    fn follow(&mut self, elected: Option<Elected>) -> Result<(), String> {
        let mut state = self.shared.lock();
        let is_own = elected.as_ref().is_some_and(|elected| elected.name == self.shared.name());
        if !is_own {
            state.coordinator = None;
        }
        let Some(elected) = elected else { return Ok(()) };
        let followed = state.member.revision();
        if elected.revision < followed {
            let now = self.shared.floors.now();
            if state.member.stage(now) == Stage::Minimum {
                // It holds nothing of what it was granted, so it may begin anew.
                self.incarnation = None;
            }
            return Err(format!(
                "the election of {} has revision {}, and this gateway has followed {followed}: was etcd restored, or set up \
                 anew? This gateway follows when its shares have ended",
                elected.name, elected.revision
            ));
        }
        if state.elected.as_ref() != Some(&elected) {
            let divides = if is_own { ": this gateway" } else { "" };
            let text = format!("site: {} is elected and divides the guarantees{divides}", elected.name);
            self.shared.floors.tell(EventKind::GatewayElected, text);
            state.member.follow(elected.revision);
            state.elected = Some(elected);
            self.shared.member.notify_one();
        }
        self.shared.coordinator.notify_one();
        Ok(())
    }

    /// Keeps the records that the elected machine wants to be kept.
    async fn keep_records(&mut self) -> Result<(), Error> {
        let Some(client) = &mut self.client else { return Ok(()) };
        loop {
            let next = self.shared.lock().records.front().copied();
            let Some((member, record)) = next else { return Ok(()) };
            let name = &self.shared.settings.members[member].0;
            let key = key(&self.shared.settings, &format!("records/{name}"));
            let last = self.kept.get(member).copied().unwrap_or(0);
            let written = self.election.write(client, &key, last, text(record).as_bytes()).await?;
            let Some(revision) = written else {
                // Another gateway is elected, or something else writes records. Then whoever is elected reads them
                // first.
                {
                    let mut state = self.shared.lock();
                    state.coordinator = None;
                    state.records.clear();
                }
                return self.election.resign(client).await;
            };
            self.kept[member] = revision;
            let mut state = self.shared.lock();
            state.records.pop_front();
            state.coordinator.iter_mut().for_each(|coordinator| coordinator.recorded(member, record));
            self.shared.coordinator.notify_one();
            let is_more = !state.records.is_empty();
            drop(state);
            if is_more && self.shared.floors.now().since(self.asked) >= EVERY {
                // The next proof is due. A member that comes and goes all the time must not keep it waiting.
                self.shared.election.notify_one();
                return Ok(());
            }
        }
    }

    /// Tells people whether etcd answers.
    fn tell(&mut self, result: Result<(), String>) {
        let now = self.shared.floors.now();
        let mut state = self.shared.lock();
        match result {
            Ok(()) => {
                if state.etcd.hears(now) {
                    say(Level::Info, "site: etcd answers again".to_owned());
                }
            }
            Err(why) => {
                if state.etcd.misses(why.clone()) {
                    say(Level::Warning, format!("site: {why}. Shares last until their lease ends"));
                }
                if state.etcd.is_lost() {
                    self.client = None;
                }
            }
        }
    }

    /// Whether the work has ended. Then the farewells of this gateway are done.
    async fn ends(&mut self) -> bool {
        let (leaves, is_elected) = {
            let state = self.shared.lock();
            match state.ending {
                Some(leaves) => (leaves, state.is_elected()),
                None => return false,
            }
        };
        if is_elected {
            let parting = async {
                // The own share first, so that the successor knows that it is free.
                while leaves && !self.shared.lock().member.is_gone() {
                    self.shared.wait(self.shared.floors.now() + EVERY / 10, &self.shared.ended).await;
                }
                self.shared.coordinator.notify_one();
                self.asked = self.shared.floors.now();
                let _ = self.keep_records().await;
                if let Some(client) = &mut self.client {
                    let _ = self.election.resign(client).await;
                }
            };
            let _ = weirgate_clock::within(RESIGNATION, parting).await;
        }
        let mut state = self.shared.lock();
        (state.coordinator, state.resigned) = (None, true);
        drop(state);
        self.shared.ended.notify_one();
        true
    }
}

/// Returns a client with the present files.
fn connect(settings: &Sharing) -> Result<Client, String> {
    let etcd = &settings.etcd;
    let tls = match etcd.endpoints.iter().any(|(https, _)| *https) {
        true => Some(weirgate_tls::Client::load(&etcd.tls).map_err(|faults| faults_told(&faults))?.http1()),
        false => None,
    };
    let address = |(https, address): &(bool, String)| match tls.as_ref().filter(|_| *https) {
        Some(tls) => Address::Https(address.clone(), Arc::clone(tls)),
        None => Address::Tcp(address.clone()),
    };
    let members = etcd.endpoints.iter().map(address).collect();
    Ok(Client::new(members, DEADLINE).with_user(etcd.user.clone()))
}

fn text(record: Record) -> &'static str {
    match record {
        Record::Nothing => "nothing",
        Record::Granted => "granted",
        Record::Lapsed => "lapsed",
    }
}

/// Returns the records of all members, and the revisions at which they were written, 0 for none. A record that is not
/// understood counts as the worst one.
fn records(settings: &Sharing, prefix: usize, entries: Vec<weirgate_etcd::Entry>) -> (Vec<Record>, Vec<u64>) {
    let named: BTreeMap<Vec<u8>, weirgate_etcd::Entry> =
        entries.into_iter().map(|entry| (entry.key.get(prefix..).unwrap_or_default().to_vec(), entry)).collect();
    let of = |(name, _): &(String, String)| match named.get(name.as_bytes()) {
        None => (Record::Nothing, 0),
        Some(entry) => {
            let record = match &entry.value[..] {
                b"nothing" => Record::Nothing,
                b"granted" => Record::Granted,
                _ => Record::Lapsed,
            };
            (record, entry.mod_revision)
        }
    };
    settings.members.iter().map(of).unzip()
}
