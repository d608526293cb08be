//! Threads that allocate for one another, while one of them gives memory back.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Blocks in a batch, of sizes that live in small, medium and large pages of the allocator.
const BATCH: usize = 512;
const SIZES: [usize; 5] = [24, 700, 9_000, 80_000, 300_000];

fn batch(round: usize) -> Vec<Vec<u8>> {
    (0..BATCH).map(|at| vec![1; SIZES[(at * round) % SIZES.len()] >> (at % 4)]).collect()
}

/// Both in turn, because the memory of the process is measured.
#[test]
fn memory_is_given_back() {
    #[cfg(target_os = "linux")]
    a_resting_thread_keeps_nothing();
    memory_is_given_back_while_other_threads_free_it();
}

fn memory_is_given_back_while_other_threads_free_it() {
    let (give, take): (SyncSender<Vec<Vec<u8>>>, Receiver<_>) = sync_channel(4);
    let freeing = std::thread::spawn(move || {
        let sound = |block: &&Vec<u8>| block.first() == Some(&1) && block.last() == Some(&1);
        take.iter().map(|batch| batch.iter().filter(sound).count()).sum::<usize>()
    });
    let making = std::thread::spawn(move || {
        for round in 1..=60 {
            // The other thread frees it, while this one gives back.
            give.send(batch(round)).expect("it takes them");
            weirgate_memory::give_back();
        }
    });
    for _ in 0..200 {
        weirgate_memory::give_back();
    }
    making.join().expect("no panic");
    assert_eq!(freeing.join().expect("no panic"), 60 * BATCH);
}

#[cfg(target_os = "linux")]
fn a_resting_thread_keeps_nothing() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux has it");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
    };
    let before = resident();
    let many: Vec<Vec<u8>> = (0..100_000).map(|_| vec![1; 1_000]).collect();
    assert!(resident() > before + 90_000_000);
    drop(many);
    weirgate_memory::give_back();
    assert!(resident() < before + 30_000_000, "{} of {before} bytes", resident());
}
