//! The claim of a class: the slots that its guarantee needs, and the slack that its limit leaves.
//!
//! Source: our own, from Little's law. It is the part of the formula of [`super`] that one class adds.

use super::super::allowance::Slowdown;
use super::super::round::Tightest;
use super::{Holding, KNOWN, NO_LIMIT};
use crate::classify::Classes;
use crate::index::{PartitionId, Table};
use crate::request::ClassId;
use crate::time::{Time, nanos};

/// Maximum ratio of a percentile to the mean when a limit seems missed. Percentile estimates jump, and the
/// 95th percentile of exponential times is three means.
const ROUGH: f64 = 3.0;

/// Minimum part of a limit that is left for waiting, however long requests of its class are in flight now.
const KEEPABLE: f64 = 0.1;

/// Part of a limit for the time in flight. The other half is for waiting, as in Quorum.
const IN_FLIGHT: f64 = 0.5;

/// Adds a class's claim to the sums. Returns whether the class misses its limit by its time in flight alone.
pub(super) fn claim(
    now: Time,
    classes: &mut Classes,
    class: ClassId,
    holding: &mut Holding,
    (contended, common_slowdown): (bool, Slowdown),
    sums: &mut Table<PartitionId, [f64; 5]>,
    tightest: &mut Tightest,
) -> bool {
    classes.roll(now, class);
    let spec = classes.spec(class);
    let Some(rate) = spec.guarantee.throughput else {
        holding.claims = false;
        return false;
    };
    let (limit, declared) = (spec.guarantee.response_time.map(|rt| nanos(rt.limit) as f64 / 1e9), spec.service_time);
    holding.claims = true;
    holding.part = classes.service_time(class).map_or(f64::INFINITY, |alone| {
        let slowdown = if holding.count >= KNOWN { holding.mean / alone } else { 1.0 };
        common_slowdown.part(rate * alone, slowdown)
    });
    if holding.arrivals.per_s() < 0.01 * rate && !classes[class].active() {
        return false;
    }
    let time = if holding.count > 0.0 { holding.mean } else { declared.map_or(0.0, |time| time.as_secs_f64()) };
    let slots = rate.min(holding.arrivals.per_s()) * time;
    let slots = if contended { slots.min(holding.part) } else { slots };
    // A class does not claim the slots that it blocks itself.
    let slots = (slots - holding.blocking * f64::from(holding.in_flight)).max(0.0);
    let sum = &mut sums[classes[class].partition];
    sum[0] += slots;
    sum[1] += slots * time;
    sum[3] += rate * limit.map_or(NO_LIMIT, |limit| IN_FLIGHT * limit);
    let Some(limit) = limit else {
        tightest.add(NO_LIMIT, NO_LIMIT, class);
        return false;
    };
    // A limit that is shorter than an unloaded request cannot be kept and claims nothing.
    if classes.service_time(class).is_some_and(|time| time > (1.0 - KEEPABLE) * limit) {
        return false;
    }
    let left = limit - classes[class].expected.guaranteed().unwrap_or(0.0);
    tightest.add(left.max(KEEPABLE * limit), limit, class);
    left < KEEPABLE * limit && limit - ROUGH * holding.mean < KEEPABLE * limit
}
