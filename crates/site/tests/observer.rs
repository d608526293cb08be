//! Random histories of small sites, judged by an observer who sees all members at the same true instant.
//!
//! Messages are lost, late, repeated and reordered, processes crash, stop and are deposed without notice, and every
//! clock runs at a rate of its own within the margin.

#[expect(dead_code, reason = "another test uses the rest")]
mod world;

use core::time::Duration;
use std::sync::Arc;

use proptest::prelude::*;
use weirgate_site::{MAX_SAFE, Settings};
use world::{Clock, World};

/// One thing that happens.
#[derive(Clone, Debug)]
enum Event {
    /// Time passes, and nothing else.
    Pass(u64),
    /// All that can be done at once is done: reports, runs and deliveries, so many times, with so many milliseconds
    /// between.
    Quiet {
        rounds: usize,
        millis: u64,
    },
    Send(usize),
    Run(usize),
    /// Delivers a letter, and perhaps keeps it.
    Deliver {
        letter: usize,
        keep: bool,
    },
    Lose(usize),
    Prove(usize),
    Elect(Clock),
    Follow(usize),
    Demand {
        member: usize,
        budget: usize,
        thousandths: u64,
    },
    Crash(usize),
    Restart(usize),
}

fn clocks() -> impl Strategy<Value = Clock> {
    // Rates between 1 and 1.2 differ by at most the margin of 20 %. The extremes are tried as often as all others.
    let rate = prop_oneof![1_000..=1_200_u64, Just(1_000_u64), Just(1_200)];
    (0..1_000_000_000_000_u64, rate).prop_map(|(offset, rate)| Clock { offset, rate: (rate, 1_000) })
}

fn events() -> impl Strategy<Value = Event> {
    let index = 0..16_usize;
    prop_oneof![
        3 => (0..4_000_u64).prop_map(Event::Pass),
        1 => (4_000..40_000_u64).prop_map(Event::Pass),
        4 => (1..8_usize, 1..600_u64).prop_map(|(rounds, millis)| Event::Quiet { rounds, millis }),
        4 => index.clone().prop_map(Event::Send),
        4 => index.clone().prop_map(Event::Run),
        8 => (index.clone(), any::<bool>()).prop_map(|(letter, keep)| Event::Deliver { letter, keep }),
        1 => index.clone().prop_map(Event::Lose),
        3 => index.clone().prop_map(Event::Prove),
        1 => clocks().prop_map(Event::Elect),
        2 => index.clone().prop_map(Event::Follow),
        3 => (index.clone(), index.clone(), 0..1_500_u64)
            .prop_map(|(member, budget, thousandths)| Event::Demand { member, budget, thousandths }),
        1 => index.clone().prop_map(Event::Crash),
        1 => index.prop_map(Event::Restart),
    ]
}

/// Returns the faults that the observer finds.
fn apply(world: &mut World, event: Event) -> Option<String> {
    let members = world.gateways.len();
    match event {
        Event::Pass(millis) => world.pass(Duration::from_millis(millis)),
        Event::Quiet { rounds, millis } => {
            for _ in 0..rounds {
                world.pass(Duration::from_millis(millis));
                for index in 0..world.elected.len() {
                    world.prove(index);
                    world.run(index);
                }
                for member in 0..members {
                    world.follow(member);
                    world.send(member);
                }
                for letter in std::mem::take(&mut world.network) {
                    world.deliver(&letter);
                }
                if let Some(broken) = world.broken() {
                    return Some(broken);
                }
            }
        }
        Event::Send(member) => world.send(member % members),
        Event::Run(index) if !world.elected.is_empty() => world.run(index % world.elected.len()),
        Event::Prove(index) if !world.elected.is_empty() => world.prove(index % world.elected.len()),
        Event::Deliver { letter, keep } if !world.network.is_empty() => {
            let index = letter % world.network.len();
            let letter = world.network[index].clone();
            if !keep {
                world.network.remove(index);
            }
            world.deliver(&letter);
        }
        Event::Lose(letter) if !world.network.is_empty() => {
            world.network.remove(letter % world.network.len());
        }
        Event::Elect(clock) => world.elect(clock),
        Event::Follow(member) => world.follow(member % members),
        Event::Demand { member, budget, thousandths } => {
            let budget = budget % world.site.budgets();
            world.demand(member % members, budget, world.site.total(budget) / 1_000 * thousandths);
        }
        Event::Crash(member) => world.crash(member % members),
        Event::Restart(member) => world.restart(member % members),
        Event::Run(_) | Event::Prove(_) | Event::Deliver { .. } | Event::Lose(_) => {}
    }
    world.broken()
}

fn sites() -> impl Strategy<Value = World> {
    (prop::collection::vec(clocks(), 1..5), 1..3_usize, 0..=MAX_SAFE, 1..5_u32).prop_map(
        |(clocks, budgets, safe, proof)| {
            let mut settings = Settings::new(clocks.len(), vec![1_000_003; budgets]);
            settings.safe = safe;
            settings.proof = Duration::from_millis(500) * proof;
            World::new(Arc::new(settings.check().expect("sound")), &clocks)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// The invariant, after every event. Between events shares only fall.
    #[test]
    fn shares_never_add_up_to_more_than_the_budget(
        mut world in sites(),
        first in clocks(),
        history in prop::collection::vec(events(), 1..150),
    ) {
        world.elect(first);
        for member in 0..world.gateways.len() {
            world.demand(member, 0, world.site.total(0));
        }
        prop_assert_eq!(apply(&mut world, Event::Quiet { rounds: 20, millis: 100 }), None);
        for event in history {
            prop_assert_eq!(apply(&mut world, event.clone()), None, "after {:?}", event);
        }
    }

    /// After any history a network that works brings everything to its place: demands that fit are met.
    #[test]
    fn demands_that_fit_are_met_in_the_end(
        mut world in sites(),
        first in clocks(),
        history in prop::collection::vec(events(), 1..100),
        parts in prop::collection::vec(0..1_000_u64, 4),
    ) {
        for event in history {
            apply(&mut world, event);
        }
        world.elect(first);
        let parts = &parts[..world.gateways.len()];
        // All together want 98 %: minimum shares are a hundredth.
        let unit = world.site.total(0) / 100 * 98 / parts.iter().sum::<u64>().max(1);
        for (member, part) in parts.iter().enumerate() {
            world.restart(member);
            world.demand(member, 0, unit * part);
        }
        apply(&mut world, Event::Quiet { rounds: 60, millis: 100 });
        for (member, part) in parts.iter().enumerate() {
            let share = world.share(member, 0);
            prop_assert!(share >= unit * part, "member {} has {} of {}", member, share, unit * part);
        }
    }
}
