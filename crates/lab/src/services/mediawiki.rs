//! MediaWiki, a web application that its operator cannot change: Apache and PHP in front of one MariaDB for all
//! instances.
//!
//! The wiki is new in every trial. Its pages are cut from the licences that every Debian has, with headings, tables and
//! links among them, so that they cost about as much as pages that people write. Their number is fixed, and so is their
//! text, so that every trial serves the same pages.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use indicatif::{ProgressBar, ProgressStyle};

use super::Kind;
use super::apache::{self, Application};
use super::directory::{Directory, Socket};
use super::guarded::Guarded;
use super::instance::{LAST_LINES, Place};

/// Directory of MediaWiki in Debian.
const PAGES: &str = "/usr/share/mediawiki";

/// Path of the database server in Debian.
const SERVER: &str = "/usr/sbin/mariadbd";

/// Path of the program that makes the files of an empty database.
const NEW_DATABASE: &str = "/usr/bin/mariadb-install-db";

/// A program that it runs. Debian has it in a package of clients, which it does not require.
const DEFAULTS: &str = "/usr/bin/my_print_defaults";

/// Path of PHP for the scripts that set up a wiki.
const PHP: &str = "/usr/bin/php";

/// One of the licences that every Debian has.
pub(super) const LICENCE: &str = "/usr/share/common-licenses/GPL-3";

/// The files that must exist.
pub(super) const NEEDS: [&str; 6] =
    ["/usr/share/mediawiki/maintenance/install.php", SERVER, NEW_DATABASE, DEFAULTS, PHP, LICENCE];

/// Extensions of PHP that MediaWiki uses here, in the order in which they must be loaded.
const EXTENSIONS: [&str; 12] = [
    "mysqlnd", "mysqli", "mbstring", "xml", "dom", "xmlreader", "ctype", "fileinfo", "iconv", "tokenizer", "intl",
    "apcu",
];

/// Licences whose text is cut into pages and files.
const TEXTS: [&str; 6] = ["Apache-2.0", "Artistic", "GPL-1", "GPL-2", "GPL-3", "LGPL-2.1"];

/// Number of pages. More than fit into one result of a search or a list, and few enough to be stored in seconds.
const COUNT: usize = 300;

/// Number of sections of a page and of lines in each. A page is then about 6 KB of text, somewhat more than an average
/// article of Wikipedia.
const SECTIONS: (usize, usize) = (12, 6);

/// Templates that include a page many times, and how often. They render pages of any cost: one that is asked for as a
/// text, and not by its title, comes from no cache.
const TEMPLATES: [(&str, usize); 2] = [("Volume", 16), ("Archive", 80)];

/// A wiki with its database. Dropping it ends the database and removes all files.
#[derive(Debug)]
pub(super) struct Wiki {
    /// The database. It ends before its directory is removed.
    pub(super) database: Guarded,
    socket: Socket,
    directory: Directory,
    /// Titles of the pages in URL form.
    pub(super) titles: Vec<String>,
}

