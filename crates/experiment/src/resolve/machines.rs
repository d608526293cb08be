//! Machines behind the nodes.

use std::time::Duration;

use weirgate_spanned_yaml::decode::{At, Context, Mark};
use weirgate_spanned_yaml::errors::quoted;
use weirgate_spanned_yaml::unit::{Amount, Bytes, Count, Moment, Speed, Whole};

use super::names::Names;
use super::traffic::profile;
use crate::experiment::{Knot, Machine, Profile};
use crate::file::{ExperimentFile, MachineForm, Servers};
use crate::{Disk, Thrashing};

/// Maximum number of CPUs of a server, and of servers behind an address. More is a typing error.
const MAX_CPUS: u32 = 4_096;

/// Speed of the fastest CPU. A thousand times nominal is a wrong unit.
const MAX_SPEED: f64 = 1_000.0;

/// Returns one machine for each name, in the same order.
pub(super) fn machines(file: &ExperimentFile, names: &Names, end: Option<Duration>, cx: &mut Context) -> Vec<Machine> {
    let mut described: Vec<Option<Mark>> = vec![None; names.machines.len()];
    let mut machines: Vec<Machine> = names.machines.iter().map(|machine| Machine::nominal(&machine.name, 1)).collect();
    let mut rest: Option<(Machine, Mark)> = None;
    for At { value: form, mark, .. } in file.machines.get().map_or(&[][..], |entries| &entries.0) {
        let machine = machine(form, end, cx);
        let Some(words) = form.machine.get() else {
            if form.machine.given {
                continue;
            }
            if let Some((_, first)) = &rest {
                let what = format!("the entry in line {} is for all other machines already", cx.position(*first).line);
                cx.fail(*mark, what, "say which ones this is for: `machine: …`");
            }
            rest = Some((machine, *mark));
            continue;
        };
        for index in names.machines(words, cx) {
            if let Some(first) = described[index].replace(form.machine.mark) {
                let name = quoted(&machines[index].name);
                let what = format!("machine {name} is described in line {} already", cx.position(first).line);
                cx.fail(form.machine.mark, what, "describe each machine once");
            }
            machines[index] = Machine { name: machines[index].name.clone(), ..machine.clone() };
        }
    }
    if let Some((machine, mark)) = rest {
        let mut used = false;
        for (index, _) in described.iter().enumerate().filter(|(_, described)| described.is_none()) {
            machines[index] = Machine { name: machines[index].name.clone(), ..machine.clone() };
            used = true;
        }
        if !used && !described.is_empty() {
            let what = "this entry describes no machine: every one is described by another";
            cx.warn(mark, what, "remove it");
        }
    }
    same_servers(&machines, &described, cx);
    machines
}

/// Complains if addresses that share a server describe it differently.
fn same_servers(machines: &[Machine], described: &[Option<Mark>], cx: &mut Context) {
    for (index, machine) in machines.iter().enumerate() {
        for name in &machine.shared {
            let Some(first) = machines[..index].iter().position(|other| other.shared.contains(name)) else { continue };
            let other = &machines[first];
            let as_other = Machine {
                name: other.name.clone(),
                servers: other.servers,
                shared: other.shared.clone(),
                ..machine.clone()
            };
            if as_other != *other
                && let Some(mark) = described[index]
            {
                let (name, other) = (quoted(name), quoted(&other.name));
                let what = format!("server {name} is behind machine {other} too, and described otherwise there");
                cx.fail(mark, what, "give both entries the same figures, or the server another name");
            }
        }
    }
}

/// Returns a machine as described, without its name.
fn machine(form: &MachineForm, end: Option<Duration>, cx: &mut Context) -> Machine {
    let few = |number: u32, mark: Mark, cx: &mut Context| {
        if number > MAX_CPUS {
            let what = format!("{number} is more than any machine has");
            cx.fail(mark, what, format!("write at most {MAX_CPUS}"));
        }
        number
    };
    let (speed, drift) = speed(form, end, cx);
    let concurrency = form.concurrency.get().on().map(|&Count(max)| max);
    let backlog = form.backlog.get().on().map(|&Whole(max)| max);
    if let (Some(_), None, false) = (backlog, concurrency, form.concurrency.bad) {
        let what = "nothing ever waits in this machine: it works on everything at once";
        cx.fail(form.backlog.mark, what, "give it a `concurrency:` too, or remove the backlog");
    }
    let thrashing = form.thrashing.get().on().and_then(|form| {
        let (&Whole(beyond), &Amount(penalty)) = (form.beyond.get()?, form.penalty.get()?);
        Some(Thrashing { beyond, penalty })
    });
    let disk = form.disk.get().on().and_then(|form| {
        let (&Moment(access), &Bytes(each), &Bytes(memory)) =
            (form.access.get()?, form.per_second.get()?, form.memory.get()?);
        if each == 0 {
            cx.fail(form.per_second.mark, "nothing is ever read at this speed", "write `10MiB`, say");
        }
        Some(Disk { access, bytes_per_s: each as f64, cache: memory })
    });
    let cpus = few(form.cpus.get().0, form.cpus.mark, cx);
    let (servers, shared) = match form.servers.get() {
        Servers::Count(Count(number)) => (*number, Vec::new()),
        Servers::Named(names) => (names.len() as u32, names.iter().map(|name| name.value.0.clone()).collect()),
    };
    let servers = few(servers, form.servers.mark, cx);
    for (index, name) in shared.iter().enumerate() {
        if shared[..index].contains(name) {
            let what = format!("server {} is behind this address twice", quoted(name));
            cx.fail(form.servers.mark, what, "name each once");
        }
    }
    let service = form.service.get().0;
    Machine { name: String::new(), cpus, speed, drift, servers, shared, concurrency, backlog, thrashing, disk, service }
}

/// Returns the speed at the start, and the factor by which it changes over time.
fn speed(form: &MachineForm, end: Option<Duration>, cx: &mut Context) -> (f64, Profile) {
    let changing = form.speed.get();
    for step in &changing.0 {
        if !(step.value.figure.0 > 0.0 && step.value.figure.0 <= MAX_SPEED) {
            let hint = "write the speed as a multiple of a nominal CPU, above 0 and at most 1000";
            cx.fail(step.mark, "a machine cannot have this speed", hint);
        }
    }
    if let Some(first) = changing.0.first()
        && first.value.over.0 > Duration::ZERO
    {
        let what = "there is no speed before this to change from";
        cx.fail(first.mark, what, "write the speed at the start of the run before it");
    }
    let speeds = profile(changing, |&Speed(speed)| speed, end, cx);
    let first = speeds.0.first().map_or(1.0, |knot| knot.value);
    let factor = |knot: Knot| Knot { value: knot.value / first, ..knot };
    (first, Profile(speeds.0.into_iter().map(factor).collect()))
}
