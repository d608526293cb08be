//! `weirgate completions` and `weirgate man`: the command line for shells and as manual pages.
//!
//! Both are written from the same types that parse the command line, so they cannot differ from it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit;

/// Print the completions of commands and options for a shell. Packages install them.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  weirgate completions bash > ~/.local/share/bash-completion/completions/weirgate
  weirgate completions zsh > ~/.zfunc/_weirgate     # a folder of $fpath
  weirgate completions fish > ~/.config/fish/completions/weirgate.fish")]
pub(crate) struct Completions {
    /// Your shell.
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Pages {
    /// Folder for the pages, one per command. It is made if it does not exist.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
}

/// Prints the completions.
pub(crate) fn completions(args: &Completions) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "weirgate", &mut text);
    exit::print(&String::from_utf8_lossy(&text))
}

/// Writes a manual page for each command that is not hidden.
pub(crate) fn pages(args: &Pages) -> ExitCode {
    let written = std::fs::create_dir_all(&args.output)
        .and_then(|()| clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), &args.output));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::fail(&format!("the manual pages cannot be written to {}: {error}", args.output.display())),
    }
}
