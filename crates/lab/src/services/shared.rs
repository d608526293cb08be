//! The content that all instances of a service share: an index, a wiki with its database, or a repository.

use std::path::Path;

use super::cgit::Repository;
use super::guarded::Guarded;
use super::index::Index;
use super::instance::Place;
use super::mediawiki::Wiki;
use super::{Kind, apache, gunicorn, tomcat, xapian};

/// The content that instances share. Dropping it ends its processes and removes its files, but for the index, which
/// later trials use again.
#[derive(Debug)]
pub(super) enum Shared {
    /// Each instance has all it needs.
    Nothing,
    Index(Index),
    Wiki(Wiki),
    Repository(Repository),
}

impl Shared {
    /// Makes the content of `kind` in `directory`, with its processes on `cpu`.
    pub(super) fn open(kind: Kind, cpu: Option<usize>, directory: &Path) -> Result<Shared, String> {
        Ok(match kind {
            Kind::ApachePhp | Kind::Tomcat | Kind::Gunicorn => Shared::Nothing,
            Kind::Xapian => Shared::Index(Index::open()?),
            Kind::MediaWiki => Shared::Wiki(Wiki::start(cpu, directory)?),
            Kind::Cgit => Shared::Repository(Repository::make(directory)?),
        })
    }

    /// Writes the configuration of an instance of `kind`.
    pub(super) fn prepare(&self, kind: Kind, place: &Place) -> Result<(), String> {
        match self {
            Shared::Index(index) => xapian::prepare(place, index),
            Shared::Wiki(wiki) => wiki.prepare(place),
            Shared::Repository(repository) => repository.prepare(place),
            Shared::Nothing => match kind {
                Kind::Tomcat => tomcat::prepare(place),
                Kind::Gunicorn => gunicorn::prepare(place),
                _ => apache::prepare_loop(place),
            },
        }
    }

    /// Returns the values for `{word}` in URL form.
    pub(super) fn words(&self) -> &[String] {
        match self {
            Shared::Nothing => &[],
            Shared::Index(index) => &index.queries,
            Shared::Wiki(wiki) => &wiki.titles,
            Shared::Repository(repository) => &repository.paths,
        }
    }

    /// Returns the database server, if there is one.
    pub(super) fn database(&self) -> Option<&Guarded> {
        if let Shared::Wiki(wiki) = self { Some(&wiki.database) } else { None }
    }

    /// Returns the database server for what changes it.
    pub(super) fn database_mut(&mut self) -> Option<&mut Guarded> {
        if let Shared::Wiki(wiki) = self { Some(&mut wiki.database) } else { None }
    }
}
