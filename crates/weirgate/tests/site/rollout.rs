//! A policy that is rolled out is in force on all gateways, or on none.

use std::process::Command;

use weirgate_wire::RolloutState;

use crate::gateway::{FLOOR, Plan, Site};

/// Rolls out the policy of the first gateway with this change. Returns whether it is in force, and the messages.
fn roll_out(site: &Site, change: impl FnOnce(String) -> String) -> (bool, String) {
    let text = change(site.gateways[0].policy());
    let file = site.folder().join("next.yaml");
    std::fs::write(&file, text).expect("the folder is writable");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
    command.args(["site", "rollout", "--watch", "3s"]).arg(&file);
    command.args(["--gateway", &format!("{}:9900", site.net.data(Some("gw1")))]);
    command.arg("--trust").arg(site.folder().join("issued/operator-test"));
    let done = command.env_remove("WEIRGATE_ADMIN_TOKEN").output().expect("the binary starts");
    (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
}

#[test]
fn a_policy_is_rolled_out_to_all_gateways_or_to_none() {
    let plan = Plan { is_shared: true, ..Plan::new(3, "  rollouts: true\n") };
    let Some(mut site) = Site::of(&plan) else { return };
    site.elected();
    let guarantee = |site: &Site| -> Vec<f64> {
        let of = |one: &crate::gateway::Gateway| one.site().map_or(0.0, |site| site.classes[0].guaranteed_per_second);
        site.gateways.iter().map(of).collect()
    };
    let before: Vec<String> = site.gateways.iter().map(|gateway| gateway.policy()).collect();
    let larger = |text: String| text.replace(&format!("throughput: {FLOOR}/s"), "throughput: 120/s");
    let (done, said) = roll_out(&site, larger);
    assert!(done && said.contains("tries the policy for 3 s"), "{said} {:#?}", site.lines());
    site.wait("all have it", |site| guarantee(site) == [120.0; 3]);
    assert!(site.gateways.iter().zip(&before).all(|(gateway, before)| gateway.policy() == larger(before.clone())));

    // One that no gateway can use changes nothing.
    let (done, said) = roll_out(&site, |text| text.replace("throughput: 120/s", "throughput: many"));
    assert!(!done && said.contains("withdrawn"), "{said} {:#?}", site.lines());
    assert_eq!(guarantee(&site), [120.0; 3]);

    // The gateway that tries one with a node that is not there finds its requests refused, and goes back.
    site.gateways.iter().for_each(|gateway| gateway.gold.load(30.0));
    site.wait("requests are served", |site| site.gateways.iter().all(|gateway| gateway.gold.good() > 30));
    let node = site.node();
    let (done, said) = roll_out(&site, |text| text.replace(&node, "127.0.0.1:1"));
    assert!(!done && said.contains("of its requests were not answered"), "{said} {:#?}", site.lines());
    site.wait("all have the one before", |site| site.gateways.iter().all(|one| one.policy().contains(&node)));
    site.wait("nothing is left of it", |site| {
        let files = |one: &crate::gateway::Gateway| std::fs::read_dir(site.folder().join(&one.name)).expect("a folder");
        let of_trial = |file: &std::fs::DirEntry| file.file_name().to_string_lossy().contains(".before-");
        site.gateways.iter().all(|one| !files(one).flatten().any(|file| of_trial(&file)))
    });

    // The others do not wait for a gateway that is away. It follows when it is back.
    let away = (0..3).find(|index| *index != 0).expect("three gateways");
    site.gateways[away].kill();
    let (done, said) = roll_out(&site, |text| text.replace("throughput: 120/s", "throughput: 90/s"));
    assert!(done && said.contains("gw2 cannot be reached, and follows later"), "{said} {:#?}", site.lines());
    site.gateways[away].begin(&site.net);
    site.wait("it has followed", |site| guarantee(site) == [90.0; 3]);

    // One that cannot use the policy when it is back keeps the one before, and says why.
    let (lacks, others) = (away, (0..3).filter(|index| *index != away));
    let list = |site: &Site, index: usize| site.folder().join(&site.gateways[index].name).join("partners.txt");
    others.for_each(|index| std::fs::write(list(&site, index), "192.0.2.0/24\n").expect("the folder is writable"));
    site.gateways[lacks].kill();
    let before = site.gateways[lacks].policy();
    let class = "classes:\n  - { name: partners, match: { source: { file: partners.txt } } }\n";
    let (done, said) = roll_out(&site, |text| text.replace("classes:\n", class));
    assert!(done && said.contains("gw2 cannot be reached, and follows later"), "{said} {:#?}", site.lines());
    // It may have refused the trial before as well, unless another one was faster.
    let refused = |site: &Site| site.gateways[lacks].said("refuses the policy");
    let before_it = refused(&site);
    site.gateways[lacks].begin(&site.net);
    site.wait("it refuses", |site| site.gateways[lacks].said("partners.txt") > 0 && refused(site) > before_it);
    assert_eq!(site.gateways[lacks].policy(), before);
    let answer = site.gateways[lacks].site().and_then(|site| site.rollout).and_then(|rollout| rollout.answer);
    assert_eq!(answer.map(|answer| answer.state), Some(RolloutState::Refused));
    // The guarantees are the same, so it goes on with its share of them, and follows when it can.
    site.follows(&[20.0, 40.0, 20.0]);
    std::fs::write(list(&site, lacks), "192.0.2.0/24\n").expect("the folder is writable");
    site.wait("it follows", |site| site.gateways[lacks].policy().contains("partners.txt"));
    let sum = site.largest_sum();
    assert!(sum <= 120.0 + 1e-3, "{sum}");
}
