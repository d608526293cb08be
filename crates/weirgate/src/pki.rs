//! `weirgate pki`: a small certificate authority for the processes of a site.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::{Subcommand, builder::PossibleValuesParser};
use weirgate_pki::{Authority, DEFAULT_DAYS, MAX_DAYS, Status, day};
use weirgate_tls::{Identity, Role, Trust, trust};

use crate::exit::{self, say};

/// Make certificates by which gateways, agents and the coordinator of a site trust one another.
///
/// The authority is a folder. `issue` makes a trust folder for each process, person or program. Copy it to its machine,
/// and name it there: `trust: FOLDER` in the policy, or `--trust FOLDER` on the command line. See docs/guide/trust.md.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  weirgate pki init --site prod
  weirgate pki issue gateway gw1 --host gw1.internal --host 10.0.0.1
  weirgate pki issue agent n1                  # named as its node in the policy
  weirgate pki issue operator alice
  weirgate pki show
  weirgate pki show /etc/weirgate/trust        # on the machine of a party
  weirgate pki renew && rsync …                # everything that is due
  weirgate pki revoke agent n1                 # its key was lost

Exit codes:
  0  done; `show`: everything is valid
  1  the command failed: standard error says why; `show`: a certificate has expired or should be renewed
  2  the command line is wrong")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Folder of the authority.
    #[arg(long, value_name = "DIR", default_value = "pki", global = true)]
    folder: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make an authority. An existing one is never replaced.
    Init {
        /// Name of the site, in every certificate. Parties of different sites do not trust each other.
        #[arg(long, value_name = "NAME", default_value = "weirgate")]
        site: String,
        /// Days for which the authority is valid.
        #[arg(long, value_name = "N", default_value_t = MAX_DAYS, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DAYS)))]
        days: u32,
    },
    /// Make the first certificate of a party, in a trust folder of its own.
    Issue {
        #[command(flatten)]
        party: PartyArgs,
        /// Host name or address of the machine, for clients that compare it, such as curl and Prometheus. Weirgate's
        /// own processes do not. Repeatable.
        #[arg(long = "host", value_name = "HOST")]
        hosts: Vec<String>,
        /// Days for which the certificate is valid.
        #[arg(long, value_name = "N", default_value_t = DEFAULT_DAYS, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DAYS)))]
        days: u32,
    },
    /// Replace certificates and keys: that of a party, or all that should be renewed.
    Renew {
        /// Its role. By default everything of which less than a third of its lifetime is left.
        #[arg(value_parser = roles(), requires = "name")]
        role: Option<Role>,
        /// Its name.
        name: Option<String>,
    },
    /// Show every party with the end of its certificate, or a trust folder.
    Show {
        /// A trust folder, such as /etc/weirgate/trust. By default the authority.
        trust: Option<PathBuf>,
    },
    /// Revoke all certificates of a party, and write the revocation list into every trust folder.
    Revoke {
        #[command(flatten)]
        party: PartyArgs,
    },
}

#[derive(Debug, clap::Args)]
struct PartyArgs {
    /// Its role: `gateway`, `agent` (of a node), `coordinator`, `operator` (may use the admin APIs) or `monitor` (may
    /// only read them).
    #[arg(value_parser = roles())]
    role: Role,
    /// Its name. That of an agent is the name of its node.
    name: String,
}

fn roles() -> impl clap::builder::TypedValueParser<Value = Role> {
    use clap::builder::TypedValueParser as _;
    PossibleValuesParser::new(Role::ALL.map(Role::as_str)).try_map(|word| word.parse::<Role>())
}

const DAY: u64 = 86_400;

pub(crate) fn run(args: &Args) -> ExitCode {
    let done = match &args.command {
        Command::Init { site, days } => init(&args.folder, site, *days),
        Command::Issue { party, hosts, days } => issue(&args.folder, party, hosts, *days),
        Command::Renew { role, name } => renew(&args.folder, role.zip(name.as_deref())),
        Command::Show { trust: Some(folder) } => show_trust(folder),
        Command::Show { trust: None } => show(&args.folder),
        Command::Revoke { party } => revoke(&args.folder, party),
    };
    done.unwrap_or_else(|why| exit::fail(&format!("pki: {why}")))
}

fn init(folder: &Path, site: &str, days: u32) -> Result<ExitCode, String> {
    let authority = Authority::create(folder, site, days, weirgate_clock::calendar())?;
    say(&format!("pki: authority of site {site} in `{}`, until {}", folder.display(), day(authority.not_after())));
    say("pki: keep ca.key on this machine, and a copy of the folder in a safe place");
    Ok(ExitCode::SUCCESS)
}

