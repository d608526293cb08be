//! A field that the policy file leaves out has the engine's own default.
//!
//! The file declares its defaults, so that the schema and the guide can show them. The engine has the same defaults,
//! for policies that are made without a file. Each method is written here without figures and compared with the
//! engine's. A method that is missing here fails the test.

use weirgate_config::{Site, load, schema};
use weirgate_engine as engine;

/// The site of a policy with this discipline and dispatch.
fn site(discipline: &str, dispatch: &str) -> Site {
    let text = format!(
        "listen: 127.0.0.1:80\nupstreams: {{ web: {{ nodes: [127.0.0.1:1, 127.0.0.2:1]{dispatch} }} }}\npage_table: learned\n\
         discipline: {discipline}\nclasses:\n  - {{ name: all, service_time: 9ms, guarantee: {{ throughput: 1/s, \
         response_time: {{ avg: 1s }} }} }}\n"
    );
    load("p.yaml", &text).unwrap_or_else(|errors| panic!("{errors}")).site
}

/// The words that a choice of the schema accepts alone.
fn words(choice: &str, forms: &str) -> Vec<String> {
    let schema = schema();
    let forms = schema["$defs"][choice][forms].as_array().expect("a choice has forms");
    forms.iter().filter_map(|form| form["const"].as_str()).map(str::to_owned).collect()
}

/// Checks the value of each word, and that no word of the schema is missing.
fn agree<T: PartialEq + std::fmt::Debug>(words: &[String], expected: &[(&str, T)], read: impl Fn(&str) -> T) {
    assert_eq!(words, expected.iter().map(|(word, _)| *word).collect::<Vec<_>>());
    for (word, default) in expected {
        assert_eq!(read(word), *default, "{word}");
    }
}

#[test]
fn disciplines() {
    let class = &site("none", "").policy.classes[0];
    let switch = |name: &str| engine::Discipline::web_switch(name, engine::ServerLoad::derived(&[class]));
    let expected = [
        ("weirgate", engine::Discipline::weirgate()),
        ("quorum", engine::Discipline::quorum()),
        ("seda", engine::Discipline::seda()),
        ("switch_adm", switch("switch_adm")),
        ("static_part", switch("static_part")),
        ("dynamic_part", switch("dynamic_part")),
        ("mqos", engine::Discipline::mqos()),
        ("sqos", engine::Discipline::sqos(0)),
        ("none", engine::Discipline::none()),
    ];
    agree(&words("Discipline", "anyOf"), &expected, |word| site(word, "").policy.discipline);
}

#[test]
fn admission() {
    let class = &site("none", "").policy.classes[0];
    let expected = [
        ("none", engine::Admit::None),
        ("deadline", engine::Discipline::quorum().admit),
        ("predict", engine::Admit::Predict(engine::Predict::default())),
        ("thresholds", engine::Discipline::seda().admit),
        ("server_load", engine::Admit::ServerLoad(engine::ServerLoad::derived(&[class]))),
        ("codel", engine::Admit::Codel(engine::Codel::default())),
    ];
    agree(&words("Admit", "anyOf"), &expected, |word| {
        let custom = format!("{{ custom: {{ admit: {word}, load_control: {{ fixed: 9 }}, precedence: fifo }} }}");
        site(&custom, "").policy.discipline.admit
    });
}

#[test]
fn load_control() {
    let expected = [
        ("window_linear", engine::Discipline::quorum().load_control),
        ("window_adaptive", engine::LoadControl::WindowAdaptive(engine::Adaptive::default())),
        ("slots", engine::Discipline::seda().load_control),
        ("resource_availability", engine::LoadControl::ResourceAvailability(engine::Availability::default())),
        ("gradient", engine::LoadControl::Gradient(engine::Gradient::default())),
        ("aimd", engine::LoadControl::Aimd(engine::Aimd::default())),
    ];
    agree(&words("LoadControl", "anyOf"), &expected, |word| {
        let precedence = if word == "resource_availability" { "mdrr" } else { "fifo" };
        let custom = format!("{{ custom: {{ admit: none, load_control: {word}, precedence: {precedence} }} }}");
        site(&custom, "").policy.discipline.load_control
    });
}

#[test]
fn precedence() {
    let tokens = engine::Precedence::Tokens(engine::Tokens::default());
    let expected = [
        ("weighted_fair", engine::Precedence::WeightedFair),
        ("fifo", engine::Precedence::Fifo),
        ("tokens", tokens),
        ("reenqueue", engine::Precedence::Reenqueue),
        ("priority", engine::Precedence::Priority),
        ("mdrr", engine::Precedence::Mdrr),
        ("drfq", engine::Precedence::Drfq),
    ];
    let read = |precedence: &str| {
        let load_control = if matches!(precedence, "mdrr" | "drfq") { "resource_availability" } else { "slots" };
        let custom = format!("{{ custom: {{ admit: none, load_control: {load_control}, precedence: {precedence} }} }}");
        site(&custom, "").policy.discipline.precedence
    };
    agree(&words("PrecedenceWord", "oneOf"), &expected, read);
    assert_eq!((read("{ tokens: {} }"), read("{}")), (tokens, tokens));
}

#[test]
fn dispatch() {
    let dynamic = engine::Dispatch::PartitionDynamic { sizes: None, resize: engine::Resize::default() };
    let expected = [
        ("least_outstanding", engine::Dispatch::LeastOutstanding),
        ("least_loaded", engine::Dispatch::LeastLoaded { avoid_last: false }),
        ("weighted_round_robin", engine::Dispatch::WeightedRoundRobin),
        ("power_of_two", engine::Dispatch::PowerOfTwo),
        ("lard", engine::Dispatch::Lard(engine::Lard::default())),
        ("partition_static", engine::Dispatch::PartitionStatic { sizes: None }),
        ("partition_dynamic", dynamic),
    ];
    agree(&words("Dispatch", "anyOf"), &expected, |word| {
        site("none", &format!(", dispatch: {word}")).policy.pools[0].dispatch
    });
    assert_eq!(site("dynamic_part", "").policy.pools[0].dispatch, dynamic);
}

#[test]
fn classes_and_upstreams() {
    let policy = site("weirgate", "").policy;
    let class = &policy.classes[0];
    assert_eq!((class.queue, class.retry), (engine::QueueBounds::default(), engine::RetryBudget::default()));
    assert_eq!(policy.pools[0].ejection, engine::Ejection::default());
}
