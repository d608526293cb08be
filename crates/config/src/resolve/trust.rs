//! The trust folder. Its files are read here, so that their faults are reported with their place in the policy.

use std::path::{Path, PathBuf};

use weirgate_spanned_yaml::decode::Context;
use weirgate_spanned_yaml::errors::quoted;
use weirgate_tls::trust::is_local;
use weirgate_tls::{Trust, is_party_name};

use super::listener;
use super::upstream::Pools;
use crate::file::PolicyFile;
use crate::site::agent_name;

/// Returns the trust folder. Paths count from `folder`. `None` is a policy in another file, which describes a gateway
/// elsewhere.
pub(super) fn trust(file: &PolicyFile, folder: Option<&Path>, cx: &mut Context) -> Option<PathBuf> {
    let (text, from) = (file.trust.get()?, folder?);
    let path = from.join(&text.0);
    match Trust::load(&path) {
        Ok(trust) => listener::date(trust.certificate(), file.trust.mark, cx),
        Err(faults) => {
            for fault in faults {
                cx.fail(file.trust.mark, fault.what, fault.hint);
            }
        }
    }
    Some(path)
}

/// Reports collectors on other machines without a proof of identity, and collectors with agents that cannot have
/// certificates.
pub(super) fn check_collectors(file: &PolicyFile, pools: &Pools, cx: &mut Context) {
    let upstreams = file.upstreams.get().map_or(&[][..], |upstreams| &upstreams.items);
    let named = upstreams.iter().filter_map(|item| Some((item.value.mark, item.value.get()?)));
    for (pool, (mark, upstream)) in named.enumerate() {
        let Some(collector) = pools.pool_sites.get(pool).and_then(|site| site.collector.as_ref()) else { continue };
        let mark = if upstream.collector.given { upstream.collector.mark } else { mark };
        let members = pools.nodes.iter().zip(&pools.node_sites).filter(|(node, _)| node.pool == pool);
        let members: Vec<_> = members.map(|(node, site)| (node, site, collector.at(&site.address))).collect();
        let elsewhere = members.iter().find(|(_, _, agent)| !is_local(agent)).map(|(_, site, _)| site.address.as_str());
        let discovered = || upstream.discover.given.then(|| "discovered nodes".to_owned());
        let elsewhere = elsewhere.map(quoted).or_else(discovered);
        if let Some(elsewhere) = elsewhere.filter(|_| !file.trust.given) {
            let what = format!("the collector of {elsewhere} could be anyone, because there is no `trust`");
            let hint = "make certificates with `weirgate pki` and write `trust:` with their folder";
            cx.fail(mark, what, hint);
        }
        let mut names = members.iter().map(|(node, site, agent)| agent_name(&node.name, &site.address, agent));
        if let Some(name) = names.find(|name| file.trust.given && !is_party_name(name)) {
            let what = format!("a certificate cannot be for an agent called {}", quoted(name));
            cx.fail(mark, what, "give the node a `name:`");
        }
    }
}
