//! A run of three approaches, two of them with two seeds. Weirgate holds all guarantees, Quorum misses a
//! ceiling, and a proxy serves more in total at B's expense.

use weirgate_lab::report::{
    Clients, ConfigFile, CoreUse, Evidence, Ids, Lateness, Machine, Quantiles, RunFile, Trial, VERSION,
};
use weirgate_verdict::report::{
    ClassSeries, Outline, OutlinedClass, OutlinedFault, OutlinedFigure, OutlinedPhase, Series,
};
use weirgate_verdict::{
    CeilingVerdict, ClassVerdict, FloorVerdict, Part, PhaseVerdict, ResponseTimes, Sheds, Verdict, Word,
};

const PHASES: [(&str, f64, f64, bool); 3] =
    [("warm-up", 0.0, 10.0, false), ("calm", 10.0, 30.0, true), ("node-out", 30.0, 60.0, true)];

/// Returns a verdict with served rate and p95 (ms) of A and served rate of B, the same in every phase.
pub(crate) fn verdict(approach: &str, seed: u64, a: (f64, f64), b: f64) -> Verdict {
    let class = |name: &str, served: f64, p95: Option<f64>| {
        let floor =
            FloorVerdict { guaranteed_per_s: 100.0, owed_per_s: 100.0, counted_per_s: served, ok: served >= 99.0 };
        let ceiling = p95.map(|p95| CeilingVerdict {
            statistic: "p95".into(),
            limit_ms: 50.0,
            value_ms: Some(p95),
            ok: p95 <= 50.0,
            impossible_ms: None,
        });
        let part = Part {
            offered_per_s: 150.0,
            served_per_s: served,
            in_time_per_s: served,
            floor: Some(floor),
            ceiling,
            shed: Sheds { count: 7, ..Sheds::default() },
            response_ms: Some(ResponseTimes { mean: 12.5, p50: 11.0, p95: p95.unwrap_or(30.0), p99: 60.0 }),
            ..Part::default()
        };
        ClassVerdict {
            would_shed: None,
            cpu_share: None,
            class: name.into(),
            settling: part.clone(),
            part,
            oracle_served_per_s: None,
            reaction_s: Some(1.0),
        }
    };
    let phase = |(name, from_s, to_s, judged): (&str, f64, f64, bool)| PhaseVerdict {
        name: name.into(),
        from_s,
        to_s,
        judged_from_s: from_s + 5.0,
        judged,
        unsettled: false,
        feasible: true,
        utilisation: 0.875,
        served_over_oracle: Some(0.98),
        resources: None,
        classes: vec![class("A", a.0, Some(a.1)), class("B", b, None)],
    };
    let mut verdict = Verdict {
        experiment: "hand-made".into(),
        discipline: approach.into(),
        seed,
        phases: PHASES.map(phase).to_vec(),
        avoidable: Vec::new(),
        learned: None,
        violations: Vec::new(),
        verdict: Word::Held,
    };
    if verdict.misses().next().is_some() {
        verdict.verdict = Word::Broken;
    }
    verdict
}

pub(crate) fn series(seed: u64) -> Series {
    let class = |index: usize, name: &str| ClassSeries {
        name: name.into(),
        index,
        offered: vec![150.0; 30],
        served: (0..30).map(|i| 100.0 + f64::from(i) / 3.0).collect(),
        guaranteed: Some(vec![100.0; 30]),
        response_ms: (0..30).map(|i| (i != 15).then_some(40.0 + f64::from(i))).collect(),
        statistic: "p95".into(),
        limit_ms: (index == 0).then_some(50.0),
        later_limits_ms: Vec::new(),
        waiting: vec![(0.0, 3.0), (30.0, 4.0)],
        cpu: Vec::new(),
    };
    Series {
        seed,
        step: 2.0,
        length: 60.0,
        classes: vec![class(0, "A"), class(1, "B")],
        window: vec![(0.0, 20.0), (60.0, 24.0)],
        outstanding: vec![(0.5, 11.0)],
        in_flight: Vec::new(),
    }
}