impl Wiki {
    /// Starts a database on `cpu` in a new directory in `directory`, and stores a new wiki in it.
    pub(super) fn start(cpu: Option<usize>, directory: &Path) -> Result<Wiki, String> {
        let bar = ProgressBar::new(5).with_message("setting up a wiki");
        // The template is a constant, and the bar's own style serves as well.
        let style = ProgressStyle::with_template("{msg} {wide_bar} step {pos} of {len}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let directory = Directory::new(directory.join("mediawiki"))?;
        // Sockets are named by the port of their instance. A wiki has none, and a lab has one wiki.
        let socket = Socket::of(([0, 0, 0, 0], 0).into());
        let root = directory.text()?.to_owned();
        let user = if rustix::process::geteuid().is_root() { vec!["--user=www-data".to_owned()] } else { Vec::new() };
        let data = format!("--datadir={root}/data");
        let mut words = vec![NEW_DATABASE.to_owned(), "--no-defaults".to_owned(), data.clone()];
        // The database is reached by its socket alone.
        words.extend(["--auth-root-authentication-method=normal".to_owned(), "--skip-test-db".to_owned()]);
        words.extend_from_slice(&user);
        run(&words, &directory)?;
        bar.inc(1);
        let mut words = vec![SERVER.to_owned(), "--no-defaults".to_owned(), data];
        words.extend([
            format!("--socket={}", socket.text()?),
            "--skip-networking".to_owned(),
            // The wiki fits into memory, and it need not survive a loss of power.
            "--innodb-buffer-pool-size=64M".to_owned(),
            "--innodb-flush-log-at-trx-commit=0".to_owned(),
            // Every worker of every instance has a connection of its own.
            "--max-connections=2000".to_owned(),
        ]);
        words.extend_from_slice(&user);
        let database = Guarded::start("mariadbd", &words, cpu, directory.path())?;
        let mut wiki = Wiki { database, socket, directory, titles: (0..COUNT).map(url_title).collect() };
        wiki.database.await_socket(wiki.socket.text()?)?;
        bar.inc(1);
        wiki.install()?;
        bar.inc(1);
        wiki.script("rebuildLocalisationCache.php", &["--lang=en", "--force"])?;
        readable(&wiki.directory.path().join("cache")).map_err(|error| format!("{root}/cache: {error}"))?;
        bar.inc(1);
        wiki.import()?;
        bar.finish_and_clear();
        Ok(wiki)
    }

    /// Makes the tables and the settings of the wiki.
    fn install(&self) -> Result<(), String> {
        let root = self.directory.text()?;
        self.directory.write("php.ini", &ini(), &[])?;
        let server = format!("--dbserver=localhost:{}", self.socket.text()?);
        let place = format!("--confpath={root}");
        let words = [
            "--dbtype=mysql", &server, "--dbname=wiki", "--dbuser=root", "--dbpass=", "--installdbuser=root",
            "--installdbpass=", "--server=http://127.0.0.1", "--scriptpath=", "--lang=en",
            "--pass=Weirgate-of-the-lab", &place, "Wiki", "Admin",
        ];
        self.script("install.php", &words)?;
        let file = self.directory.path().join("LocalSettings.php");
        let settings = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let own = include_str!("mediawiki.php").replace("%DIRECTORY%", root);
        self.directory.write("LocalSettings.php", &(settings + &own), &[])?;
        self.directory.write("cache/README", "MediaWiki's messages in one language.\n", &[])
    }

    /// Stores the pages.
    fn import(&self) -> Result<(), String> {
        let lines = licences()?;
        let pages = (0..COUNT).map(|number| (title(number), page(number, &lines)));
        let templates =
            TEMPLATES.iter().map(|(name, times)| (format!("Template:{name}"), "{{:{{{1}}}}}\n".repeat(*times)));
        let mut files = Vec::with_capacity(COUNT + TEMPLATES.len());
        for (title, text) in pages.chain(templates) {
            // The name of the file becomes the title of the page.
            let name = format!("text/{title}.txt");
            self.directory.write(&name, &text, &[])?;
            files.push(format!("{}/{name}", self.directory.text()?));
        }
        let mut words = vec!["--overwrite"];
        words.extend(files.iter().map(String::as_str));
        self.script("importTextFiles.php", &words)
    }

    /// Runs a maintenance script of MediaWiki.
    fn script(&self, name: &str, words: &[&str]) -> Result<(), String> {
        let root = self.directory.text()?;
        let mut all = vec!["env".to_owned(), "PHP_INI_SCAN_DIR=".to_owned()];
        // The script that makes the settings refuses to run where there are some.
        if name != "install.php" {
            all.push(format!("MW_CONFIG_FILE={root}/LocalSettings.php"));
        }
        all.extend([PHP, "-c", "php.ini"].map(str::to_owned));
        all.push(format!("{PAGES}/maintenance/{name}"));
        all.extend(words.iter().map(|word| (*word).to_owned()));
        run(&all, &self.directory)
    }

    /// Writes the configuration of an instance.
    pub(super) fn prepare(&self, place: &Place) -> Result<(), String> {
        let environment = format!("env[MW_CONFIG_FILE] = \"{}/LocalSettings.php\"", self.directory.text()?);
        apache::prepare(place, &Application { pages: PAGES, ini: &ini(), environment: &environment })
    }
}

/// Returns the lines of the licences that have text.
pub(super) fn licences() -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    for text in TEXTS {
        let file = format!("/usr/share/common-licenses/{text}");
        let text = fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
        lines.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
    }
    Ok(lines)
}

