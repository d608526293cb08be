//! The site for people: the JSON of the admin API.

use weirgate_engine::Time;
use weirgate_site::Stage;
use weirgate_wire::admin::{SiteMember, SiteRollout, SiteShare, SiteStage, SiteStatus};

use crate::state::{Shared, per_second};

impl Shared {
    /// Returns the site, as this gateway knows it now.
    pub fn status(&self) -> SiteStatus {
        let now = self.floors.now();
        let age = |at: Option<Time>| at.map(|at| now.since(at).as_secs_f64());
        let state = self.lock();
        let coordinator = state.coordinator.as_ref();
        let stage = match state.member.stage(now) {
            Stage::Granted => SiteStage::Granted,
            Stage::Safe => SiteStage::Safe,
            Stage::Minimum => SiteStage::Minimum,
        };
        let members = self.settings.members.iter().enumerate().map(|(index, (name, address))| SiteMember {
            name: name.clone(),
            address: address.clone(),
            age_seconds: age(coordinator.and_then(|coordinator| coordinator.heard(index))),
            phase: coordinator.and_then(|coordinator| coordinator.phase(index)).map(|phase| phase.to_string()),
            in_flight: coordinator.and_then(|coordinator| coordinator.in_flight(index)),
        });
        let share = |(budget, (class, _)): (usize, &(String, _))| SiteShare {
            class: class.clone(),
            guaranteed_per_second: per_second(self.settings.agreed.total(budget)),
            share_per_second: per_second(state.member.share(now, budget)),
            demand_per_second: per_second(state.member.demanded(budget)),
            held_per_second: coordinator
                .map(|coordinator| per_second(self.settings.agreed.total(budget) - coordinator.free(budget))),
        };
        SiteStatus {
            gateway: self.name().to_owned(),
            stage,
            stage_ends_in_seconds: state.member.remaining(now).map(|span| span.as_secs_f64()),
            coordinator: state.elected.as_ref().map(|elected| elected.name.clone()),
            revision: state.elected.as_ref().map_or(0, |elected| elected.revision),
            answer_age_seconds: age(state.answers.heard),
            error: state.answers.error.clone(),
            etcd_age_seconds: age(state.etcd.heard),
            etcd_error: state.etcd.error.clone(),
            checksum: self.settings.checksum.clone(),
            refused: state.refused,
            changes: state.changes,
            in_flight_of_others: state.in_flight_of_others.filter(|_| stage == SiteStage::Granted),
            members: members.collect(),
            classes: self.settings.classes.iter().enumerate().map(share).collect(),
            rollout: state.rollout.clone().map(|(step, answer)| SiteRollout { step, answer }),
        }
    }
}
