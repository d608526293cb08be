//! Nodes from the DNS: the addresses of a name, or its service records.
//!
//! Source: RFC 1035 and 3596 for A and AAAA records, RFC 2782 for SRV. Departures from the latter:
//!
//! - Only the records of the lowest priority are nodes, even while all of them are down. Two sets of nodes would be in
//!   force while one of them fails now and then.
//! - A weight of 0 counts as 1. The RFC gives it "a very small chance", and a node without any share could not be seen
//!   to work.
//! - The names in the records are not resolved here. Each new connection resolves the name of its node, as for nodes
//!   that the policy names.
//!
//! An answer counts as a whole: if the A records are there and the query for AAAA fails, the look has failed, because
//! half of the nodes would seem to have left. hickory's cache is off, because each record is asked for when its time to
//! live has passed. `/etc/hosts` is not read: it names no sets, and never changes without the operator.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use weirgate_config::Resolvers;

use crate::found::Found;

/// Nodes, and the time for which they are known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answered {
    pub(crate) nodes: Vec<Found>,
    /// Least time to live of the records.
    pub(crate) ttl: Duration,
}

/// A service record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Service {
    priority: u16,
    weight: u16,
    port: u16,
    target: String,
}

/// Makes a resolver.
///
/// # Errors
/// `/etc/resolv.conf` is not valid.
pub(crate) fn resolver(settings: &Resolvers) -> Result<TokioResolver, String> {
    let runtime = TokioRuntimeProvider::default();
    let mut builder = match settings.servers.as_slice() {
        [] => TokioResolver::builder(runtime).map_err(|error| format!("/etc/resolv.conf: {error}"))?,
        servers => {
            let server = |address: &SocketAddr| {
                let mut server = NameServerConfig::udp_and_tcp(address.ip());
                server.connections.iter_mut().for_each(|connection| connection.port = address.port());
                server
            };
            let servers = servers.iter().map(server).collect();
            TokioResolver::builder_with_config(ResolverConfig::from_name_servers(servers), runtime)
        }
    };
    let options = builder.options_mut();
    options.timeout = settings.timeout;
    // hickory counts the attempts after the first.
    options.attempts = settings.attempts.saturating_sub(1);
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    builder.build().map_err(|error| error.to_string())
}

/// Asks for the addresses of a name.
///
/// # Errors
/// There is no answer, or it has no address or more than `max_nodes`.
pub(crate) async fn addresses(
    resolver: &TokioResolver,
    name: &str,
    port: u16,
    max_nodes: usize,
) -> Result<Answered, String> {
    let (four, six) = tokio::join!(records(resolver, name, RecordType::A), records(resolver, name, RecordType::AAAA));
    let (mut records, six) = (four?, six?);
    records.extend(six);
    let address = |record: &Record| match record.data {
        RData::A(address) => Some(IpAddr::V4(address.0)),
        RData::AAAA(address) => Some(IpAddr::V6(address.0)),
        _ => None,
    };
    let found = records.iter().filter_map(address).collect();
    let nodes = bounded(of_addresses(found, port), max_nodes, "the name has no address")?;
    Ok(Answered { nodes, ttl: ttl(&records) })
}

/// Asks for the service records of a name.
///
/// # Errors
/// There is no answer, or it has no service or more than `max_nodes`.
pub(crate) async fn services(resolver: &TokioResolver, name: &str, max_nodes: usize) -> Result<Answered, String> {
    let records = records(resolver, name, RecordType::SRV).await?;
    let service = |record: &Record| match &record.data {
        RData::SRV(found) => Some(Service {
            priority: found.priority,
            weight: found.weight,
            port: found.port,
            target: found.target.to_utf8(),
        }),
        _ => None,
    };
    let services: Vec<Service> = records.iter().filter_map(service).collect();
    let nodes = bounded(of_services(&services)?, max_nodes, "the name has no service record")?;
    Ok(Answered { nodes, ttl: ttl(&records) })
}

/// Returns the records of a name, or none if there are none of this type.
async fn records(resolver: &TokioResolver, name: &str, kind: RecordType) -> Result<Vec<Record>, String> {
    match resolver.lookup(name, kind).await {
        Ok(found) => Ok(found.answers().to_vec()),
        Err(error) if error.is_no_records_found() => Ok(Vec::new()),
        Err(error) => Err(format!("{kind}: {}", plain(&error))),
    }
}

/// Returns an error as a line that is the same each time, so that it is logged once.
fn plain(error: &NetError) -> String {
    error.to_string().chars().filter(|c| !c.is_control()).take(200).collect()
}