fn open(folder: &Path) -> Result<Authority, String> {
    Authority::open(folder, weirgate_clock::calendar())
}

fn issue(folder: &Path, party: &PartyArgs, hosts: &[String], days: u32) -> Result<ExitCode, String> {
    let PartyArgs { role, name } = party;
    let issued = open(folder)?.issue(*role, name, hosts, days)?;
    told(*role, name, &issued)?;
    say("pki: copy this folder to its machine, as /etc/weirgate/trust for example");
    Ok(ExitCode::SUCCESS)
}

fn renew(folder: &Path, party: Option<(Role, &str)>) -> Result<ExitCode, String> {
    let mut authority = open(folder)?;
    let parties: Vec<(Role, String)> = match party {
        Some((role, name)) => vec![(role, name.to_owned())],
        None => {
            let due = authority.current().filter(|entry| authority.status(entry) != Status::Valid);
            due.map(|entry| Ok((entry.role.parse()?, entry.name.clone()))).collect::<Result<_, String>>()?
        }
    };
    for (role, name) in &parties {
        told(*role, name, &authority.renew(*role, name)?)?;
    }
    say(match parties.len() {
        0 => "pki: nothing is due: more than a third of every lifetime is left",
        _ => "pki: copy these folders to their machines; running processes read them within 20 s",
    });
    Ok(ExitCode::SUCCESS)
}

fn told(role: Role, name: &str, folder: &Path) -> Result<(), String> {
    let trust = Trust::load(folder).map_err(|faults| faults.iter().map(ToString::to_string).collect::<String>())?;
    let until = day(trust.certificate().not_after);
    say(&format!("pki: {role} {name}: `{}`, until {until}", folder.display()));
    Ok(())
}

fn revoke(folder: &Path, party: &PartyArgs) -> Result<ExitCode, String> {
    let PartyArgs { role, name } = party;
    let revoked = open(folder)?.revoke(*role, name)?;
    let plural = if revoked == 1 { "" } else { "s" };
    say(&format!("pki: {role} {name}: {revoked} certificate{plural} revoked"));
    let list = folder.join(trust::CRL);
    say(&format!(
        "pki: copy `{}` into the trust folder on every machine: until then it is still trusted",
        list.display()
    ));
    Ok(ExitCode::SUCCESS)
}

fn show(folder: &Path) -> Result<ExitCode, String> {
    let (now, authority) = (weirgate_clock::calendar(), open(folder)?);
    let mut lines = format!(
        "site {}, authority until {}, {} revoked\n",
        authority.site(),
        expiry(authority.not_after(), now),
        authority.revoked()
    );
    let mut sound = true;
    let rows: Vec<[String; 3]> = authority
        .current()
        .map(|entry| {
            let status = authority.status(entry);
            sound &= status == Status::Valid;
            let word = match status {
                Status::Valid => "",
                Status::Due => "  renew it",
                Status::Expired => "  EXPIRED",
            };
            let hosts = entry.hosts.join(" ");
            [format!("{} {}", entry.role, entry.name), format!("{}{word}", expiry(entry.expiry(), now)), hosts]
        })
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default();
    let (first, second) = (width(0), width(1));
    for [party, until, hosts] in &rows {
        lines += format!("{party:first$}  {until:second$}  {hosts}").trim_end();
        lines.push('\n');
    }
    let shown = exit::print(&lines);
    Ok(if sound { shown } else { ExitCode::from(exit::NO) })
}

fn show_trust(folder: &Path) -> Result<ExitCode, String> {
    let faults =
        |faults: Vec<weirgate_tls::Fault>| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    let (now, trust) = (weirgate_clock::calendar(), Trust::load(folder).map_err(faults)?);
    let certificate = trust.certificate();
    let names = Identity::read(&folder.join(trust::CERTIFICATE))?.names;
    let shown = exit::print(&format!(
        "{} of site {}, until {}\nnames: {}\n",
        trust.own(),
        trust.own().site,
        expiry(certificate.not_after, now),
        names.join(" ")
    ));
    Ok(if certificate.is_valid(now) { shown } else { ExitCode::from(exit::NO) })
}

/// Returns a day such as `2027-11-25`, with the days until then.
fn expiry(time: SystemTime, now: SystemTime) -> String {
    match time.duration_since(now) {
        Ok(left) => format!("{} ({} days)", day(time), left.as_secs() / DAY),
        Err(_) => format!("{} (over)", day(time)),
    }
}
