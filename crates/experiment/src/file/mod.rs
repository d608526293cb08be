//! The experiment file as it is written: a policy, the machines behind it, the traffic in front of it, and
//! faults over time.
//!
//! As with the policy, these declarations are the only description of the format. The decoder, the JSON Schema and
//! the error messages are derived from them. `crate::resolve::experiment` turns the result into an `Experiment`.

mod change;
mod count;
mod demand;
mod grid;
mod published;
mod traffic;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use weirgate_config::embed::{Defaults, Discipline, Policy};
use weirgate_spanned_yaml::decode::{At, Context, Decode, Defaulted, Named, OneOrMany, Optional, Required, Switch};
use weirgate_spanned_yaml::tree::{Node, Value};
use weirgate_spanned_yaml::unit::{Amount, Answer, Bytes, Count, Moment, Name, Share, Span, Speed, Text, Whole};
use weirgate_spanned_yaml::{record, words};

use crate::experiment::Service;

pub(crate) use change::{Changing, Figure, Step};
pub(crate) use count::Numbers;
pub(crate) use demand::{Demand, Times, Traced};
pub(crate) use grid::GridRowForm;
pub(crate) use published::{Curve, PublishedForm};
pub(crate) use traffic::{Arrivals, DocumentsForm, ObjectsForm, RequestForm, TrafficForm};

record! {
    /// A Weirgate experiment: a policy, the machines behind it, the traffic in front of it, and faults over
    /// time. The simulator and the lab run it.
    pub(crate) struct ExperimentFile {
        /// Name in reports. By default the file's name without directory and extension.
        name: Optional<Name>,
        /// Purpose of the experiment, in one line. The name by default.
        title: Optional<Text>,
        /// The policy under test, written here, or the path of a policy file, relative to this file's folder.
        /// In an experiment `listen` may be missing. A class before the last may lack its `match`: it then
        /// matches requests with the header `x-class: NAME`.
        policy: Required<PolicyHere>,
        /// Names for variants of disciplines, such as `mqos-drfq: { mqos: { precedence: drfq } }`. You can
        /// use them in the policy's `discipline` and with `--discipline`.
        disciplines: Optional<Named<Name, Discipline>>,
        /// Machines behind the policy's nodes, an entry or a list of them. A machine that no entry names is
        /// one server with one nominal CPU and no limits.
        machines: Optional<OneOrMany<MachineForm>>,
        /// One-way delay between the gateway and a machine. 100 µs is typical of a switched network in one room.
        network_delay: Defaulted<Moment> = "100us",
        /// Requests that clients send. Several entries may name the same class.
        traffic: Required<Vec<At<TrafficForm>>>,
        /// Named phases, one after the other from 0 on. The run ends with the last.
        phases: Required<Vec<At<PhaseForm>>>,
        /// The quantity that the phases vary, with its unit, such as `clients` or `requests/s`. Reports then
        /// plot every judged phase with an `x` as a point on this axis.
        axis: Optional<Text>,
        /// Length of the beginning of each phase that is judged separately. 5 s are ten steps of the slowest
        /// window and far less than any phase.
        settle: Defaulted<Moment> = "5s",
        /// Faults and deliberate changes, with their times.
        faults: Optional<Vec<At<FaultForm>>>,
        /// Rows of cells for `weirgate sim --grid`, each of which plays the experiment with some figures changed.
        grid: Optional<Vec<At<GridRowForm>>>,
        /// Published figures, to print next to the measured ones.
        published: Optional<Vec<At<PublishedForm>>>,
        /// Shares of the machines' CPUs for classes, in the simulator: a map. Without it all requests have
        /// equal shares.
        reserves: Optional<ReservesForm>,
    }
}

/// Servers behind an address.
#[derive(Clone, Debug)]
pub(crate) enum Servers {
    /// This number of servers, used by this address alone.
    Count(Count),
    /// Named servers, which other addresses may share.
    Named(Vec<At<Name>>),
}

/// Parts that the policy of an experiment may leave out. The system chooses the port, because no other program needs
/// to know it.
pub(crate) const DEFAULTS: Defaults =
    Defaults { listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0), class_header: "x-class" };

/// The policy of an experiment. A path has been replaced by the file's content when this is decoded.
#[derive(Clone, Debug)]
pub(crate) struct PolicyHere(pub(crate) Policy);

record! {
    /// Machines: one, some or all of those that the policy's nodes run on.
    pub(crate) struct MachineForm {
        /// Machines that the entry describes: a name or a list of names. A machine is named by the node's `machine`,
        /// its address, or its address without port. `web*` is every machine with a name that begins with `web`, and
        /// `all` is every machine. Without this field the entry describes every machine that no other entry names.
        machine: Optional<OneOrMany<Text>>,
        /// CPUs of each server. A request occupies one at a time.
        cpus: Defaulted<Count> = 1,
        /// Speed of a CPU, or a list of speeds with `at` and `over`. A CPU of speed 2 needs 4 ms for 8 ms of
        /// nominal CPU time.
        speed: Defaulted<Changing<Speed>> = 1,
        /// Servers behind the address, which take turns: their number, or a list of their names. The same
        /// name behind several addresses means the same server.
        servers: Defaulted<Servers> = 1,
        /// Maximum number of requests that each server works on at once. Further requests wait in its own
        /// queue. A number, or `off`.
        concurrency: Defaulted<Switch<Count>> = "off",
        /// Maximum number of requests that wait in each server's own queue. Further requests are answered
        /// with 503 at once. A number, or `off`.
        backlog: Defaulted<Switch<Whole>> = "off",
        /// Slow-down of each server when too many requests are in flight: a map, or `off`.
        thrashing: Defaulted<Switch<ThrashingForm>> = "off",
        /// The disk of each server and the memory that caches the files read from it, for traffic with
        /// `documents`: a map, or `off` if all files are in memory.
        disk: Defaulted<Switch<DiskForm>> = "off",
        /// The service that the lab starts on the machine. Emulated by default, which follows the parameters
        /// above exactly. For a real service the lab sets only `concurrency`, and `cpus` and `speed` are the
        /// simulator's model of it.
        service: Defaulted<ServiceWord> = "emulated",
    }
}