/// Returns the extension of PHP that is not installed, if there is one.
pub(super) fn missing_extension() -> Option<String> {
    let versions = fs::read_dir("/usr/lib/php").into_iter().flatten().flatten();
    let directories: Vec<PathBuf> = versions.map(|version| version.path()).collect();
    let there = |name: &&str| directories.iter().any(|versions| versions.join(format!("{name}.so")).exists());
    EXTENSIONS.into_iter().find(|name| !there(name)).map(|name| format!("PHP's extension {name}"))
}

/// Returns the lines of `php.ini`.
fn ini() -> String {
    let extensions: String = EXTENSIONS.iter().map(|name| format!("extension={name}\n")).collect();
    // Debian's limit for PHP in a web server, and a cache of compiled pages, as every operator has it.
    format!("{extensions}zend_extension=opcache\nmemory_limit=128M\n")
}

fn title(number: usize) -> String {
    format!("Page {number}")
}

fn url_title(number: usize) -> String {
    title(number).replace(' ', "_")
}

/// Returns the text of a page: sections of lines, each with two links and a table.
fn page(number: usize, lines: &[String]) -> String {
    let mut text = format!("'''{}''' is a page of this wiki.\n", title(number));
    // Factors without a common divisor with the number of pages, so that every page is linked to.
    let other = |section: usize, step: usize| title((number * step + section * 13) % COUNT);
    for section in 0..SECTIONS.0 {
        text += &format!("== Section {section} ==\n");
        // Neighbouring pages and sections begin at different lines.
        let from = number * 37 + section * 101;
        for line in lines.iter().cycle().skip(from % lines.len().max(1)).take(SECTIONS.1) {
            text += line;
            text.push('\n');
        }
        text += &format!("See also [[{}]] and [[{}|another one]].\n", other(section, 7), other(section, 11));
        text += "{| class=\"wikitable\"\n! Name !! Value\n|-\n| length || 1\n|-\n| width || 2\n|}\n";
    }
    text
}

/// Lets every user read what is in `directory`.
fn readable(directory: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        fs::set_permissions(entry?.path(), fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}

/// Runs a program of the set-up in `directory` to its end.
fn run(words: &[String], directory: &Directory) -> Result<(), String> {
    let [program, arguments @ ..] = words else { return Ok(()) };
    let output = Command::new(program).args(arguments).current_dir(directory.path()).output();
    let output = output.map_err(|error| format!("{}: {program}: {error}", Kind::MediaWiki))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    // Lines with `#` are PHP's list of calls.
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).collect();
    let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n  ");
    let name = arguments.iter().find(|word| word.ends_with(".php") && word.starts_with('/')).unwrap_or(program);
    Err(format!("{}: {name} failed:\n  {last}", Kind::MediaWiki))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_differ_and_link_to_one_another() {
        let lines: Vec<String> = (0..2000).map(|number| format!("line {number}")).collect();
        let texts: Vec<String> = (0..COUNT).map(|number| page(number, &lines)).collect();
        let different: std::collections::BTreeSet<&String> = texts.iter().collect();
        assert_eq!(different.len(), COUNT);
        let all = texts.concat();
        assert!((0..COUNT).all(|number| all.contains(&format!("[[{}]]", title(number)))), "every page is linked to");
        assert_eq!(url_title(7), "Page_7");
    }

    #[test]
    fn a_script_that_fails_is_named_with_its_last_words() {
        let path = std::env::temp_dir().join(format!("weirgate-wiki-{}", std::process::id()));
        let directory = Directory::new(path).expect("it is made");
        let words = ["sh", "-c", "echo first; echo last >&2; exit 3"].map(str::to_owned);
        let error = run(&words, &directory).expect_err("it fails");
        assert_eq!(error, "mediawiki: sh failed:\n  first\n  last");
    }
}