fn clients(phase: &str, p95_ms: f64, unserved: u64) -> Clients {
    Clients { phase: phase.into(), clients: "readers".into(), served: 500, unserved, p95_ms: Some(p95_ms) }
}

fn trial(approach: &str, version: &str, seed: u64, a: (f64, f64), b: f64) -> Trial {
    let late = Lateness { p50: 0.02, p99: 0.31, max: 4.5 };
    Trial {
        approach: approach.into(),
        version: version.into(),
        seed,
        verdict: verdict(approach, seed, a, b),
        series: Some(series(seed)),
        evidence: Evidence {
            sent: 9000,
            served: 8000,
            shed: 990,
            left: 10,
            generator_late_ms: late,
            node_late_ms: late,
            shed_after_ms: Lateness { p50: 0.2, p99: 1.5, max: 12.0 },
            gateway_cpu_us: Some(38.25),
            ..Evidence::default()
        },
        latency: vec![Quantiles {
            phase: "calm".into(),
            class: "A".into(),
            count: 2000,
            p50: 11.0,
            p90: 20.0,
            p95: a.1,
            p99: 60.0,
            p99_9: 61.5,
            max: 80.0625,
        }],
        clients: vec![clients("calm", 10.0, 0), clients("node-out", 8.0 + seed as f64, seed)],
        notes: Vec::new(),
    }
}

pub(crate) fn run() -> RunFile {
    let phase = |(name, from_s, to_s, judged): (&str, f64, f64, bool)| OutlinedPhase {
        name: name.into(),
        from_s,
        to_s,
        judged,
        x: None,
    };
    let class = |name: &str, response_time: Option<(String, f64)>| OutlinedClass {
        name: name.into(),
        upstream: "cluster".into(),
        throughput_per_s: Some(100.0),
        response_time,
        service_ms: Some(8.0),
    };
    let outline = Outline {
        name: "hand-made".into(),
        title: "Two classes & a node that is out".into(),
        axis: None,
        settle_s: 5.0,
        phases: PHASES.map(phase).to_vec(),
        classes: vec![class("A", Some(("p95".into(), 50.0))), class("B", None)],
        machines: "2 with 2 CPUs".into(),
        network_ms: 0.1,
        faults: vec![OutlinedFault { from_s: 30.0, to_s: Some(60.0), what: "n<1> out".into() }],
        published: vec![OutlinedFigure {
            discipline: "quorum".into(),
            phase: "calm".into(),
            class: "A".into(),
            served_per_s: Some(100.0),
            response_time_ms: None,
            shed: None,
        }],
    };
    let mut trials = vec![
        trial("weirgate", "weirgate 0.1.0", 1, (120.0, 40.0), 110.0),
        trial("weirgate", "weirgate 0.1.0", 2, (121.0, 41.0), 110.0),
        trial("quorum", "weirgate 0.1.0", 1, (118.0, 49.0), 110.0),
        trial("quorum", "weirgate 0.1.0", 2, (118.0, 50.5), 110.0),
        trial("proxy:limit=<4>", "proxy 2.6", 1, (200.0, 30.0), 60.0),
    ];
    trials[4].evidence.phantom = Ids { count: 2, examples: vec!["17".into(), "23".into()] };
    trials[4].notes.push("one node was slow to start".into());
    trials[4].series.as_mut().expect("it has one").window.clear();
    RunFile {
        version: VERSION,
        date: "2026-11-22T03:39:04Z".into(),
        command: "weirgate lab 'a<b'".into(),
        machine: Machine {
            cpu: "A CPU".into(),
            cores: vec![
                CoreUse { core: 0, used_for: "nodes".into() },
                CoreUse { core: 1, used_for: "the rest".into() },
            ],
            kernel: "Linux 6.1".into(),
            memory_mib: 8192,
        },
        time_compression: 4.0,
        notes: vec!["the proxy has no deadline".into()],
        experiment: outline,
        trials,
        experiment_file: "title: hand-made\n".into(),
        configuration: vec![ConfigFile {
            approach: "proxy:limit=<4>".into(),
            path: "config/proxy:limit=<4>/a b.cfg".into(),
            text: Some("maxconn <4>\n".into()),
        }],
    }
}
