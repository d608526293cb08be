//! Times in which a machine was out, as the log shows them.
//!
//! A machine that is sent nothing while its peers are sent many requests was down, ejected or drained. The replay takes
//! it out for that time, under every policy. A log does not tell why it was out.

use std::collections::BTreeMap;
use std::time::Duration;

use weirgate_engine::Policy;

use crate::costs::Stay;

/// Requests that a machine would have been sent by its usual share before their lack counts as an outage. Chance leaves
/// out 25 in a row once in e²⁵ times.
const MIN_LACKING: f64 = 25.0;

/// Shortest outage. A shorter one cannot be told from a burst that another machine got.
const SHORTEST: u64 = 1_000_000_000;

/// A machine that was out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Name of the machine.
    pub machine: String,
    /// Start since the first arrival: the last request that it was sent before.
    pub from: Duration,
    /// End since the first arrival: the first request that it was sent again. `None` if there is none.
    pub until: Option<Duration>,
}

/// Finds outages in `stays`, whose machines are indices into `names`. `policy` tells which machines are peers. `first`
/// and `last` are the first arrival and the last one.
pub fn outages(stays: &[Stay], names: &[String], policy: &Policy, (first, last): (u64, u64)) -> Vec<Outage> {
    let pools = |machine: &str| -> Vec<usize> {
        let mut pools: Vec<usize> =
            policy.nodes.iter().filter(|node| node.machine == machine).map(|node| node.pool).collect();
        pools.sort_unstable();
        pools.dedup();
        pools
    };
    // Machines that serve the same pools are peers.
    let mut groups: BTreeMap<Vec<usize>, Vec<u32>> = BTreeMap::new();
    for (number, name) in (0u32..).zip(names) {
        groups.entry(pools(name)).or_default().push(number);
    }
    let mut sent: Vec<Vec<u64>> = vec![Vec::new(); names.len()];
    for stay in stays {
        if let Some(sent) = sent.get_mut(stay.machine as usize) {
            sent.push(stay.from);
        }
    }
    sent.iter_mut().for_each(|sent| sent.sort_unstable());
    let mut found = Vec::new();
    for group in groups.values().filter(|group| group.len() > 1) {
        let mut all: Vec<u64> = group.iter().flat_map(|machine| sent[*machine as usize].iter().copied()).collect();
        all.sort_unstable();
        for machine in group {
            let own = &sent[*machine as usize];
            let share = own.len() as f64 / all.len().max(1) as f64;
            let starts = std::iter::once(first).chain(own.iter().copied());
            let ends = own.iter().copied().map(Some).chain(std::iter::once(None));
            for (start, end) in starts.zip(ends) {
                let until = end.unwrap_or(last);
                let before = all.partition_point(|at| *at <= start);
                let between = all.partition_point(|at| *at < until).saturating_sub(before);
                // These were all sent to peers, which have the rest of the requests.
                let lacking = between as f64 * share / (1.0 - share).max(f64::MIN_POSITIVE);
                if lacking >= MIN_LACKING && until.saturating_sub(start) >= SHORTEST {
                    found.push(Outage {
                        machine: names[*machine as usize].clone(),
                        from: Duration::from_nanos(start.saturating_sub(first)),
                        until: end.map(|end| Duration::from_nanos(end.saturating_sub(first))),
                    });
                }
            }
        }
    }
    found.sort_by(|a, b| (a.from, &a.machine).cmp(&(b.from, &b.machine)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_gets_nothing_while_others_do_is_out() {
        let text =
            "listen: 127.0.0.1:1\nupstreams: { web: { nodes: ['a:1', 'b:1', 'c:1'] } }\nclasses: [{ name: all }]\n";
        let policy = weirgate_config::load("test", text).unwrap_or_else(|errors| panic!("{errors}")).site.policy;
        let names = ["a:1", "b:1", "c:1"].map(str::to_owned);
        // A hundred requests a second in turn. Machine b is out from 10 s to 15 s, and c from 20 s on.
        let mut stays = Vec::new();
        for n in 0..3000u64 {
            let (at, mut machine) = (n * 10_000_000, (n % 3) as u32);
            if machine == 1 && (1000..1500).contains(&n) || machine == 2 && n >= 2000 {
                machine = 0;
            }
            stays.push(Stay { machine, from: at, until: at + 5_000_000 });
        }
        let found = outages(&stays, &names, &policy, (0, 30_000_000_000));
        let said: Vec<(&str, u64, Option<u64>)> = found
            .iter()
            .map(|outage| (&*outage.machine, outage.from.as_secs(), outage.until.map(|until| until.as_secs())))
            .collect();
        assert_eq!(said, [("b:1", 9, Some(15)), ("c:1", 19, None)]);
        // With few requests nothing is said.
        assert!(outages(&stays[..200], &names, &policy, (0, 30_000_000_000)).is_empty());
    }
}
