//! What was opened in this browser, the latest first: kept in the browser alone, a line each.

use leptos::prelude::*;
use web_sys::Storage;

use super::entries::Kind;
use crate::ui::pages::lease;
use crate::ui::shell::browser::storage;

/// So many are kept.
const MOST: usize = 10_000;

/// The kinds that are kept, by the letter before the name.
const KINDS: [(char, Kind); 4] = [('l', Kind::Lease), ('o', Kind::Owner), ('j', Kind::Job), ('s', Kind::Subject)];

/// What one reader opened.
pub(super) struct Recent {
    /// Its name in the browser's storage.
    stored: String,
}

impl Recent {
    pub(super) fn of(reader: &str) -> Self {
        Self { stored: format!("recent/{reader}") }
    }

    fn read(&self, storage: &Storage) -> String {
        storage.get_item(&self.stored).ok().flatten().unwrap_or_default()
    }

    /// All, the latest first.
    pub(super) fn all(&self) -> Vec<(Kind, String)> {
        let stored = storage().map(|storage| self.read(&storage)).unwrap_or_default();
        stored.lines().take(MOST).filter_map(parse).collect()
    }

    /// Notes that something was opened just now. A name that holds the end of a line is not kept: no record has such a name.
    pub(super) fn note(&self, kind: Kind, name: &str) {
        let Some(storage) = storage() else { return };
        let Some((letter, _)) = KINDS.iter().find(|(_, known)| *known == kind) else { return };
        if name.is_empty() || name.contains('\n') {
            return;
        }
        let stored = self.read(&storage);
        let new = format!("{letter}{name}");
        let rest = stored.lines().filter(|line| *line != new).take(MOST - 1);
        let lines: Vec<&str> = std::iter::once(&*new).chain(rest).collect();
        // A browser that has no room for it forgets it.
        let _ = storage.set_item(&self.stored, &lines.join("\n"));
    }

    /// Notes the key whose page this is.
    pub(super) fn note_page(&self) {
        let location = window().location();
        let (path, query) = (location.pathname().unwrap_or_default(), location.search().unwrap_or_default());
        let query = form_urlencoded::parse(query.trim_start_matches('?').as_bytes());
        let key = query.into_iter().find(|(name, _)| name == "key").map(|(_, key)| key.into_owned());
        if let Some(key) = lease::key_of(&path, key) {
            self.note(Kind::Lease, key.as_str());
        }
    }
}

fn parse(line: &str) -> Option<(Kind, String)> {
    let (letter, name) = (line.chars().next()?, line.get(1..)?);
    let (_, kind) = KINDS.iter().find(|(known, _)| *known == letter)?;
    Some((*kind, name.to_owned()))
}