/// Least time to live of records. Without any it is zero, and the caller's bound decides.
fn ttl(records: &[Record]) -> Duration {
    Duration::from_secs(u64::from(records.iter().map(|record| record.ttl).min().unwrap_or(0)))
}

fn bounded(nodes: Vec<Found>, max_nodes: usize, none: &str) -> Result<Vec<Found>, String> {
    match nodes.len() {
        0 => Err(none.to_owned()),
        count if count > max_nodes => Err(format!("there are more than {max_nodes} nodes; raise `max_nodes`")),
        _ => Ok(nodes),
    }
}

/// Returns a node for each address, sorted.
fn of_addresses(addresses: Vec<IpAddr>, port: u16) -> Vec<Found> {
    let nodes = addresses.into_iter().map(|address| (SocketAddr::new(address, port).to_string(), 1.0));
    let nodes: BTreeMap<String, f64> = nodes.collect();
    nodes.into_iter().map(|(address, weight)| Found { address, weight }).collect()
}

/// Returns a node for each service of the lowest priority, sorted. A service that is there twice has the sum of the
/// weights. The target `.` says that there is none.
fn of_services(services: &[Service]) -> Result<Vec<Found>, String> {
    let offered = || services.iter().filter(|service| service.target != "." && service.port != 0);
    let lowest = offered().map(|service| service.priority).min();
    let mut nodes: BTreeMap<String, f64> = BTreeMap::new();
    for service in offered().filter(|service| Some(service.priority) == lowest) {
        let host = service.target.strip_suffix('.').unwrap_or(&service.target);
        let address = weirgate_config::node_address(&format!("{host}:{}", service.port))?;
        *nodes.entry(address).or_default() += f64::from(service.weight.max(1));
    }
    Ok(nodes.into_iter().map(|(address, weight)| Found { address, weight }).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn service(priority: u16, weight: u16, port: u16, target: &str) -> Service {
        Service { priority, weight, port, target: target.into() }
    }

    fn shown(services: &[Service]) -> Vec<(String, f64)> {
        of_services(services).expect("names").into_iter().map(|node| (node.address, node.weight)).collect()
    }

    #[test]
    fn the_lowest_priority_is_used() {
        let all = [
            service(20, 1, 80, "spare.test."),
            service(10, 3, 80, "B.test."),
            service(10, 0, 8080, "a.test."),
            service(10, 2, 80, "b.test."),
        ];
        assert_eq!(shown(&all), [("a.test:8080".into(), 1.0), ("b.test:80".into(), 5.0)]);
        assert_eq!(shown(&all[..1]), [("spare.test:80".into(), 1.0)]);
    }

    #[test]
    fn a_service_that_is_not_offered_is_no_node() {
        assert_eq!(shown(&[service(0, 0, 0, ".")]), []);
        assert_eq!(shown(&[service(0, 0, 80, "."), service(5, 1, 80, "a.test.")]), [("a.test:80".into(), 1.0)]);
        assert!(of_services(&[service(0, 1, 80, "no name.test.")]).is_err());
    }

    #[test]
    fn addresses_of_both_families_are_nodes() {
        let addresses = ["10.0.0.2", "::1", "10.0.0.2"].map(|text| text.parse().expect("an address"));
        let nodes: Vec<String> = of_addresses(addresses.to_vec(), 80).into_iter().map(|node| node.address).collect();
        assert_eq!(nodes, ["10.0.0.2:80", "[::1]:80"]);
        assert_eq!(bounded(Vec::new(), 1, "none"), Err("none".into()));
        assert!(bounded(of_addresses(addresses.to_vec(), 80), 1, "none").is_err());
    }

    proptest! {
        /// Whatever the order of the records, the nodes are the same, sorted and of one priority.
        #[test]
        fn the_order_of_records_does_not_matter(
            records in prop::collection::vec((0u16..3, 0u16..5, 1u16..4, 0u8..3), 1..12), by in 0usize..12,
        ) {
            let mut services: Vec<Service> = records
                .iter()
                .map(|(priority, weight, port, n)| service(*priority, *weight, *port, &format!("n{n}.test.")))
                .collect();
            let nodes = of_services(&services).expect("names");
            let lowest = records.iter().map(|record| record.0).min();
            let total: u16 = records.iter().filter(|r| Some(r.0) == lowest).map(|r| r.1.max(1)).sum();
            prop_assert_eq!(nodes.iter().map(|node| node.weight).sum::<f64>(), f64::from(total));
            prop_assert!(nodes.is_sorted_by(|a, b| a.address < b.address));
            let by = by % services.len();
            services.rotate_left(by);
            prop_assert_eq!(of_services(&services).expect("names"), nodes);
        }
    }
}