record! {
    /// Cluster Reserves: every class has a share of the machines' CPUs. A coordinator moves shares between
    /// machines so that each class can use its share of the cluster.
    pub(crate) struct ReservesForm {
        /// Classes and their shares of the cluster, at most 100 % in total.
        classes: Required<Named<Name, Share>>,
        /// Time between two runs of the coordinator, or `off`.
        every: Defaulted<Switch<Span>> = "5s",
        /// Whether machines request runs when a class's use changes: `true` or `false`. With neither periodic nor
        /// requested runs, every class keeps its share on every machine.
        on_demand: Defaulted<Answer> = true,
        /// Start of the coordinator.
        from: Defaulted<Moment> = "0s",
    }
}

words! {
    /// Service on a machine of the lab.
    pub(crate) struct ServiceWord(Service) {
        /// A node that shares virtual CPUs among its requests, as described in the entry.
        "emulated" => Service::Emulated,
        /// Apache with a PHP page that uses the requested CPU time.
        "apache-php" => Service::ApachePhp,
        /// Tomcat with a page that uses the requested CPU time.
        "tomcat" => Service::Tomcat,
        /// A full-text search over real documents: Xapian's omega behind Apache.
        "xapian" => Service::Xapian,
        /// Pages of a wiki: MediaWiki behind Apache, with one MariaDB for all machines.
        "mediawiki" => Service::MediaWiki,
        /// An API in Python, behind gunicorn, that uses the requested CPU time.
        "gunicorn" => Service::Gunicorn,
        /// Pages of a Git repository: cgit behind Apache.
        "cgit" => Service::Cgit,
    }
}

record! {
    /// A disk with a cache. The least recently used file leaves the memory first.
    pub(crate) struct DiskForm {
        /// Time of a read before its first byte, for seek and rotation.
        access: Required<Moment>,
        /// Bytes read per second after that.
        per_second: Required<Bytes>,
        /// Memory for files, which is the memory not used by the system and the server.
        memory: Required<Bytes>,
    }
}

record! {
    /// Slow-down by concurrency: the speed is divided by 1 + `penalty` × (requests in flight − `beyond`).
    pub(crate) struct ThrashingForm {
        /// Maximum number of requests in flight at a server without slow-down.
        beyond: Required<Whole>,
        /// Slow-down for each further request: with 0.01, a hundred more requests halve the speed.
        penalty: Required<Amount>,
    }
}

record! {
    /// A named part of the run.
    pub(crate) struct PhaseForm {
        /// Its unique name.
        name: Required<Name>,
        /// End, from the start of the run. The phase begins where the one before ends.
        until: Required<Span>,
        /// Whether the guarantees are judged in this phase: `true` or `false`. Use `false` for a warm-up.
        judged: Defaulted<Answer> = true,
        /// Coordinate on the `axis`.
        x: Optional<Amount>,
    }
}

record! {
    /// A fault, or a deliberate change.
    pub(crate) struct FaultForm {
        /// Start, from the start of the run.
        at: Required<Moment>,
        /// End, from the start of the run. The end of the run by default.
        until: Optional<Moment>,
        /// Kind of fault.
        fault: Required<FaultWord>,
        /// Machines concerned: a name or a list, as in `machines`.
        machines: Optional<OneOrMany<Text>>,
        /// Remaining share of the speed of a `slow` machine.
        speed: Optional<Share>,
        /// Share of requests that `fail_fast` answers with an error.
        share: Defaulted<Share> = "100%",
        /// Classes or templates of these requests: a name or a list. All classes by default.
        class: Optional<OneOrMany<Name>>,
        /// The policy that `reload` loads, written as `policy` at the top, with the same upstreams and classes. Its
        /// guarantees and other class parameters hold from then on. By default the policy in force is loaded again.
        policy: Optional<PolicyHere>,
    }
}

words! {
    /// Kind of fault.
    pub(crate) enum FaultWord {
        /// The operator takes the nodes out. The gateway knows at once, and requests in flight finish.
        Removed = "removed",
        /// The machine is gone. Requests in flight and new connections fail at once.
        Crash = "crash",
        /// The machine accepts requests and works on none.
        Stall = "stall",
        /// The machine works at a share of its speed: `speed: 20%`.
        Slow = "slow",
        /// The machine answers requests with 500 after a millisecond instead of working on them. With
        /// `share: 50%` it fails half of them, with `class: gold` only requests of that class.
        FailFast = "fail_fast",
        /// The gateway receives no results of health checks.
        LostReports = "lost_reports",
        /// The policy is loaded again, or another one is loaded: `policy: FILE`.
        Reload = "reload",
        /// The gateway's process ends with all its requests, and another one takes its clients at once. It has to
        /// learn costs and windows anew.
        Restart = "restart",
        /// The same, but the other process is a standby that has followed this one: it begins with the
        /// costs and windows that this one had learned up to a second before.
        Takeover = "takeover",
    }
}

/// The JSON Schema of an experiment file, for editors and for programs that write experiments.
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
