//! Rollouts: a policy that all gateways of the site put in force, or none.
//!
//! Source: our own. Keys are `PREFIX/policy/step` (the step of the rollout, [`RolloutStep`]), `PREFIX/policy/proposed`
//! and `PREFIX/policy/current` (texts), and `PREFIX/policy/answers/NAME`. One transaction decides: that which changes
//! the step, guarded by the election. Everything before it can be withdrawn, and what it has decided is done by each
//! gateway when it reads it, also after a restart.
//!
//! 1. *Proposed*: each gateway checks the policy on its machine, and that it could write its policy file. One whose
//!    lease has ended is not waited for longer than [`TO_CHECK`]: it follows when it is back.
//! 2. *Canary*: one of the others than the elected one puts it in force, and judges itself after the time that was
//!    asked for: by the requests that it does not answer, and by the guarantees that it keeps.
//! 3. *In force*, if it was good, or *withdrawn*.
//!
//! The policy file of a gateway is the truth: a gateway writes the policy there when it puts it in force, so that a
//! restart without etcd finds it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::spawn_blocking;
use weirgate_engine::Time;
use weirgate_etcd::{Client, Election};
use weirgate_log::Level;
use weirgate_wire::admin::EventKind;
use weirgate_wire::{RolloutAnswer, RolloutPolicy, RolloutStage, RolloutState, RolloutStep};

use crate::state::{Proposal, Shared};
use crate::told::say;
use crate::{Floors, Seen};

/// Time for all gateways to check the policy. One that does not answer in it may be gone.
const TO_CHECK: Duration = Duration::from_secs(15);

/// Time for the canary to judge, beyond the time for which it watches.
const TO_JUDGE: Duration = Duration::from_secs(15);

/// A canary whose part of unanswered requests has grown by more than this is bad: a loss that an operator would see.
const WORSE: f64 = 0.02;

/// Requests without an answer that may be chance.
const LUCK: u64 = 10;

/// Longest reason, in characters. A thousand of them fit an answer of etcd.
const MAX_REASON: usize = 400;

/// This gateway's part in a rollout.
#[derive(Debug, Default)]
pub(crate) struct Rollout {
    /// Its last answer.
    answered: Option<RolloutAnswer>,
    /// Revision at which it was written, or 0. `None` before etcd has been asked for it.
    answered_at: Option<u64>,
    /// The present step, and when it was first seen.
    step: Option<(RolloutStep, Time)>,
    /// Revision at which it was written.
    stepped_at: u64,
    /// The canary's look at the beginning.
    watch: Option<(Time, Seen)>,
    /// The last error that people were told.
    error: Option<String>,
}

fn keys(shared: &Shared, rest: &str) -> String {
    format!("{}/policy/{rest}", shared.settings.etcd.prefix)
}

impl Rollout {
    /// Looks at the step, acts as one of the gateways, and as the elected one if this gateway is. Called every second.
    pub(crate) async fn turn(&mut self, shared: &Shared, client: &mut Client, election: &mut Election) {
        let error = self.follow(shared, client, election).await.err();
        if error != self.error {
            error.iter().for_each(|why| say(Level::Warning, format!("site: rollout: {why}")));
            self.error = error;
        }
    }

    async fn follow(&mut self, shared: &Shared, client: &mut Client, election: &mut Election) -> Result<(), String> {
        self.propose(shared, client).await?;
        let now = shared.floors.now();
        let (step, revision) = read::<RolloutStep>(client, &keys(shared, "step")).await?;
        let Some(mut step) = step else { return Ok(()) };
        self.stepped_at = revision;
        if !is_id(&step.id) {
            return Err("etcd has a rollout without an id".to_owned());
        }
        step.why = shortened(&step.why);
        if self.step.as_ref().is_none_or(|(known, _)| known.id != step.id) {
            self.watch = None;
        }
        if self.step.as_ref().is_none_or(|(known, _)| *known != step) {
            self.step = Some((step.clone(), now));
        }
        let answer_key = keys(shared, &format!("answers/{}", shared.name()));
        let answered_at = match self.answered_at {
            Some(revision) => revision,
            None => {
                let (answered, revision) = read(client, &answer_key).await?;
                (self.answered, self.answered_at) = (answered, Some(revision));
                revision
            }
        };
        if let Some(answer) = self.act(shared, client, &step, now).await? {
            if matches!(answer.state, RolloutState::Refused | RolloutState::Bad) {
                let text = format!("site: rollout {}: this gateway refuses the policy: {}", answer.id, answer.why);
                shared.floors.tell(EventKind::RolloutRefused, text);
            }
            self.answered_at = write(client, &answer_key, answered_at, &answer).await?;
            self.answered = Some(answer);
        }
        shared.lock().rollout = Some((step.clone(), self.answered.clone().filter(|answer| answer.id == step.id)));
        if shared.lock().is_elected() && matches!(step.stage, RolloutStage::Proposed | RolloutStage::Canary) {
            self.lead(shared, client, election, &step, now).await?;
        }
        Ok(())
    }

