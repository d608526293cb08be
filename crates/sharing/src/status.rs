//! The site for people: the JSON of the admin API.

use weirgate_engine::Time;
use weirgate_site::{Coordinator, Stage};
use weirgate_wire::admin::{MemberShare, SiteMember, SiteRollout, SiteShare, SiteStage, SiteStatus};

use crate::state::{Shared, per_second};

/// Maximum number of classes of which the share of each gateway is shown.
const MAX_CLASSES: usize = 100;

/// Maximum number of shares of gateways in one status. A page reads one each second, and this many are as long as the
/// list of 1,000 classes.
const MAX_SHARES: usize = 2_000;

impl Shared {
    /// Returns the site, as this gateway knows it now.
    pub fn status(&self) -> SiteStatus {
        let now = self.floors.now();
        let age = |at: Option<Time>| at.map(|at| now.since(at).as_secs_f64());
        let state = self.lock();
        let coordinator = state.coordinator.as_ref();
        let largest = self.largest();
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
            shares: coordinator.map(|coordinator| self.shares(coordinator, index, &largest)).unwrap_or_default(),
        });
        let share = |(budget, (class, _)): (usize, &(String, _))| {
            let whole = coordinator.map(|coordinator| self.whole(coordinator, budget));
            SiteShare {
                class: class.clone(),
                guaranteed_per_second: per_second(self.settings.agreed.total(budget)),
                share_per_second: per_second(state.member.share(now, budget)),
                demand_per_second: per_second(state.member.demanded(budget)),
                held_per_second: whole.map(|whole| per_second(whole.held)),
                unstated_per_second: whole.filter(|whole| whole.unstated > 0).map(|whole| per_second(whole.unstated)),
                site_demand_per_second: whole.map(|whole| per_second(whole.demanded)),
            }
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
            classes_left_out: coordinator.map_or(0, |_| self.settings.classes.len() - largest.len()),
            rollout: state.rollout.clone().map(|(step, answer)| SiteRollout { step, answer }),
        }
    }

    /// Returns the budgets of which the share of each member is shown, the largest first.
    fn largest(&self) -> Vec<usize> {
        let mut budgets: Vec<usize> = (0..self.settings.classes.len()).collect();
        budgets.sort_by_key(|budget| std::cmp::Reverse(self.settings.agreed.total(*budget)));
        budgets.truncate((MAX_SHARES / self.settings.members.len().max(1)).clamp(1, MAX_CLASSES));
        budgets
    }

    /// Returns what a member holds of these budgets and demands.
    fn shares(&self, coordinator: &Coordinator, member: usize, budgets: &[usize]) -> Vec<MemberShare> {
        let share = |budget: &usize| MemberShare {
            class: self.settings.classes[*budget].0.clone(),
            held_per_second: per_second(coordinator.held(member, *budget)),
            demand_per_second: coordinator.demanded(member, *budget).map(per_second),
        };
        budgets.iter().map(share).collect()
    }

    /// Returns the sums of a budget over the site.
    fn whole(&self, coordinator: &Coordinator, budget: usize) -> Whole {
        let members = 0..self.settings.members.len();
        let held = self.settings.agreed.total(budget) - coordinator.free(budget);
        let stated = members.clone().map(|member| coordinator.held(member, budget)).sum();
        let demanded = members.filter_map(|member| coordinator.demanded(member, budget)).sum();
        Whole { held, unstated: held.saturating_sub(stated), demanded }
    }
}

/// Sums of one budget over all members.
#[derive(Clone, Copy)]
struct Whole {
    held: u64,
    /// The part of `held` that silent members may hold.
    unstated: u64,
    demanded: u64,
}
