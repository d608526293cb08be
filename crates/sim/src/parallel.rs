//! Independent jobs on several threads.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Runs `work` for the jobs from 0 to `count` − 1 on `threads` threads (`None`: one per CPU).
///
/// `on_result` receives the number of each job with its result, in the order in which the jobs end. After a break no
/// further job begins. The results of jobs that are under way then still come.
pub fn for_each_job<R: Send>(
    count: usize,
    threads: Option<usize>,
    work: impl Fn(usize) -> R + Sync,
    mut on_result: impl FnMut(usize, R) -> ControlFlow<()>,
) {
    let threads = threads.or_else(|| thread::available_parallelism().ok().map(NonZero::get)).unwrap_or(1);
    let (next, (send, results)) = (AtomicUsize::new(0), mpsc::channel());
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            let (send, next, work) = (send.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    if job >= count || send.send((job, work(job))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        for (job, result) in results {
            if on_result(job, result).is_break() {
                next.store(count, Ordering::Relaxed);
            }
        }
    });
}

/// Returns the results of all jobs, in the order of their numbers. `on_done` is called after each.
pub fn results<R: Send>(
    count: usize,
    threads: Option<usize>,
    work: impl Fn(usize) -> R + Sync,
    mut on_done: impl FnMut(),
) -> Vec<R> {
    let mut results: Vec<Option<R>> = (0..count).map(|_| None).collect();
    for_each_job(count, threads, work, |job, result| {
        results[job] = Some(result);
        on_done();
        ControlFlow::Continue(())
    });
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_done_once() {
        let mut done = 0;
        assert!(results(50, Some(4), |job| 2 * job, || done += 1).into_iter().eq((0..50).map(|job| 2 * job)));
        assert_eq!(done, 50);
        assert!(results(0, None, |job| job, || panic!("there is no job")).is_empty());
    }

    #[test]
    fn no_job_begins_after_a_break() {
        let mut done = Vec::new();
        for_each_job(
            1_000_000,
            Some(1),
            |job| job,
            |job, _| {
                done.push(job);
                ControlFlow::Break(())
            },
        );
        assert!(done.len() < 1_000_000 && done.is_sorted(), "{}", done.len());
    }
}
