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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_done_once() {
        let mut done = [0; 50];
        for_each_job(
            done.len(),
            Some(4),
            |job| 2 * job,
            |job, result| {
                assert_eq!(result, 2 * job);
                done[job] += 1;
                ControlFlow::Continue(())
            },
        );
        assert_eq!(done, [1; 50]);
        for_each_job(0, None, |_| (), |_, ()| panic!("there is no job"));
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
