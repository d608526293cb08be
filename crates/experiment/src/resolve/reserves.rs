//! Shares of the machines' CPUs.

use weirgate_spanned_yaml::decode::Context;
use weirgate_spanned_yaml::unit::{Moment, Share, number_text};

use super::names::{Names, index_of};
use crate::experiment::{CpuReserves, Machine, Reallocation};
use crate::file::ExperimentFile;

/// Returns the shares, if the experiment has any.
pub(super) fn reserves(
    file: &ExperimentFile,
    names: &Names,
    machines: &[Machine],
    cx: &mut Context,
) -> Option<CpuReserves> {
    let form = file.reserves.get()?;
    let mut shares = vec![0.0; names.classes.len()];
    for item in form.classes.get().map_or(&[][..], |named| &named.items) {
        let Some(&Share(share)) = item.value.get() else { continue };
        let class = index_of("class", &item.name.0, &names.classes, names.all_classes, item.value.mark, cx);
        if let Some(class) = class {
            shares[class] = share * 100.0;
        }
    }
    let sum: f64 = shares.iter().sum();
    if sum > 100.0 + 1e-9 {
        let what = format!("these are {} % of the cluster together", number_text(sum));
        cx.fail(form.classes.mark, what, "write at most 100 %");
    }
    if let Some(machine) = machines.iter().find(|machine| machine.thrashing.is_some()) {
        let what = format!("machine `{}` thrashes, and shares are of CPUs alone", machine.name);
        cx.fail(file.reserves.mark, what, "remove its `thrashing:`");
    }
    if let Some(machine) = machines.iter().find(|machine| !machine.shared.is_empty()) {
        let what =
            format!("machine `{}` has servers that others may have too, and shares are of one machine's", machine.name);
        cx.fail(file.reserves.mark, what, "write how many `servers:` it has");
    }
    let every = form.every.get().on().map(|every| every.0);
    let (on_demand, Moment(from)) = (form.on_demand.get().0, *form.from.get());
    let coordinator = (on_demand || every.is_some()).then_some(Reallocation { from, every, on_demand });
    Some(CpuReserves { shares, coordinator })
}