    /// Proposes a policy that was given to this gateway.
    async fn propose(&mut self, shared: &Shared, client: &mut Client) -> Result<(), String> {
        let Some(Proposal { policy, watch, answer }) = shared.lock().proposal.take() else { return Ok(()) };
        if answer.is_closed() {
            // The operator was told that etcd does not answer.
            return Ok(());
        }
        let result = async {
            let (present, stepped_at) = read::<RolloutStep>(client, &keys(shared, "step")).await?;
            if let Some(step) =
                present.filter(|step| matches!(step.stage, RolloutStage::Proposed | RolloutStage::Canary))
            {
                return Err(format!("rollout {} is under way", step.id));
            }
            let id = policy.id.clone();
            let other = || "another rollout was proposed at the same moment".to_owned();
            let proposed_at = written_at(client, &keys(shared, "proposed")).await?;
            write(client, &keys(shared, "proposed"), proposed_at, &policy).await?.ok_or_else(other)?;
            let (stage, canary, why) = (RolloutStage::Proposed, String::new(), String::new());
            let step = RolloutStep { id: id.clone(), stage, canary, watch_ms: watch.as_millis() as u64, why };
            write(client, &keys(shared, "step"), stepped_at, &step).await?.ok_or_else(other)?;
            Ok(id)
        };
        // The caller may have gone.
        let _ = answer.send(result.await);
        Ok(())
    }

    /// Acts as one of the gateways. Returns its answer if it has a new one.
    async fn act(
        &mut self,
        shared: &Shared,
        client: &mut Client,
        step: &RolloutStep,
        now: Time,
    ) -> Result<Option<RolloutAnswer>, String> {
        let said = self.answered.as_ref().filter(|answer| answer.id == step.id).map(|answer| answer.state);
        let is_canary = step.canary == shared.name();
        let answer = |state, why: String| RolloutAnswer { id: step.id.clone(), state, why: shortened(&why) };
        let judged = |result: Result<(), String>, yes, no| match result {
            Ok(()) => answer(yes, String::new()),
            Err(why) => answer(no, why),
        };
        Ok(match (step.stage, said) {
            (RolloutStage::Proposed, None) => {
                let text = text(shared, client, "proposed", step).await?;
                let checked = blocking(shared, move |floors| floors.check(&text)).await;
                Some(judged(checked, RolloutState::Ready, RolloutState::Refused))
            }
            (RolloutStage::Canary, Some(RolloutState::Ready)) if is_canary => match &self.watch {
                None => {
                    let text = text(shared, client, "proposed", step).await?;
                    let before = shared.floors.seen();
                    let id = step.id.clone();
                    match blocking(shared, move |floors| floors.put(&id, &text, false)).await {
                        Ok(()) => {
                            self.watch = Some((shared.floors.now(), before));
                            None
                        }
                        Err(why) => Some(answer(RolloutState::Bad, why)),
                    }
                }
                Some((since, before)) if now.since(*since) >= Duration::from_millis(step.watch_ms) => {
                    let verdict = verdict(before, &shared.floors.seen());
                    Some(judged(verdict, RolloutState::Good, RolloutState::Bad))
                }
                Some(_) => None,
            },
            (RolloutStage::InForce, said) if said != Some(RolloutState::InForce) => {
                let text = text(shared, client, "current", step).await?;
                let id = step.id.clone();
                // A gateway that was away has not checked it, and one that refuses must not touch its file.
                let checked = move |floors: Arc<dyn Floors>| {
                    floors.check(&text)?;
                    floors.put(&id, &text, true)
                };
                let put = blocking(shared, checked).await;
                if put.is_ok() {
                    shared
                        .floors
                        .tell(EventKind::RolloutInForce, format!("site: rollout {}: the policy is in force", step.id));
                } else if said == Some(RolloutState::Refused) {
                    // It has been told.
                    return Ok(None);
                }
                Some(judged(put, RolloutState::InForce, RolloutState::Refused))
            }
            (RolloutStage::Withdrawn, Some(RolloutState::Ready | RolloutState::Good | RolloutState::Bad)) => {
                let id = step.id.clone();
                let restored = blocking(shared, move |floors| floors.put_back(&id)).await;
                let text = format!("site: rollout {} is withdrawn: {}", step.id, step.why);
                shared.floors.tell(EventKind::RolloutWithdrawn, text);
                Some(judged(restored, RolloutState::Restored, RolloutState::Refused))
            }
            _ => None,
        })
    }

