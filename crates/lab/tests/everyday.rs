//! The everyday cases over real sockets, `experiments/everyday-sockets/`. Each exists twice, on emulated
//! nodes and on Apache with few workers. Its guaranteed classes send no more than their guarantees.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weirgate_experiment::{
    Deployment, Experiment, Profile, Service, Source, TrafficClass, deployed_policies, load_experiment_file,
    under_discipline,
};

/// Returns the file and the experiment of each case, by its name.
fn cases() -> BTreeMap<String, (PathBuf, Experiment)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/everyday-sockets");
    let files = std::fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("readable").path());
    let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    files
        .map(|path| {
            let loaded = load_experiment_file(&path, &[]).unwrap_or_else(|errors| panic!("{errors}"));
            assert_eq!(loaded.warning_lines("it"), Vec::<String>::new(), "{}", path.display());
            (loaded.experiment.name.clone(), (path, loaded.experiment))
        })
        .collect()
}

#[test]
fn every_case_is_played_on_emulated_nodes_and_on_apache_with_few_workers() {
    let cases = cases();
    assert_eq!(cases.len(), 10);
    for (name, (path, experiment)) in &cases {
        assert!(
            std::fs::read_to_string(path).expect("it is there").starts_with("# "),
            "{name} does not say what it shows"
        );
        let real = name.ends_with("-apache");
        let twin = if real { name.trim_end_matches("-apache").to_owned() } else { format!("{name}-apache") };
        assert!(cases.contains_key(&twin), "{name} is there once");
        for machine in &experiment.machines {
            let few = machine.concurrency.is_some_and(|workers| (2..=8).contains(&workers));
            assert_eq!((machine.service == Service::ApachePhp, real && few), (real, real), "{name}");
        }
    }
}

#[test]
fn guaranteed_classes_ask_for_no_more_than_they_are_guaranteed() {
    for (name, (_, experiment)) in cases() {
        let classes = &experiment.site.policy.classes;
        assert_eq!(classes[0].name, "gold", "{name}");
        assert!(classes[0].guarantee.response_time.is_some(), "{name}");
        for (class, policy) in classes.iter().enumerate() {
            let Some(floor) = policy.guarantee.throughput else { continue };
            let of = experiment.traffic.iter().filter(|traffic| traffic.class == TrafficClass::Class(class));
            let rates: Vec<&Profile> = of
                .map(|traffic| match &traffic.source {
                    Source::Open { rate, .. } => rate,
                    other => panic!("{name}: {} comes as {other:?}", policy.name),
                })
                .collect();
            for second in 0..experiment.duration().as_secs() {
                let asked: f64 = rates.iter().map(|rate| rate.at(Duration::from_secs(second))).sum();
                assert!(
                    asked > 0.0 && asked <= 0.95 * floor,
                    "{name}: {} asks for {asked}/s of {floor}/s",
                    policy.name
                );
            }
        }
    }
}

/// The policy for `weirgate run` is valid by itself.
#[test]
fn every_policy_can_be_deployed() {
    for (name, (path, experiment)) in cases() {
        let nodes = experiment.site.policy.nodes.iter().cloned().zip(20_001..);
        let nodes = nodes.map(|(node, port): (_, u16)| (node, SocketAddr::from(([127, 0, 0, 1], port)))).collect();
        let (listen, admin) = (([127, 0, 0, 1], 8080).into(), "unix:/run/x.sock".to_owned());
        let deployment = Deployment { listen, admin, threads: 1, nodes };
        let text =
            deployed_policies(&path, &[under_discipline("weirgate")], &deployment).expect("it can be deployed").first;
        weirgate_config::load("deployed", &text).unwrap_or_else(|errors| panic!("{name}: {errors}"));
    }
}
