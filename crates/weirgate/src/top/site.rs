//! The site as lines of text: this gateway's part in it and, at the elected one, a table of all gateways.

use weirgate_wire::admin::{MemberShare, SiteMember, SiteRollout, SiteStage, SiteStatus};
use weirgate_wire::{RolloutStage, RolloutState};

use super::Look;
use super::table::{misses, rate, shortened, span};

/// Maximum width of a gateway's name, and of a class's name with its guarantee.
const NAME: usize = 16;

/// Space between two columns.
const GAP: usize = 2;

/// Columns before those of the classes, and columns of each class.
const FIRST: [&str; 4] = ["GATEWAY", "PHASE", "HEARD", "FLIGHT"];
const OF_CLASS: [&str; 2] = ["HOLDS", "DEMAND"];

/// Returns this gateway's part in its site, if there is one.
pub(super) fn lines(look: &Look) -> Vec<String> {
    let Some(site) = &look.site else { return Vec::new() };
    let rollout = site.rollout.as_ref().map(rollout);
    [Some(stage(site)), in_flight(site), elsewhere(site), rollout].into_iter().flatten().collect()
}

/// Where the shares of this gateway come from.
fn stage(site: &SiteStatus) -> String {
    let shares = match site.stage {
        SiteStage::Granted => "shares granted",
        SiteStage::Safe => "SAFE shares",
        SiteStage::Minimum => "MINIMUM shares",
    };
    let until = site.stage_ends_in_seconds.map_or(String::new(), |left| format!(" for {}", tenths(left)));
    let divides = match &site.coordinator {
        Some(name) => {
            let name = if *name == site.gateway { "it" } else { name };
            format!("{name} divides the guarantees among {} gateways", site.members.len())
        }
        None => "none is elected".to_owned(),
    };
    let error = site.error.as_ref().or(site.etcd_error.as_ref());
    let error = error.map_or(String::new(), |error| format!(": {error}"));
    format!("{}: {shares}{until}, {divides}{error}", site.gateway)
}

/// Requests in flight of the other gateways.
fn in_flight(site: &SiteStatus) -> Option<String> {
    Some(format!("the other gateways have {:.1} requests in flight", site.in_flight_of_others?))
}

/// The gateway that shows all of them, if this one does not.
fn elsewhere(site: &SiteStatus) -> Option<String> {
    let name = site.coordinator.as_ref().filter(|name| **name != site.gateway)?;
    // Gateways do not know the admin addresses of each other. The host is mostly the same.
    let address = site.members.iter().find(|member| member.name == *name).map(|member| member.address.as_str());
    let host = address.filter(|address| !address.starts_with("unix:")).and_then(|address| address.rsplit_once(':'));
    let host = host.map_or(String::new(), |(host, _)| format!(", on {host}"));
    Some(format!("{name} shows the share of each gateway: look there{host}"))
}

/// The latest rollout of a policy in words.
fn rollout(rollout: &SiteRollout) -> String {
    let step = &rollout.step;
    let stage = match step.stage {
        RolloutStage::Proposed => "all gateways check the policy".to_owned(),
        RolloutStage::Canary => format!("{} tries the policy", step.canary),
        RolloutStage::InForce => "in force".to_owned(),
        RolloutStage::Withdrawn => format!("withdrawn: {}", step.why),
    };
    let refused = rollout.answer.as_ref().filter(|answer| answer.state == RolloutState::Refused);
    let own = refused.map_or(String::new(), |answer| format!(". This gateway KEEPS the one before: {}", answer.why));
    format!("rollout {}: {stage}{own}", step.id)
}

