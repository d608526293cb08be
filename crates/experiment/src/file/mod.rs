//! The experiment file as it is written: a policy, machines behind it, traffic in front of it, and what
//! goes wrong when.
//!
//! As with the policy, these declarations are the only description of the format; the decoder, the JSON
//! Schema and the errors come from them. `crate::resolve::experiment` turns the result into an `Experiment`.

mod change;
mod count;
mod demand;
mod published;
mod traffic;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use weirgate_config::embed::{Discipline, Policy};
use weirgate_spanned_yaml::decode::{At, Context, Decode, Defaulted, Named, OneOrMany, Optional, Required, Switch};
use weirgate_spanned_yaml::tree::{Node, Value};
use weirgate_spanned_yaml::unit::{Amount, Answer, Bytes, Count, Moment, Name, Share, Span, Speed, Text, Whole};
use weirgate_spanned_yaml::{record, words};

pub(crate) use change::{Changing, Figure, Step};
pub(crate) use count::Numbers;
pub(crate) use demand::{Demand, Times, Traced};
pub(crate) use published::{Curve, PublishedForm};
pub(crate) use traffic::{Arrivals, DocumentsForm, ObjectsForm, RequestForm, TrafficForm};

record! {
    /// An experiment of Weirgate: a policy, the machines behind it, the traffic in front of it, and what goes
    /// wrong when. The simulator and the lab run it.
    pub(crate) struct ExperimentFile {
        /// Its name in reports. The file's name without directory and extension by default.
        name: Optional<Name>,
        /// What it shows, in one line. Its name by default.
        title: Optional<Text>,
        /// The policy under test, written here, or the path of a policy file from this file's folder. Here
        /// `listen` may be missing. A class before the last may lack its `match`: it gets the requests with the
        /// header `x-class: NAME`.
        policy: Required<PolicyHere>,
        /// Names for variants of disciplines, such as `mqos-drfq: { mqos: { precedence: drfq } }`: the policy's
        /// `discipline`, and `--discipline`, may say them.
        disciplines: Optional<Named<Name, Discipline>>,
        /// What stands behind the policy's nodes, an entry or a list of them. A machine that no entry names is
        /// one server with one nominal CPU and no limits.
        machines: Optional<OneOrMany<MachineForm>>,
        /// One way between the gateway and a machine. 100 µs is a switched network in one room.
        network_delay: Defaulted<Moment> = "100us",
        /// Who sends what. Several entries may name the same class.
        traffic: Required<Vec<At<TrafficForm>>>,
        /// Named stretches of time, one after the other from 0 on. The run ends with the last.
        phases: Required<Vec<At<PhaseForm>>>,
        /// What the phases vary, with its unit, as in `clients` or `requests/s`: reports then draw every judged phase
        /// with an `x` as a point over this axis.
        axis: Optional<Text>,
        /// How much of the beginning of a phase is judged apart. 5 s are ten steps of the slowest window and
        /// far less than any phase.
        settle: Defaulted<Moment> = "5s",
        /// What goes wrong, or is done on purpose, and when.
        faults: Optional<Vec<At<FaultForm>>>,
        /// Published figures, to print beside ours.
        published: Optional<Vec<At<PublishedForm>>>,
        /// Shares of the machines' CPUs for classes, in the simulator: a map. Without it every request is equal.
        reserves: Optional<ReservesForm>,
    }
}

/// Servers behind an address.
#[derive(Clone, Debug)]
pub(crate) enum Servers {
    /// So many of its own.
    Count(Count),
    /// These, which other addresses may have too.
    Named(Vec<At<Name>>),
}

/// The policy of an experiment. By the time it is decoded, a path has been replaced by the file.
#[derive(Clone, Debug)]
pub(crate) struct PolicyHere(pub(crate) Policy);

record! {
    /// Machines: one, some or all of those that the policy's nodes run on.
    pub(crate) struct MachineForm {
        /// Which: a name or a list of names. A machine is named by the node's `machine`, its address, or its
        /// address without port; `web*` is every one that begins so, `all` is all. Without this field the
        /// entry is for every machine that no other entry names.
        machine: Optional<OneOrMany<Text>>,
        /// CPUs of each server; a request occupies one at a time.
        cpus: Defaulted<Count> = 1,
        /// Speed of a CPU: 2 does in 4 ms what takes a nominal one 8 ms. Or a list of speeds with `at` and `over`.
        speed: Defaulted<Changing<Speed>> = 1,
        /// Servers hidden behind the address, which take turns: how many, or a list of their names. What has the same
        /// name behind several addresses is one server.
        servers: Defaulted<Servers> = 1,
        /// Requests that each server works on at once; more wait in its own queue. A number, or `off`.
        concurrency: Defaulted<Switch<Count>> = "off",
        /// Requests that wait in each server's own queue; more are answered with 503 at once. A number, or `off`.
        backlog: Defaulted<Switch<Whole>> = "off",
        /// How it slows down when too much runs at once: a map, or `off`.
        thrashing: Defaulted<Switch<ThrashingForm>> = "off",
        /// The disk of each server and the memory that keeps what was read of it, for traffic with `documents`: a map,
        /// or `off` for everything in memory.
        disk: Defaulted<Switch<DiskForm>> = "off",
        /// What the lab puts there. Emulated by default: then the figures above are exact. Of a real service only
        /// `concurrency` is set; `cpus` and `speed` are what the simulator takes it for.
        service: Defaulted<ServiceWord> = "emulated",
    }
}

