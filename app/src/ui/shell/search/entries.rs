//! What can be found: pages, actions, settings, leases, and who and what they are for.

use domain::Role;

use super::ranking::{Query, Searched, rank};
use crate::api::leases::Status;
use crate::api::records::{Record, RecordKind};
use crate::api::values::Prefix;
use crate::ui::pages::filter::{Filter, lease_address};
use crate::ui::shell::appearance::Appearance;
use crate::ui::shell::choices::Choice;
use crate::ui::shell::density::Density;
use crate::ui::shell::places::PLACES;

/// How many results are shown at the most.
pub const MOST: usize = 30;

/// What an entry is, as it says before its title.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A page.
    Page,
    /// A list that is narrowed down.
    List,
    /// Something to be done.
    Action,
    /// Something to be set.
    Setting,
    /// A key.
    Lease,
    /// An owner.
    Owner,
    /// A job.
    Job,
    /// A customer, license, invoice or the like.
    Subject,
}

impl Kind {
    /// The word.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Page => "Page",
            Self::List => "List",
            Self::Action => "Action",
            Self::Setting => "Setting",
            Self::Lease => "Lease",
            Self::Owner => "Owner",
            Self::Job => "Job",
            Self::Subject => "Subject",
        }
    }

    /// What comes first of what answers alike.
    const fn bonus(self) -> i32 {
        match self {
            Self::List => 60,
            Self::Page => 40,
            Self::Action | Self::Setting => 20,
            Self::Lease => 10,
            Self::Owner | Self::Job | Self::Subject => 0,
        }
    }
}

impl From<RecordKind> for Kind {
    fn from(kind: RecordKind) -> Self {
        match kind {
            RecordKind::Lease => Self::Lease,
            RecordKind::Owner => Self::Owner,
            RecordKind::Job => Self::Job,
            RecordKind::Subject => Self::Subject,
        }
    }
}

/// What choosing an entry does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Goes to an address.
    Go(String),
    /// Sets the appearance.
    Appear(Appearance),
    /// Sets how close together rows are.
    Space(Density),
    /// Shows the keys.
    ShowKeys,
    /// Signs out.
    SignOut,
}

/// Something that can be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub title: String,
    /// A few words about it.
    pub about: String,
    /// What choosing it does.
    pub deed: Deed,
    searched: Searched,
}

impl Entry {
    fn new(kind: Kind, title: impl Into<String>, about: impl Into<String>, deed: Deed) -> Self {
        let (title, about) = (title.into(), about.into());
        let searched = Searched::new(&format!("{title} {about}"));
        Self { kind, title, about, deed, searched }
    }

    /// A record.
    #[must_use]
    pub fn record(kind: Kind, name: &str, about: &str) -> Self {
        let address = match kind {
            Kind::Owner => Filter::default().with("owner", Some(name)).address(None),
            Kind::Job => Filter::default().with("job", Some(name)).address(None),
            Kind::Subject => Filter::default().with("subject", Some(name)).address(None),
            _ => lease_address(name),
        };
        Self::new(kind, name, about, Deed::Go(address))
    }

    /// A key with what its last lease is, and whose.
    #[must_use]
    pub fn lease(key: &str, status: Status, owner: &str) -> Self {
        Self::record(Kind::Lease, key, &format!("{} \u{b7} {owner}", status.as_str()))
    }

    /// The address that it goes to, if it goes anywhere.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        match &self.deed {
            Deed::Go(address) => Some(address),
            _ => None,
        }
    }
}

impl From<&Record> for Entry {
    fn from(record: &Record) -> Self {
        match (record.status, &record.owner) {
            (Some(status), Some(owner)) => Self::lease(&record.name, status, owner),
            _ => Self::record(record.kind.into(), &record.name, ""),
        }
    }
}

/// All that is known without asking anybody: pages, actions and settings.
#[must_use]
pub fn fixed() -> Vec<Entry> {
    let places = PLACES.iter().filter(|place| place.is_address());
    let pages = places.map(|place| {
        let about = format!("{} \u{b7} {}", place.group.title(), place.about);
        Entry::new(Kind::Page, place.title, about, Deed::Go(place.path.to_owned()))
    });
    let settings = settings("theme, colours", Deed::Appear).chain(settings("rows, lists", Deed::Space));
    let actions = [
        Entry::new(Kind::Action, "Show the keys", "keyboard, shortcuts, help", Deed::ShowKeys),
        Entry::new(Kind::Action, "Sign out", "end this session", Deed::SignOut),
    ];
    pages.chain(actions).chain(settings).collect()
}

/// All that a choice can be set to.
fn settings<C: Choice>(about: &'static str, deed: fn(C) -> Deed) -> impl Iterator<Item = Entry> {
    let entry = move |choice: &C| {
        let title = format!("{}: {}", C::LABEL, choice.title());
        Entry::new(Kind::Setting, title, about, deed(*choice))
    };
    C::ALL.iter().map(entry)
}

/// What operators do to a key: the words that ask for it, what it says, and its dialog on the key's page.
const VERBS: [(&[&str], &str, &str); 4] = [
    (&["force-release", "break", "release"], "Force-release", "break"),
    (&["hand-over", "transfer"], "Hand over", "transfer"),
    (&["quarantine", "pause"], "Quarantine", "quarantine"),
    (&["lift", "unquarantine", "resume"], "Lift the quarantine of", "lift"),
];