    /// Acts as the elected gateway.
    async fn lead(
        &self,
        shared: &Shared,
        client: &mut Client,
        election: &mut Election,
        step: &RolloutStep,
        now: Time,
    ) -> Result<(), String> {
        let prefix = keys(shared, "answers/");
        // Answers of gateways that are no longer members stay.
        let entries = client.list(&prefix, 2 * weirgate_site::MAX_MEMBERS).await.map_err(|error| error.to_string())?;
        let answers: BTreeMap<String, RolloutAnswer> = entries
            .into_iter()
            .filter_map(|entry| {
                let name = String::from_utf8(entry.key.get(prefix.len()..)?.to_vec()).ok()?;
                Some((name, serde_json::from_slice(&entry.value).ok()?))
            })
            .collect();
        let members: Vec<(&str, bool)> = {
            let state = shared.lock();
            let is_gone = |member| state.coordinator.as_ref().is_some_and(|one| one.is_gone(now, member));
            let members = shared.settings.members.iter().enumerate();
            members.map(|(member, (name, _))| (name.as_str(), is_gone(member))).collect()
        };
        let waited = self.step.as_ref().map_or(Duration::ZERO, |(_, since)| now.since(*since));
        let Some(next) = next(step, &members, &answers, shared.name(), waited) else { return Ok(()) };
        let failed = |error: weirgate_etcd::Error| error.to_string();
        if next.stage == RolloutStage::InForce {
            let text = text(shared, client, "proposed", step).await?;
            let policy = json(&RolloutPolicy { id: step.id.clone(), text })?;
            let key = keys(shared, "current");
            let last = written_at(client, &key).await?;
            if election.write(client, &key, last, &policy).await.map_err(failed)?.is_none() {
                return Ok(());
            }
        }
        election.write(client, &keys(shared, "step"), self.stepped_at, &json(&next)?).await.map_err(failed)?;
        Ok(())
    }
}

/// Returns the step after `step`, if it is due. `members` are the names of the gateways, and whether each is without a
/// lease. `waited` is the time since the elected gateway has seen the step.
fn next(
    step: &RolloutStep,
    members: &[(&str, bool)],
    answers: &BTreeMap<String, RolloutAnswer>,
    own: &str,
    waited: Duration,
) -> Option<RolloutStep> {
    let answer = |name: &str| answers.get(name).filter(|answer| answer.id == step.id);
    let withdrawn = |why: String| Some(RolloutStep { stage: RolloutStage::Withdrawn, why, ..step.clone() });
    let no = members.iter().find_map(|(name, _)| {
        let answer = answer(name)?;
        let is_no = matches!(answer.state, RolloutState::Refused | RolloutState::Bad);
        is_no.then(|| format!("{name}: {}", answer.why))
    });
    match step.stage {
        RolloutStage::InForce | RolloutStage::Withdrawn => None,
        _ if no.is_some() => withdrawn(no.unwrap_or_default()),
        RolloutStage::Proposed => {
            let silent = |gone: bool| -> String {
                let silent = members.iter().filter(|(name, is)| *is == gone && answer(name).is_none());
                silent.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
            };
            let (silent, away) = (silent(false), silent(true));
            if waited < TO_CHECK && !(silent.is_empty() && away.is_empty()) {
                return None;
            }
            if !silent.is_empty() {
                return withdrawn(format!("no answer of {silent}"));
            }
            // The elected one would be alone with another policy, and grant the others nothing.
            let canary = members.iter().find(|(name, _)| *name != own && answer(name).is_some());
            let canary = canary.map_or(own, |(name, _)| name).to_owned();
            let why =
                if away.is_empty() { String::new() } else { format!("{away} cannot be reached, and follows later") };
            Some(RolloutStep { stage: RolloutStage::Canary, canary, why, ..step.clone() })
        }
        RolloutStage::Canary => {
            if answer(&step.canary).is_some_and(|answer| answer.state == RolloutState::Good) {
                return Some(RolloutStep { stage: RolloutStage::InForce, ..step.clone() });
            }
            let longest = Duration::from_millis(step.watch_ms) + TO_JUDGE;
            (waited >= longest).then(|| withdrawn(format!("{} does not answer any more", step.canary))).flatten()
        }
    }
}

