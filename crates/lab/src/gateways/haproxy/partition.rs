//! Physical partitioning: divides the servers of a pool among its classes.
//!
//! Source: Blanquer et al., *Quorum* (NSDI 2005), Sec. 4.1, which sets a group of machines aside for each
//! class. The paper does not give their sizes. Here they are in proportion to guaranteed rate × service
//! time, which divides the ten nodes of the paper's Table 3 as 2 : 5 : 3.

use crate::gateways::terms::{Pool, Server};

/// Returns the servers of each class of `pool`, at least one per class.
///
/// # Errors
/// There are fewer servers than classes, or a class with a floor has no service time by which to size its part.
pub(super) fn divide<'p>(pool: &Pool<'p>) -> Result<Vec<Vec<Server<'p>>>, String> {
    if pool.servers.len() < pool.classes.len() {
        let (servers, classes) = (pool.servers.len(), pool.classes.len());
        return Err(format!("pool {} has {servers} nodes for {classes} classes; each needs one of its own", pool.name));
    }
    let mut owed = Vec::new();
    for class in &pool.classes {
        owed.push(match (class.floor, class.slots()) {
            // The class has no guarantee and gets one server, because it needs at least one.
            (None, _) => 0.0,
            (Some(_), Some(slots)) => slots,
            (Some(_), None) => return Err(format!("class {} has no `service_time`, which sizes its part", class.name)),
        });
    }
    let total: f64 = owed.iter().sum();
    let weight: f64 = pool.servers.iter().map(|server| f64::from(server.weight)).sum();
    // Each class lacks a share of the weight. Heavy servers are assigned first, because light ones even out
    // the rest. Each server goes to the class that lacks the largest weight, but the last servers are kept
    // for classes that have none yet.
    let share = |owed: f64| if total > 0.0 { owed / total * weight } else { weight / pool.classes.len() as f64 };
    let mut lacks: Vec<f64> = owed.into_iter().map(share).collect();
    let mut parts: Vec<Vec<Server<'p>>> = vec![Vec::new(); lacks.len()];
    let mut servers = pool.servers.clone();
    servers.sort_by_key(|server| std::cmp::Reverse(server.weight));
    for (taken, server) in servers.into_iter().enumerate() {
        let left = pool.servers.len() - taken;
        let without = parts.iter().filter(|part| part.is_empty()).count();
        let open = |class: &usize| left > without || parts[*class].is_empty();
        let first = |best: usize, class: usize| if lacks[class] > lacks[best] { class } else { best };
        let Some(class) = (0..parts.len()).filter(open).reduce(first) else { continue };
        lacks[class] -= f64::from(server.weight);
        parts[class].push(server);
    }
    for part in &mut parts {
        part.sort_by_key(|server| server.node);
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weirgate_experiment::load_experiment_file;

    use super::*;
    use crate::gateways::Setting;
    use crate::gateways::terms::pools;

    /// Returns the node numbers of each class in the first pool of an experiment.
    fn parts(name: &str, overrides: &[&str]) -> Result<Vec<Vec<usize>>, String> {
        let file = format!("{}/../../experiments/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
        let overrides: Vec<_> = overrides.iter().map(|text| text.parse().expect("an override")).collect();
        let experiment = load_experiment_file(Path::new(&file), &overrides).expect("a sound file").experiment;
        let addresses = vec![([127, 0, 0, 1], 1).into(); experiment.site.policy.nodes.len()];
        let setting = Setting {
            experiment: &experiment,
            addresses: &addresses,
            directory: Path::new("/nowhere"),
            source: None,
            cpu: None,
        };
        let divided = divide(&pools(&setting)?[0])?;
        Ok(divided.iter().map(|part| part.iter().map(|server| server.node).collect()).collect())
    }

    fn sizes(parts: &[Vec<usize>]) -> Vec<usize> {
        parts.iter().map(Vec::len).collect()
    }

    #[test]
    fn the_papers_ten_nodes_are_divided_two_five_three() {
        let parts = parts("quorum-table3", &[]).unwrap();
        assert_eq!(sizes(&parts), [2, 5, 3]);
        let mut all = parts.concat();
        all.sort_unstable();
        assert_eq!(all, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn everybody_gets_one_however_little_is_owed() {
        let tiny = "policy.classes.A.guarantee.throughput=1/s";
        assert_eq!(sizes(&parts("quorum-fig9", &[tiny]).unwrap()), [1, 7]);
        assert_eq!(sizes(&parts("quorum-fig9", &["policy.classes.*.guarantee=null"]).unwrap()), [4, 4]);
    }

    #[test]
    fn heavy_servers_count_for_more() {
        let parts = parts("quorum-fig9", &["policy.upstreams.cluster.nodes.0.capacity=14"]).unwrap();
        assert_eq!(parts, [vec![0], vec![1, 2, 3, 4, 5, 6, 7]]);
    }

    #[test]
    fn what_cannot_be_divided_is_said() {
        let few = parts("quorum-fig9", &["policy.upstreams.cluster.nodes=[n1:80]"]).unwrap_err();
        assert!(few.contains("pool cluster has 1 nodes for 2 classes"), "{few}");
        let unknown = parts("quorum-fig9", &["policy.classes.A.service_time=null"]).unwrap_err();
        assert!(unknown.contains("class A has no `service_time`"), "{unknown}");
    }
}
