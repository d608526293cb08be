//! One cluster with circuit breakers per class over the same servers, and a gradient limit with a measured
//! ideal time.
//!
//! Source: envoyproxy.io, "Circuit breaking" and "Adaptive Concurrency". Breakers count per cluster, so a
//! class can fill only its own slots. `per_host_thresholds` bounds the connections to each server, and a
//! request that finds none free waits (`max_pending_requests`). The adaptive filter measures its ideal
//! response time at the minimum limit, which is Envoy's default. It uses nothing of the policy's
//! `service_time`.
//!
//! Departure: a class without a guarantee has no adaptive filter, because its fixed bound is already small.

use std::time::Duration;

use super::config::{Breakers, Cluster, Filter, MEASURED};
use crate::gateways::Approach;
use crate::gateways::knob::{Share, Slots};
use crate::gateways::terms::{Class, Pool};

/// Relative increase in response time that the adaptive filter does not count as congestion. It is Envoy's default.
const BUFFER: f64 = 0.25;

/// Interval between two steps of the adaptive limit. It is Envoy's default.
const UPDATE: Duration = Duration::from_millis(100);

/// Returns the filter of the guaranteed classes.
///
/// # Errors
/// A knob has an invalid value.
pub(super) fn filter(approach: &Approach) -> Result<Filter, String> {
    let Share(deadline) = approach.knob("deadline")?;
    if approach.knob::<String>("rtt")? != MEASURED {
        return Ok(Filter::Off { deadline });
    }
    // While it measures, its limit is the number of slots that the breakers allow.
    let min = approach.knob("requests")?;
    Ok(Filter::Adaptive { per_class: true, rtt: None, buffer: BUFFER, min, update: UPDATE, deadline: Some(deadline) })
}

/// Returns a cluster for each class of `pools`.
///
/// # Errors
/// A knob is a multiple of the load of a class that has no `service_time`.
pub(super) fn clusters<'p>(pools: &'p [Pool<'p>], approach: &Approach) -> Result<Vec<Cluster<'p>>, String> {
    let (requests, rest): (Slots, Slots) = (approach.knob("requests")?, approach.knob("rest")?);
    let Share(pending) = approach.knob("pending")?;
    let waiting = approach.knob("waiting")?;
    let cluster = |pool: &'p Pool<'p>, class: &'p Class<'p>| {
        // One number serves all servers: that of the server with the largest share.
        let mut each = Some(0);
        for server in &pool.servers {
            let places = match class.floor {
                Some(_) => requests
                    .of(class.slots_in(server, pool), server.workers)
                    .map_err(|why| format!("class {}: requests: {why}", class.name))?,
                None => rest.of(None, server.workers).map_err(|why| format!("class {}: rest: {why}", class.name))?,
            };
            // A server has no more slots than workers, even if the class needs more.
            let places = places.into_iter().chain(server.workers).min();
            each = each.zip(places).map(|(max, places)| max.max(places));
        }
        let pending = match (class.floor, class.limit) {
            (Some(floor), Some(limit)) => ((floor * limit.as_secs_f64() * pending).ceil() as u32).max(1),
            _ => waiting,
        };
        let breakers = Some(Breakers { each, pending });
        Ok(Cluster { name: class.name.to_owned(), pool, classes: vec![class], breakers })
    };
    pools.iter().flat_map(|pool| pool.classes.iter().map(move |class| cluster(pool, class))).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::gateways::envoy::config::{self, Endpoints};
    use crate::gateways::golden::{addresses, example, golden, own_address, setting};
    use crate::gateways::terms::pools;

    /// Returns Envoy's configuration for the example.
    fn text(knobs: &str) -> String {
        let (experiment, addresses) = (example(&[]), addresses());
        let pools = pools(&setting(&experiment, &addresses)).unwrap();
        let approach = Approach::parse(&format!("envoy-classes{knobs}")).unwrap();
        let endpoints: Vec<_> =
            pools.iter().map(|pool| Endpoints::new(pool, Path::new("/results/endpoints"))).collect();
        let (filter, clusters) = (filter(&approach).unwrap(), clusters(&pools, &approach).unwrap());
        config::text(
            &approach,
            &filter,
            &clusters,
            approach.knob("source").expect("it is sound"),
            (own_address(), Path::new("/run/lab.sock")),
            &endpoints,
        )
    }

    #[test]
    fn golden_text_of_the_example() {
        golden("envoy-classes.yaml", &text(""));
    }

    #[test]
    fn without_a_measured_time_breakers_are_all_there_is() {
        let text = text(":rtt=off");
        assert!(!text.contains("adaptive_concurrency") && text.matches("per_host_thresholds").count() == 3, "{text}");
    }

    #[test]
    fn breakers_have_the_places_of_the_server_with_the_largest_part() {
        let breakers = |knobs: &str, overrides: &[&str]| -> Result<Vec<Breakers>, String> {
            let (experiment, addresses) = (example(overrides), addresses());
            let pools = pools(&setting(&experiment, &addresses))?;
            let clusters = clusters(&pools, &Approach::parse(&format!("envoy-classes:{knobs}"))?)?;
            Ok(clusters.iter().filter_map(|cluster| cluster.breakers).collect())
        };
        let of = |each: u32, pending: u32| Breakers { each: Some(each), pending };
        // In half of 400 ms, 100/s serves 20 waiting requests. A class without a limit has Envoy's own bound.
        assert_eq!(breakers("", &[]).unwrap(), [of(3, 20), of(8, 1024), of(1, 1024)]);
        assert_eq!(breakers("requests=1x,pending=90%,rest=2", &[]).unwrap(), [of(2, 36), of(4, 1024), of(2, 1024)]);
        assert_eq!(breakers("waiting=16", &[]).unwrap(), [of(3, 20), of(8, 16), of(1, 16)]);
        let unlimited = breakers("requests=workers,rest=off", &["machines.concurrency=null"]).unwrap();
        assert!(unlimited.iter().all(|breakers| breakers.each.is_none()), "{unlimited:?}");
        let unknown = breakers("", &["policy.classes.gold.service_time=null"]).unwrap_err();
        assert!(unknown.starts_with("class gold: requests: a multiple needs `service_time`"), "{unknown}");
    }
}