/// Returns the table of all gateways, if this one is elected: a title, a line for each, and the sums in the last one.
/// It shows at most `rows` gateways, and as many classes as `width` has room for.
pub(super) fn table(look: &Look, width: usize, rows: usize) -> Vec<String> {
    let Some(site) = look.site.as_ref().filter(|site| site.members.iter().any(|member| member.phase.is_some())) else {
        return Vec::new();
    };
    let shown = chosen(site, rows);
    let mut blocks = vec![(String::new(), first(site, &shown))];
    let width_of = |block: &[Vec<String>]| widths(block).iter().map(|width| width + GAP).sum::<usize>();
    let mut left = (width + GAP).saturating_sub(width_of(&blocks[0].1));
    for class in order(look, site) {
        let block = of_class(site, &shown, class);
        let needed = block.0.chars().count().max(width_of(&block.1));
        if needed > left && blocks.len() > 1 {
            break;
        }
        left = left.saturating_sub(needed);
        blocks.push(block);
    }
    let count = blocks[0].1.len();
    let mut lines = vec![String::new(); count + 1];
    for (title, block) in &blocks {
        let (widths, wide) = (widths(block), title.chars().count().max(width_of(block)));
        lines[0] += &format!("{title:<wide$}");
        for (line, cells) in lines[1..].iter_mut().zip(block) {
            let cells: String =
                cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<0$}", width + GAP)).collect();
            *line += &format!("{cells:<wide$}");
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Returns the gateways that are shown, by name. If there is no room for all, those without a lease come first, because
/// something is wrong with them, and then those with the largest demand.
fn chosen(site: &SiteStatus, rows: usize) -> Vec<&SiteMember> {
    let mut members: Vec<&SiteMember> = site.members.iter().collect();
    let demand = |member: &SiteMember| member.shares.first().and_then(|share| share.demand_per_second).unwrap_or(0.0);
    members.sort_by(|a, b| is_live(a).cmp(&is_live(b)).then(demand(b).total_cmp(&demand(a))));
    members.truncate(rows);
    members.sort_by(|a, b| a.name.cmp(&b.name));
    members
}

fn is_live(member: &SiteMember) -> bool {
    member.phase.as_deref() == Some("live")
}

/// Whether gateways may hold something that they have not stated since the election.
fn has_unstated(site: &SiteStatus) -> bool {
    site.classes.iter().any(|class| class.unstated_per_second.is_some())
}

/// Returns the indices of the classes in the order of interest: those that miss a guarantee here, and then those with
/// the largest guarantees.
fn order(look: &Look, site: &SiteStatus) -> Vec<usize> {
    let shares = site.members.first().map(|member| member.shares.as_slice()).unwrap_or_default();
    let missed = |share: &MemberShare| look.classes.iter().any(|class| class.name == share.class && misses(class));
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by_key(|index| !missed(&shares[*index]));
    order
}

/// Returns the first columns: titles, gateways, a line for shares that nobody has stated, and the sums.
fn first(site: &SiteStatus, shown: &[&SiteMember]) -> Vec<Vec<String>> {
    let mut lines = vec![FIRST.map(str::to_owned).to_vec()];
    lines.extend(shown.iter().map(|member| {
        vec![
            shortened(&member.name, NAME),
            member.phase.clone().unwrap_or_default(),
            member.age_seconds.map_or("-".to_owned(), |age| format!("{age:.1} s")),
            member.in_flight.map_or("-".to_owned(), |count| format!("{count:.1}")),
        ]
    }));
    if has_unstated(site) {
        lines.push(vec!["not stated".to_owned()]);
    }
    let all = site.members.len();
    let sum: f64 = site.members.iter().filter_map(|member| member.in_flight).sum();
    let name = if shown.len() < all { format!("all {all}") } else { "all".to_owned() };
    let live = site.members.iter().filter(|member| is_live(member)).count();
    lines.push(vec![name, format!("{live} live"), String::new(), format!("{sum:.1}")]);
    lines
}

/// Returns the title and the columns of a class, with the same lines.
fn of_class(site: &SiteStatus, shown: &[&SiteMember], index: usize) -> (String, Vec<Vec<String>>) {
    let known = |amount: Option<f64>| amount.map_or("-".to_owned(), rate);
    let share = |member: &&SiteMember| {
        let share = member.shares.get(index);
        let demand = share.and_then(|share| share.demand_per_second);
        vec![known(share.map(|share| share.held_per_second)), known(demand)]
    };
    let name = shown.first().and_then(|member| member.shares.get(index)).map_or("", |share| share.class.as_str());
    let class = site.classes.iter().find(|class| class.class == name);
    let guaranteed = class.map_or(String::new(), |class| format!(" {}", rate(class.guaranteed_per_second)));
    let mut lines = vec![OF_CLASS.map(str::to_owned).to_vec()];
    lines.extend(shown.iter().map(share));
    if has_unstated(site) {
        lines.push(vec![class.and_then(|class| class.unstated_per_second).map_or(String::new(), rate)]);
    }
    let sums = class.map(|class| [class.held_per_second, class.site_demand_per_second]).unwrap_or_default();
    lines.push(sums.map(known).to_vec());
    (format!("{}{guaranteed}  ", shortened(name, NAME)), lines)
}

/// Returns the widths of columns.
fn widths(lines: &[Vec<String>]) -> Vec<usize> {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
    (0..columns).map(|column| width(column).unwrap_or(0)).collect()
}

fn tenths(seconds: f64) -> String {
    span((10.0 * seconds).round() / 10.0)
}
