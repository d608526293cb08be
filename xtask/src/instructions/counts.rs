//! Reads the counts that callgrind and strace write.

/// Functions that allocate memory: those of the C library, and those of mimalloc that its Rust crate calls.
const ALLOCATE: [&str; 9] = [
    "malloc", "calloc", "realloc", "memalign", "posix_memalign", "aligned_alloc", "mi_malloc_aligned",
    "mi_zalloc_aligned", "mi_realloc_aligned",
];

/// Returns the instructions of a process, from callgrind's file. Its format is in the Callgrind manual.
pub(super) fn instructions(text: &str) -> Option<u64> {
    let total = text.lines().find_map(|line| line.strip_prefix("summary: ").or(line.strip_prefix("totals: ")))?;
    total.trim().parse().ok()
}

/// Returns the number of allocations of a process, from callgrind's file. An allocation that another one makes
/// counts once.
pub(super) fn allocations(text: &str) -> u64 {
    let mut names = Names::default();
    let (mut caller, mut callee, mut count) = (false, false, 0);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            caller = names.allocates(name);
        } else if let Some(name) = line.strip_prefix("cfn=") {
            callee = names.allocates(name);
        } else if let Some(calls) = line.strip_prefix("calls=")
            && callee
            && !caller
        {
            count += calls.split(' ').next().and_then(|calls| calls.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    count
}

/// The functions with names that have been read, by number: whether they allocate.
#[derive(Default)]
struct Names(std::collections::HashMap<String, bool>);

impl Names {
    /// Whether a function allocates. It is `(number) name` when it is named first, and `(number)` afterwards.
    fn allocates(&mut self, text: &str) -> bool {
        let (number, name) = text.split_once(' ').unwrap_or((text, ""));
        if name.is_empty() {
            return self.0.get(number).copied().unwrap_or(false);
        }
        // A recursive call has `'2` after its name.
        let allocates = ALLOCATE.contains(&name.split('\'').next().unwrap_or(name));
        self.0.insert(number.to_owned(), allocates);
        allocates
    }
}

/// Returns the number of system calls of a process, from strace's summary. `None` while it is not complete.
pub(super) fn system_calls(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.ends_with(" total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callgrind_is_understood() {
        let text = "version: 1\nfn=(1) serve\n10 50\ncfn=(2) malloc\ncalls=3 0\n10 60\ncfn=(3) free\ncalls=9 0\n11 5\n\n\
            fn=(2)\ncfn=(4) calloc'2\ncalls=5 0\n1 1\n\nfn=(5) grow\ncfn=(4)\ncalls=2 7\n1 1\ntotals: 1234\n";
        assert_eq!((instructions(text), allocations(text)), (Some(1234), 5));
    }

    #[test]
    fn strace_is_understood() {
        let text = "% time     seconds  usecs/call     calls    errors syscall\n------ ----------- ----------- --------- \
            --------- ----------------\n 60.00    0.010000           5      2000           epoll_wait\n------ \
            ----------- ----------- --------- --------- ----------------\n100.00    0.012345           3      4567        12 total\n";
        assert_eq!(system_calls(text), Some(4567));
        assert_eq!(system_calls("% time"), None);
    }
}
