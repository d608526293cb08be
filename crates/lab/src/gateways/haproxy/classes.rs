//! One backend per class over the same servers, with a small number of slots in each server.
//!
//! Source: HAProxy 2.6, configuration manual, 5.2 (`maxconn`) and 4.2 (`timeout queue`). `maxconn` counts
//! per backend. A class can fill only its own slots, so a class of long requests cannot take the slots of
//! another. The price is that slots stay idle when their class has no requests.

use super::config::Backend;
use crate::gateways::Approach;
use crate::gateways::knob::{Share, Slots};
use crate::gateways::terms::{Class, Pool, Server};

/// Returns one backend for each class of `pools`.
///
/// # Errors
/// A knob is a multiple of the load of a class that has no `service_time`.
pub(super) fn plan<'p>(pools: &'p [Pool<'p>], approach: &Approach) -> Result<Vec<Backend<'p>>, String> {
    let (maxconn, rest): (Slots, Slots) = (approach.knob("maxconn")?, approach.knob("rest")?);
    let Share(queue) = approach.knob("queue")?;
    let backend = |pool: &'p Pool<'p>, class: &'p Class<'p>| {
        let bounded = |server: &Server<'p>| {
            let places = match class.floor {
                Some(_) => maxconn
                    .of(class.slots_in(server, pool), server.workers)
                    .map_err(|why| format!("class {}: maxconn: {why}", class.name)),
                None => rest.of(None, server.workers).map_err(|why| format!("class {}: rest: {why}", class.name)),
            };
            // A server has no more slots than workers, even if the class needs more.
            places.map(|places| (places.into_iter().chain(server.workers).min(), server.clone()))
        };
        Ok(Backend {
            name: class.name.to_owned(),
            pool,
            classes: vec![class],
            servers: pool.servers.iter().map(bounded).collect::<Result<_, String>>()?,
            queue: class.limit.map_or(class.max_wait, |limit| limit.mul_f64(queue)),
            within: 1.0,
        })
    };
    pools.iter().flat_map(|pool| pool.classes.iter().map(move |class| backend(pool, class))).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::gateways::golden::{addresses, example, golden, own_address, setting};
    use crate::gateways::haproxy::config::{self, Style};
    use crate::gateways::knob::PerSource;
    use crate::gateways::terms::pools;

    /// Returns the slots of each class of the example in the first and in the second server.
    fn places(knobs: &str, overrides: &[&str]) -> Result<Vec<[Option<u32>; 2]>, String> {
        let (experiment, addresses) = (example(overrides), addresses());
        let pools = pools(&setting(&experiment, &addresses))?;
        let backends = plan(&pools, &Approach::parse(&format!("haproxy-classes:{knobs}"))?)?;
        Ok(backends.iter().map(|backend| [backend.servers[0].0, backend.servers[1].0]).collect())
    }

    #[test]
    fn golden_text_of_the_example() {
        let (experiment, addresses) = (example(&[]), addresses());
        let pools = pools(&setting(&experiment, &addresses)).unwrap();
        let approach = Approach::parse("haproxy-classes").unwrap();
        let backends = plan(&pools, &approach).unwrap();
        let text = config::text(
            &approach,
            Style::Tuned,
            &backends,
            PerSource(None),
            (own_address(), Path::new("/run/lab.sock")),
        );
        golden("haproxy-classes.cfg", &text);
    }

    #[test]
    fn a_class_gets_a_multiple_of_its_load_in_each_server_and_no_more_than_it_has_workers() {
        // By Little's law the classes need 2 and 6 slots, two thirds of them in the first server.
        let some = |a, b| [Some(a), Some(b)];
        assert_eq!(places("", &[]).unwrap(), [some(3, 2), some(8, 4), some(1, 1)]);
        assert_eq!(places("maxconn=4x,rest=4", &[]).unwrap(), [some(6, 3), some(8, 8), some(4, 4)]);
        assert_eq!(places("maxconn=workers,rest=off", &[]).unwrap(), [some(8, 8), some(8, 8), some(8, 8)]);
        let unlimited = places("maxconn=off,rest=workers", &["machines.concurrency=null"]).unwrap();
        assert_eq!(unlimited, [[None, None]; 3]);
        let unknown = places("", &["policy.classes.gold.service_time=null"]).unwrap_err();
        assert!(unknown.starts_with("class gold: maxconn: a multiple needs `service_time`"), "{unknown}");
    }
}