record! {
    /// Cluster reserves: every class has a share of the machines' CPUs, and a manager moves shares between machines so
    /// that it can use its share of the cluster.
    pub(crate) struct ReservesForm {
        /// Classes and their shares of the cluster, at most 100 % together.
        classes: Required<Named<Name, Share>>,
        /// Between two runs of the manager, or `off`.
        every: Defaulted<Switch<Span>> = "5s",
        /// Do machines ask for runs when a class's use changes: `yes` or `no`. With neither runs nor requests every
        /// class has its share of every machine.
        on_demand: Defaulted<Answer> = "yes",
        /// When the manager starts.
        from: Defaulted<Moment> = "0s",
    }
}

words! {
    /// What a machine is in the lab.
    pub(crate) enum ServiceWord {
        /// A node that shares virtual CPUs among its requests as described.
        Emulated = "emulated",
        /// Apache with a PHP page that uses as much CPU time as it is asked for.
        ApachePhp = "apache-php",
        /// Tomcat with a page that uses as much CPU time as it is asked for.
        Tomcat = "tomcat",
        /// A full-text search over real documents: Xapian's omega behind Apache.
        Xapian = "xapian",
    }
}

record! {
    /// A disk. What was read stays in memory until it was not used for longest.
    pub(crate) struct DiskForm {
        /// Time of a read before its first byte: seeks and rotation.
        access: Required<Moment>,
        /// What is read in a second after that.
        per_second: Required<Bytes>,
        /// Memory for files: what the system and the server leave of it.
        memory: Required<Bytes>,
    }
}

record! {
    /// Slow-down by concurrency: the speed is divided by 1 + `penalty` × (requests inside − `beyond`).
    pub(crate) struct ThrashingForm {
        /// Requests inside a server without loss.
        beyond: Required<Whole>,
        /// Loss per further one: with 0.01, a hundred more halve the speed.
        penalty: Required<Amount>,
    }
}

record! {
    /// A named stretch of time.
    pub(crate) struct PhaseForm {
        /// Its unique name.
        name: Required<Name>,
        /// When it ends, from the start of the run. It begins where the one before ends.
        until: Required<Span>,
        /// Are its guarantees judged: `yes` or `no`. A warm-up is not.
        judged: Defaulted<Answer> = "yes",
        /// Its place on the `axis`.
        x: Optional<Amount>,
    }
}

record! {
    /// Something goes wrong, or is done on purpose.
    pub(crate) struct FaultForm {
        /// When, from the start of the run.
        at: Required<Moment>,
        /// Until when. To the end by default.
        until: Optional<Moment>,
        /// What.
        fault: Required<FaultWord>,
        /// Which machines: a name or a list, as in `machines`.
        machines: Optional<OneOrMany<Text>>,
        /// The share of its speed that a `slow` machine has left.
        speed: Optional<Share>,
        /// The share of requests that `fail_fast` answers with an error.
        share: Defaulted<Share> = "100%",
        /// The classes of these requests, or templates: a name or a list. All requests by default.
        class: Optional<OneOrMany<Name>>,
        /// The policy that `reload` puts in force: as `policy` at the top, with the same upstreams and classes. Its
        /// guarantees and other figures of classes hold from then on. By default the one in force again.
        policy: Optional<PolicyHere>,
    }
}

words! {
    /// What goes wrong.
    pub(crate) enum FaultWord {
        /// The operator takes the nodes out: the gateway knows at once, requests inside finish.
        Removed = "removed",
        /// The machine is gone: what is inside fails at once, and so does every new connection.
        Crash = "crash",
        /// It accepts requests and does not work on anything.
        Stall = "stall",
        /// It works at a share of its speed: `speed: 20%`.
        Slow = "slow",
        /// It answers requests with 500 after a millisecond instead of working; `share: 50%` of them, `class: gold`
        /// only those.
        FailFast = "fail_fast",
        /// The gateway gets no word of any health check.
        LostReports = "lost_reports",
        /// The policy is loaded again, or another: `policy: FILE`.
        Reload = "reload",
    }
}

/// The JSON Schema of an experiment file, for editors and for programs that write experiments.
#[must_use]
pub fn experiment_schema() -> serde_json::Value {
    let mut schema = schemars::SchemaGenerator::default().into_root_schema_for::<ExperimentFile>();
    schema.insert("title".into(), "Weirgate experiment".into());
    schema.into()
}

impl Decode for PolicyHere {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match node.value {
            Value::Map(_) => Policy::decode(node, cx).map(PolicyHere),
            _ => {
                cx.mismatch("a policy, or the path of a policy file", node);
                None
            }
        }
    }
}

impl Decode for Servers {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match node.value {
            Value::List(_) => OneOrMany::decode(node, cx).map(|OneOrMany(names)| Servers::Named(names)),
            _ => Count::decode(node, cx).map(Servers::Count),
        }
    }
}

impl JsonSchema for Servers {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Servers".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let name = generator.subschema_for::<Name>();
        let names = json_schema!({ "type": "array", "items": name, "minItems": 1 });
        json_schema!({ "anyOf": [generator.subschema_for::<Count>(), names] })
    }
}

impl JsonSchema for PolicyHere {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PolicyOfExperiment".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut here = Policy::json_schema(generator);
        here.insert("required".into(), serde_json::json!(["upstreams", "classes"]));
        json_schema!({ "anyOf": [{ "type": "string", "minLength": 1 }, here] })
    }
}