/// A query that begins with what to do, such as `break nightly/`: what that says, the dialog for it, and the rest.
fn verb(typed: &str) -> Option<(&'static str, &'static str, &str)> {
    let (word, rest) = typed.trim_start().split_once(char::is_whitespace)?;
    let word = word.to_lowercase();
    if word.len() < 3 {
        return None;
    }
    let (_, title, dialog) = VERBS.iter().find(|(words, ..)| words.iter().any(|known| known.starts_with(&word)))?;
    Some((title, dialog, rest.trim()))
}

/// The beginning of the names that a query looks for: all of it, or what comes after what to do.
#[must_use]
pub fn beginning(typed: &str) -> Option<Prefix> {
    Prefix::parse(verb(typed).map_or(typed.trim(), |(_, _, rest)| rest)).ok()
}

/// The address at which a key's page opens a dialog of its own.
#[must_use]
pub fn dialog_address(key: &str, dialog: &str) -> String {
    let address = lease_address(key);
    let joint = if address.contains('?') { '&' } else { '?' };
    format!("{address}{joint}do={dialog}")
}

/// What answers to `typed` among the entries, the best first.
#[must_use]
pub fn answers(typed: &str, entries: &[Entry], role: Role) -> Vec<Entry> {
    if role >= Role::Operator
        && let Some((title, dialog, rest)) = verb(typed)
    {
        let leases: Vec<&Entry> = entries.iter().filter(|entry| entry.kind == Kind::Lease).collect();
        let found = rank(&Query::new(rest), leases.iter().map(|entry| (&entry.searched, 0)), MOST);
        let asked = |place: usize| {
            let Entry { title: key, about, .. } = leases[place];
            let title = format!("{title} {key}\u{2026}");
            Entry::new(Kind::Action, title, about.clone(), Deed::Go(dialog_address(key, dialog)))
        };
        let found: Vec<Entry> = found.into_iter().map(asked).collect();
        if !found.is_empty() {
            return found;
        }
    }
    let query = Query::new(typed);
    let found = rank(&query, entries.iter().map(|entry| (&entry.searched, entry.kind.bonus())), MOST);
    list(typed).into_iter().chain(found.into_iter().map(|place| entries[place].clone())).take(MOST).collect()
}

/// The list that a query with qualifiers stands for, such as `owner:worker-1 status:held`.
fn list(typed: &str) -> Option<Entry> {
    let filter = Filter::parse(typed, None).ok().filter(|filter| typed.contains(':') && !filter.parts.is_empty())?;
    Some(Entry::new(Kind::List, format!("Leases with {}", filter.text()), "", Deed::Go(filter.address(None))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Entry> {
        let mut entries = fixed();
        entries.push(Entry::record(Kind::Lease, "nightly/report", "held \u{b7} worker-1"));
        entries.push(Entry::record(Kind::Owner, "worker-1", ""));
        entries.push(Entry::record(Kind::Subject, "customer:acme", ""));
        entries
    }

    fn titles(typed: &str, role: Role) -> Vec<(Kind, String)> {
        answers(typed, &all(), role).into_iter().map(|entry| (entry.kind, entry.title)).collect()
    }

    #[test]
    fn pages_come_before_records_that_answer_alike() {
        assert_eq!(titles("timeline", Role::Viewer)[0], (Kind::Page, "Operations timeline".into()));
        assert_eq!(titles("route map", Role::Viewer)[0].1, "Route map");
        assert_eq!(titles("report", Role::Viewer)[0], (Kind::Lease, "nightly/report".into()));
        assert_eq!(titles("acme", Role::Viewer)[0], (Kind::Subject, "customer:acme".into()));
    }

    #[test]
    fn a_query_with_qualifiers_stands_for_a_list() {
        let found = answers("owner:worker-1 status:held", &all(), Role::Viewer);
        assert_eq!(found[0].address(), Some("/?q=owner%3Aworker-1+status%3Aheld"));
        assert_eq!(titles("worker-1", Role::Viewer)[0], (Kind::Owner, "worker-1".into()));
    }

    #[test]
    fn what_to_do_comes_first_and_is_offered_to_those_who_may() {
        for (typed, title, address) in [
            ("break night", "Force-release nightly/report\u{2026}", "/core/leases/nightly%2Freport?do=break"),
            ("quar report", "Quarantine nightly/report\u{2026}", "/core/leases/nightly%2Freport?do=quarantine"),
        ] {
            let found = answers(typed, &all(), Role::Operator);
            assert_eq!((&*found[0].title, found[0].address()), (title, Some(address)));
            assert!(titles(typed, Role::Viewer).iter().all(|(kind, _)| *kind != Kind::Action), "{typed}");
        }
        assert_eq!(verb("br x"), None);
        assert_eq!(verb("break"), None);
    }

    #[test]
    fn no_page_without_an_address_of_its_own_is_offered() {
        assert!(all().iter().filter_map(Entry::address).all(|address| !address.contains('*')));
    }
}
