//! Temporary.
fn main() {
    let path = std::env::args().nth(1).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let site = match weirgate_config::load(&path, &text, false) {
        Ok(l) => l.site,
        Err(e) => panic!("{e}"),
    };
    let metrics: Vec<Box<dyn weirgate_gateway::Observer>> = vec![];
    let gateway =
        weirgate_gateway::Gateway::start(site, &text, weirgate_gateway::ReloadSource::Nowhere, metrics).unwrap();
    gateway.run_until_signalled(|s| eprintln!("{s:?}")).unwrap();
}
