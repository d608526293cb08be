//! Experiments that are made by programs and not read from a file: whatever is not given is off.

use std::time::Duration;

use weirgate_config::Site;

use crate::{
    DemandFrom, Distribution, Experiment, Fault, FaultKind, Machine, Phase, RequestShape, Source, Traffic, TrafficClass,
};

const NOTHING: Distribution = Distribution::Fixed(Duration::ZERO);

impl Experiment {
    /// Makes an experiment without traffic and without a name. `machine_of` has the machine of each node.
    pub fn plain(site: Site, machines: Vec<Machine>, machine_of: Vec<usize>, phases: Vec<Phase>) -> Experiment {
        Experiment {
            name: String::new(),
            title: String::new(),
            site,
            machines,
            machine_of,
            network_delay: Duration::ZERO,
            traffic: Vec::new(),
            phases,
            axis: None,
            settle: Duration::ZERO,
            faults: Vec::new(),
            reloads: Vec::new(),
            grid: Vec::new(),
            published: Vec::new(),
            reserves: None,
        }
    }
}

impl Traffic {
    /// Makes traffic whose requests cost this time on a CPU. Clients wait for ever and try once.
    pub fn plain(class: TrafficClass, source: Source, cpu: Distribution) -> Traffic {
        Traffic {
            class,
            name: None,
            source,
            session: None,
            documents: None,
            demand: vec![DemandFrom::plain(cpu)],
            traced: Vec::new(),
            senders: Vec::new(),
            sources: None,
            patience: None,
            retries: 0,
            retry_after: NOTHING,
            request: RequestShape::default(),
        }
    }
}

impl DemandFrom {
    /// Makes the demand of requests that cost this time on a CPU, from the start on.
    pub const fn plain(cpu: Distribution) -> DemandFrom {
        let (at, [io, disk, link, stream]) = (Duration::ZERO, [NOTHING; 4]);
        DemandFrom { at, over: at, cpu, io, disk, link, stream }
    }
}

impl Fault {
    /// Makes a fault of these machines, with all classes.
    pub fn plain(kind: FaultKind, at: Duration, until: Option<Duration>, machines: &[usize]) -> Fault {
        Fault { at, until, kind, machines: machines.to_vec(), classes: Vec::new() }
    }
}