/// Judges a canary by the looks before and after its trial.
fn verdict(before: &Seen, after: &Seen) -> Result<(), String> {
    let asked = after.asked.saturating_sub(before.asked);
    let unanswered = after.unanswered.saturating_sub(before.unanswered);
    let part = |unanswered: u64, asked: u64| unanswered as f64 / asked.max(1) as f64;
    let (now, then) = (part(unanswered, asked), part(before.unanswered, before.asked));
    if unanswered > LUCK && now > then + WORSE {
        return Err(format!(
            "{:.1} % of its requests were not answered, and {:.1} % before",
            100.0 * now,
            100.0 * then
        ));
    }
    match after.missed.iter().find(|class| !before.missed.contains(class)) {
        Some(class) => Err(format!("class {class} misses its guarantee")),
        None => Ok(()),
    }
}

/// Returns a text of another process in a form for people.
fn shortened(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_REASON).collect()
}

/// Whether this is an id, which is a part of the name of a file.
fn is_id(id: &str) -> bool {
    id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

async fn blocking(
    shared: &Shared,
    work: impl FnOnce(Arc<dyn Floors>) -> Result<(), String> + Send + 'static,
) -> Result<(), String> {
    let floors = Arc::clone(&shared.floors);
    spawn_blocking(move || work(floors)).await.unwrap_or_else(|error| Err(format!("it broke off: {error}")))
}

/// Returns the text of the policy of this step.
async fn text(shared: &Shared, client: &mut Client, key: &str, step: &RolloutStep) -> Result<String, String> {
    let (policy, _) = read::<RolloutPolicy>(client, &keys(shared, key)).await?;
    let policy = policy.filter(|policy| policy.id == step.id);
    policy.map(|policy| policy.text).ok_or_else(|| format!("etcd has no policy of rollout {}", step.id))
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, String> {
    serde_json::to_vec(value).map_err(|error| error.to_string())
}

/// Returns what `key` holds, and the revision at which it was written: 0 if there is no such key.
async fn read<T: DeserializeOwned>(client: &mut Client, key: &str) -> Result<(Option<T>, u64), String> {
    let Some(entry) = client.get(key).await.map_err(|error| error.to_string())? else { return Ok((None, 0)) };
    let value =
        serde_json::from_slice(&entry.value).map_err(|error| format!("{key} of etcd cannot be used: {error}"))?;
    Ok((Some(value), entry.mod_revision))
}

/// Returns the revision at which `key` was written: 0 if there is no such key.
async fn written_at(client: &mut Client, key: &str) -> Result<u64, String> {
    let entry = client.get(key).await.map_err(|error| error.to_string())?;
    Ok(entry.map_or(0, |entry| entry.mod_revision))
}

/// Writes `value` to `key`, which was last written at revision `last`. Returns the revision of the write, or `None` if
/// it was written since.
async fn write(client: &mut Client, key: &str, last: u64, value: &impl Serialize) -> Result<Option<u64>, String> {
    client.replace(None, key, last, &json(value)?).await.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(stage: RolloutStage) -> RolloutStep {
        RolloutStep { id: "1".into(), stage, canary: "b".into(), watch_ms: 5_000, why: String::new() }
    }

    fn stage(stage: RolloutStage, said: &[(&str, RolloutState)], waited: u64) -> Option<RolloutStep> {
        stage_without(&[], stage, said, waited)
    }

    fn stage_without(
        gone: &[&str],
        stage: RolloutStage,
        said: &[(&str, RolloutState)],
        waited: u64,
    ) -> Option<RolloutStep> {
        let answer = |(name, state): &(&str, RolloutState)| {
            ((*name).to_owned(), RolloutAnswer { id: "1".into(), state: *state, why: "why".into() })
        };
        let answers = said.iter().map(answer).collect();
        let members = ["a", "b", "c"].map(|name| (name, gone.contains(&name)));
        next(&step(stage), &members, &answers, "a", Duration::from_secs(waited))
    }

    #[test]
    fn a_policy_is_in_force_on_all_or_none() {
        use RolloutState::{Bad, Good, Ready, Refused};
        let all = [("a", Ready), ("b", Ready), ("c", Ready)];
        assert_eq!(stage(RolloutStage::Proposed, &all[..2], 14), None);
        let late = stage(RolloutStage::Proposed, &all[..2], 15).expect("it ends");
        assert_eq!((late.stage, late.why.as_str()), (RolloutStage::Withdrawn, "no answer of c"));
        let refused = stage(RolloutStage::Proposed, &[("c", Refused)], 0).expect("it ends");
        assert_eq!((refused.stage, refused.why.as_str()), (RolloutStage::Withdrawn, "c: why"));
        let canary = stage(RolloutStage::Proposed, &all, 0).expect("it goes on");
        assert_eq!((canary.stage, canary.canary.as_str()), (RolloutStage::Canary, "b"), "not the elected one");

        assert_eq!(stage(RolloutStage::Canary, &all, 19), None);
        let good = stage(RolloutStage::Canary, &[("b", Good)], 6).expect("it goes on");
        assert_eq!(good.stage, RolloutStage::InForce);
        for (said, waited) in [(Bad, 0), (Ready, 20)] {
            let ended = stage(RolloutStage::Canary, &[("b", said)], waited).expect("it ends");
            assert_eq!(ended.stage, RolloutStage::Withdrawn);
        }
        assert_eq!(stage(RolloutStage::InForce, &[("c", Refused)], 100), None, "what is decided stays");
    }

    #[test]
    fn a_rollout_does_not_wait_for_a_gateway_without_a_lease() {
        use RolloutState::Ready;
        let two = [("a", Ready), ("c", Ready)];
        assert_eq!(stage_without(&["b"], RolloutStage::Proposed, &two, 14), None, "it may be starting");
        let canary = stage_without(&["b"], RolloutStage::Proposed, &two, 15).expect("it goes on");
        assert_eq!((canary.stage, canary.canary.as_str()), (RolloutStage::Canary, "c"), "one that has checked it");
        assert_eq!(canary.why, "b cannot be reached, and follows later");
        let late = stage_without(&["b"], RolloutStage::Proposed, &two[..1], 15).expect("it ends");
        assert_eq!((late.stage, late.why.as_str()), (RolloutStage::Withdrawn, "no answer of c"));
        let alone = stage_without(&["b", "c"], RolloutStage::Proposed, &two[..1], 15).expect("it goes on");
        assert_eq!((alone.stage, alone.canary.as_str()), (RolloutStage::Canary, "a"));
    }

    #[test]
    fn an_id_names_no_other_file() {
        assert!(is_id("0123456789abcdef"));
        assert!(["", "../../etc/passwd", "0123456789abcde/", "0123456789abcdef0"].iter().all(|id| !is_id(id)));
    }

    #[test]
    fn a_canary_is_judged_by_answers_and_guarantees() {
        let seen = |asked, unanswered, missed: &[&str]| Seen {
            asked,
            unanswered,
            missed: missed.iter().map(|class| (*class).to_owned()).collect(),
        };
        let before = seen(1_000, 100, &["x"]);
        assert_eq!(verdict(&before, &seen(2_000, 210, &["x"])), Ok(()));
        assert!(verdict(&before, &seen(2_000, 230, &["x"])).is_err_and(|why| why.contains("13.0 %")));
        assert_eq!(verdict(&before, &seen(1_010, 110, &[])), Ok(()), "ten of ten are too few to tell");
        assert!(verdict(&before, &seen(2_000, 200, &["x", "y"])).is_err_and(|why| why.contains("class y")));
    }
}
