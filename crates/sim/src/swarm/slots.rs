//! The throughput of a machine with limited worker slots: n requests at a time, each of which computes and
//! waits in turns.
//!
//! This is the classical model of a closed system (the "machine repairman": Feller, *An Introduction to
//! Probability Theory*, vol. 1, XVII.7): n slots, k CPUs, and requests that compute for a mean time and
//! wait for a mean time. The number of requests that compute is a birth-death chain, so its stationary law
//! is a product and needs no solver. Departure: times are taken as exponential, and a free slot is filled
//! at once. The mean number of busy CPUs does not depend on the law of the waits, and under processor
//! sharing neither on that of the CPU times.

/// Returns the mean number of busy CPUs of `cpus`, while requests that compute for `cpu` and wait for `io`
/// seconds hold all `slots`.
pub(super) fn busy_cpus(slots: u32, cpus: u32, cpu: f64, io: f64) -> f64 {
    let max = f64::from(slots.min(cpus));
    if io <= 0.0 {
        return max;
    }
    // Relative probability that j of the slots compute. The largest so far is near 1.
    let (mut weight, mut all, mut busy) = (1.0f64, 1.0f64, 0.0f64);
    for computing in 1..=slots {
        let up = f64::from(slots - computing + 1) / io;
        let down = f64::from(computing.min(cpus)) / cpu;
        weight *= up / down;
        all += weight;
        busy += weight * f64::from(computing.min(cpus));
        if all > 1e200 {
            weight /= all;
            busy /= all;
            all = 1.0;
        }
    }
    busy / all
}

/// Returns the mean wait for one of `servers`, in service times, at the load `busy` of each: about
/// ρ^(√(2(k+1))−1) / (k·(1−ρ)) in M/M/k (Sakasegawa, *An approximation formula*, Ann. Inst. Statist. Math.
/// 29, 1977).
pub(super) fn wait(servers: f64, busy: f64) -> f64 {
    busy.powf((2.0 * (servers + 1.0)).sqrt() - 1.0) / (servers * (1.0 - busy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_that_never_wait_keep_their_cpus_busy() {
        assert_eq!(busy_cpus(2, 2, 0.01, 0.0), 2.0);
        assert_eq!(busy_cpus(2, 4, 0.01, 0.0), 2.0);
    }

    #[test]
    fn a_few_slots_by_hand() {
        // One slot computes for its part of the time.
        assert!((busy_cpus(1, 1, 0.01, 0.03) - 0.25).abs() < 1e-12);
        // Two slots, one CPU, equal times: weights 1, 2, 2.
        assert!((busy_cpus(2, 1, 1.0, 1.0) - 0.8).abs() < 1e-12);
        // As many CPUs as slots, so each slot has its own CPU.
        assert!((busy_cpus(3, 3, 1.0, 2.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn many_slots_keep_every_cpu_busy_without_overflow() {
        assert!((busy_cpus(5_000, 2, 0.005, 0.5) - 2.0).abs() < 1e-9);
        assert!((busy_cpus(2_000, 2, 0.001, 10.0) - 0.2).abs() < 0.001);
        assert!((busy_cpus(2_000, 2_000, 1.0, 0.001) - 1_998.0).abs() < 0.01);
    }

    #[test]
    fn one_server_waits_as_in_m_m_1() {
        assert!((wait(1.0, 0.5) - 1.0).abs() < 1e-12);
    }
}
