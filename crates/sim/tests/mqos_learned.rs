//! A page becomes three times as expensive: the effect with a page table that is learned in production, and
//! without one. (The learned costs are asserted in `src/driver/pages/tests.rs`.)

mod support;

use support::{example, sound};
use weirgate_verdict::{ResourceUse, judge};

/// Returns the use of resources before the change, in the minute after it, and in the next.
fn used(changes: &[&str]) -> Vec<ResourceUse> {
    let experiment = example("mqos-learned", changes);
    let phases = judge(&experiment, &sound(&experiment, 1)).phases;
    phases.into_iter().map(|phase| phase.resources.expect("requests take several resources")).collect()
}

#[test]
fn a_table_that_follows_its_pages_serves_more_and_splits_better_than_one_that_does_not() {
    let learned = used(&[]);
    let fixed = used(&["policy.page_table.learned=false"]);
    // Nothing is lost while the table is right.
    let served = |phase: &ResourceUse| phase.all.served_per_s;
    assert!(served(&learned[0]) > 0.98 * served(&fixed[0]), "{} {}", served(&learned[0]), served(&fixed[0]));
    for phase in [1, 2] {
        let (learned, fixed) = (&learned[phase], &fixed[phase]);
        assert!(learned.utilisation[0] >= 0.95, "the CPU is what is scarce now: {:?}", learned.utilisation);
        assert!(served(learned) > 1.05 * served(fixed), "{} {}", served(learned), served(fixed));
        assert!(learned.all.processing_ms < 0.75 * fixed.all.processing_ms, "less waits inside the server");
        for resource in [1, 2] {
            assert!(learned.utilisation[resource] > 1.05 * fixed.utilisation[resource], "nor do disk and network");
        }
        // Six tenths of the CPU belong to class gold.
        let beyond = |used: &ResourceUse| used.classes[0].portion.used[0] / used.all.used[0] - 0.6;
        assert!(beyond(learned) < 0.6 * beyond(fixed), "{} {}", beyond(learned), beyond(fixed));
    }
}
