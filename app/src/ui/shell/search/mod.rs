//! Fast search: everything that the console has, from one field, by a few keys.
//!
//! It opens over any page. What is known in the browser is ranked as one types, without asking anybody: pages, actions, settings, what was
//! opened here before, the leases that changed last. A moment after the last key the server is asked for records that begin so.

pub mod entries;
pub mod ranking;
#[cfg(feature = "hydrate")]
mod recent;

use domain::Role;
use leptos::prelude::*;

use self::entries::{Entry, Kind};

/// Where a reader without scripts finds the same.
pub const PATH: &str = "/core/find";

/// The field in the top bar, and what it opens.
#[island]
pub fn FastSearch(
    /// What the reader may do.
    role: Role,
    /// Who that is, and what they may see: what was opened before is told to nobody else.
    reader: String,
) -> impl IntoView {
    let typed = RwSignal::new(String::new());
    let found = RwSignal::new(Vec::<Entry>::new());
    let chosen = RwSignal::new(0_usize);
    let words = RwSignal::new(String::new());
    #[cfg(feature = "hydrate")]
    let search = finding::Finding::new(role, reader, typed, found, chosen, words);
    #[cfg(not(feature = "hydrate"))]
    let _ = (role, reader);
    // Which one is chosen is marked apart from them, and events reach the list and not each of them: they are drawn anew with every key.
    let options = move || {
        let options = found.get().into_iter().enumerate().map(|(place, Entry { kind, title, about, .. })| {
            view! {
                <li id=format!("found-{place}") role="option" aria-selected="false">
                    <span class="kind">{kind.title()}</span>
                    <b class:code=kind.is_name()>{title}</b>
                    <span class="about">{about}</span>
                </li>
            }
        });
        options.collect_view()
    };
    view! {
        <a
            id="fast-search"
            class="find"
            href=PATH
            rel="external"
            title="Fast search: Ctrl K or /"
            aria-keyshortcuts="Control+K Meta+K /"
            on:click=move |event| {
                #[cfg(feature = "hydrate")]
                search.open(&event);
                #[cfg(not(feature = "hydrate"))]
                let _ = event;
            }
        >
            <b>"Fast search"</b>
            <span class="hint">"Customers, licenses, invoices, actions"</span>
            <kbd>"Ctrl K"</kbd>
        </a>
        <dialog id="find" class="palette" aria-label="Fast search">
            <input
                id="find-field"
                type="text"
                role="combobox"
                aria-label="Find"
                aria-expanded="true"
                aria-controls="found"
                aria-autocomplete="list"
                aria-activedescendant=move || (!found.read().is_empty()).then(|| format!("found-{}", chosen.get()))
                autocomplete="off"
                spellcheck="false"
                placeholder="Pages, actions, leases, owners, customers, licenses, invoices"
                prop:value=typed
                on:input=move |event| {
                    #[cfg(feature = "hydrate")]
                    search.typed(event_target_value(&event));
                    #[cfg(not(feature = "hydrate"))]
                    let _ = event;
                }
                on:keydown=move |event| {
                    #[cfg(feature = "hydrate")]
                    search.key(&event);
                    #[cfg(not(feature = "hydrate"))]
                    let _ = event;
                }
            />
            <ul
                id="found"
                role="listbox"
                aria-label="Found"
                on:pointermove=move |event| {
                    #[cfg(feature = "hydrate")]
                    search.points(&event);
                    #[cfg(not(feature = "hydrate"))]
                    let _ = event;
                }
                on:click=move |event| {
                    #[cfg(feature = "hydrate")]
                    search.clicked(&event);
                    #[cfg(not(feature = "hydrate"))]
                    let _ = event;
                }
            >
                {options}
            </ul>
            <div class="foot">
                <p role="status" class="words">{words}</p>
                <p class="hints" aria-hidden="true">
                    <kbd>"\u{2191}\u{2193}"</kbd>" choose "<kbd>"Enter"</kbd>" open "<kbd>"Ctrl Enter"</kbd>" new tab "<kbd>"Esc"</kbd>" close"
                </p>
            </div>
        </dialog>
    }
}

impl Kind {
    /// Whether its titles are names that somebody gave, which are shown letter by letter.
    const fn is_name(self) -> bool {
        matches!(self, Self::Lease | Self::Owner | Self::Job | Self::Subject)
    }
}

#[cfg(feature = "hydrate")]
mod finding {
    use std::collections::BTreeMap;
    use std::collections::btree_map::Entry as Slot;
    use std::time::Duration;

    use domain::Role;
    use leptos::ev::{KeyboardEvent, MouseEvent, PointerEvent};
    use leptos::leptos_dom::helpers::TimeoutHandle;
    use leptos::prelude::*;
    use leptos::task::spawn_local;
    use leptos::wasm_bindgen::JsCast;
    use web_sys::{Element, EventTarget, HtmlDialogElement, HtmlFormElement, HtmlInputElement};

    use super::entries::{Deed, Entry, Kind, MOST, answers, beginning, fixed};
    use super::recent::Recent;
    use crate::api::leases::{self, ListRequest, Sort};
    use crate::api::records::{self, FindRequest};
    use crate::api::values::PageSize;
    use crate::ui::parts::numbers::grouped;
    use crate::ui::shell::browser::find;
    use crate::ui::shell::choices::Choice as _;

    /// So long after the last key the server is asked.
    const PAUSE: Duration = Duration::from_millis(120);

    /// How many leases that changed last are known from the start.
    const LATEST: Option<PageSize> = PageSize::new(500);

    /// How many records of each kind the server is asked for.
    const ASKED: Option<PageSize> = PageSize::new(20);

    /// How many records are shown before anything is typed.
    const FIRST: usize = 8;

    /// What the field looks through, and what came of it.
    #[derive(Clone, Copy)]
    pub(super) struct Finding {
        role: Role,
        typed: RwSignal<String>,
        found: RwSignal<Vec<Entry>>,
        chosen: RwSignal<usize>,
        words: RwSignal<String>,
        recent: StoredValue<Recent>,
        known: StoredValue<Vec<Entry>>,
        /// Where each is among them.
        places: StoredValue<BTreeMap<(Kind, String), usize>>,
        timer: StoredValue<Option<TimeoutHandle>>,
        /// Which question to the server counts: answers to earlier ones come too late.
        question: StoredValue<u32>,
    }

    impl Finding {
        pub(super) fn new(
            role: Role,
            reader: String,
            typed: RwSignal<String>,
            found: RwSignal<Vec<Entry>>,
            chosen: RwSignal<usize>,
            words: RwSignal<String>,
        ) -> Self {
            let recent = StoredValue::new(Recent::of(&reader));
            recent.with_value(Recent::note_page);
            Effect::new(move || {
                found.track();
                // When they are drawn.
                request_animation_frame(move || mark(chosen.get_untracked()));
            });
            Self {
                role,
                typed,
                found,
                chosen,
                words,
                recent,
                known: StoredValue::new(Vec::new()),
                places: StoredValue::new(BTreeMap::new()),
                timer: StoredValue::new(None),
                question: StoredValue::new(0),
            }
        }

        /// Opens over the page, unless it was asked for another tab.
        pub(super) fn open(self, event: &MouseEvent) {
            let Some(dialog) = find::<HtmlDialogElement>("#find") else { return };
            if event.ctrl_key() || event.meta_key() || event.shift_key() {
                return;
            }
            event.prevent_default();
            if dialog.open() || dialog.show_modal().is_err() {
                return;
            }
            if self.known.read_value().is_empty() {
                let recent = self.recent.with_value(Recent::all);
                self.learn(recent.into_iter().map(|(kind, name)| Entry::record(kind, &name, "opened before")));
                self.learn(on_this_page());
                self.learn_latest();
            }
            if let Some(field) = find::<HtmlInputElement>("#find-field") {
                field.select();
            }
            self.rank();
        }

        pub(super) fn typed(self, text: String) {
            self.typed.set(text);
            self.chosen.set(0);
            self.rank();
            self.ask_soon();
        }

        pub(super) fn key(self, event: &KeyboardEvent) {
            let count = self.found.read_untracked().len();
            if count == 0 || event.is_composing() {
                return;
            }
            let at = self.chosen.get_untracked();
            match event.key().as_str() {
                "ArrowDown" => self.move_to((at + 1) % count),
                "ArrowUp" => self.move_to((at + count - 1) % count),
                "PageDown" => self.move_to((at + 10).min(count - 1)),
                "PageUp" => self.move_to(at.saturating_sub(10)),
                "Enter" => self.choose(at, event.ctrl_key() || event.meta_key()),
                _ => return,
            }
            event.prevent_default();
        }

        /// The pointer is over the list.
        pub(super) fn points(self, event: &PointerEvent) {
            if let Some(place) = place_of(event.target())
                && place != self.chosen.get_untracked()
            {
                self.chosen.set(place);
                mark(place);
            }
        }

        pub(super) fn clicked(self, event: &MouseEvent) {
            if let Some(place) = place_of(event.target()) {
                self.choose(place, event.ctrl_key() || event.meta_key());
            }
        }

        fn move_to(self, place: usize) {
            self.chosen.set(place);
            mark(place);
            if let Some(option) = find::<Element>(&format!("#found-{place}")) {
                let nearest = web_sys::ScrollIntoViewOptions::new();
                nearest.set_block(web_sys::ScrollLogicalPosition::Nearest);
                option.scroll_into_view_with_scroll_into_view_options(&nearest);
            }
        }

        pub(super) fn choose(self, place: usize, in_new_tab: bool) {
            let Some(entry) = self.found.read_untracked().get(place).cloned() else { return };
            if entry.kind.is_name() {
                self.recent.with_value(|recent| recent.note(entry.kind, &entry.title));
            }
            let close = || {
                if let Some(dialog) = find::<HtmlDialogElement>("#find") {
                    dialog.close();
                }
            };
            // Browsers that refuse any of this leave everything as it is.
            match entry.deed {
                Deed::Go(address) if in_new_tab => drop(window().open_with_url_and_target(&address, "_blank")),
                Deed::Go(address) => drop(window().location().set_href(&address)),
                Deed::Appear(appearance) => {
                    appearance.choose();
                    close();
                }
                Deed::Space(density) => {
                    density.choose();
                    close();
                }
                Deed::ShowKeys => {
                    close();
                    if let Some(keys) = find::<HtmlDialogElement>("#keys") {
                        let _ = keys.show_modal();
                    }
                }
                Deed::SignOut => {
                    if let Some(form) = find::<HtmlFormElement>("form[action='/sign-out']") {
                        let _ = form.submit();
                    }
                }
            }
        }

        /// Takes in what it does not know yet, and what it knows less of.
        fn learn(self, entries: impl IntoIterator<Item = Entry>) {
            let (mut known, mut places) = (self.known.write_value(), self.places.write_value());
            if known.is_empty() {
                known.extend(fixed());
            }
            for entry in entries {
                match places.entry((entry.kind, entry.title.clone())) {
                    Slot::Occupied(place) => known[*place.get()] = entry,
                    Slot::Vacant(place) => {
                        place.insert(known.len());
                        known.push(entry);
                    }
                }
            }
        }

        fn learn_latest(self) {
            let request = ListRequest { sort: Some(Sort::UpdatedAtDown), limit: LATEST, ..ListRequest::default() };
            spawn_local(async move {
                if let Ok(page) = leases::list(request).await {
                    let leases = page.items.iter();
                    self.learn(leases.map(|one| Entry::lease(one.lease_key.as_str(), one.status, one.owner.as_str())));
                    self.rank();
                }
            });
        }

        /// Shows what answers to what is typed.
        fn rank(self) {
            let typed = self.typed.get_untracked();
            let known = self.known.read_value();
            let found = if typed.trim().is_empty() {
                let records = known.iter().filter(|entry| entry.kind.is_name()).take(FIRST);
                records.chain(known.iter().filter(|entry| !entry.kind.is_name())).take(MOST).cloned().collect()
            } else {
                answers(&typed, &known, self.role)
            };
            let count = found.len();
            // What the reader has gone to stays chosen, wherever it is now.
            let at = self.chosen.get_untracked();
            let old = (at > 0)
                .then(|| self.found.read_untracked().get(at).map(|entry| (entry.kind, entry.title.clone())))
                .flatten();
            let at = old.and_then(|old| found.iter().position(|entry| (entry.kind, &entry.title) == (old.0, &old.1)));
            self.words.set(match count {
                _ if typed.trim().is_empty() => {
                    format!("{} known here; others are looked up as you type", grouped(known.len() as u64))
                }
                0 => "Nothing is called that".to_owned(),
                MOST => format!("The best {MOST} of {} known here", grouped(known.len() as u64)),
                _ => format!("{count} found"),
            });
            self.chosen.set(at.unwrap_or(0));
            self.found.set(found);
        }

        fn ask_soon(self) {
            if let Some(timer) = self.timer.try_update_value(Option::take).flatten() {
                timer.clear();
            }
            self.question.update_value(|question| *question += 1);
            self.timer.set_value(set_timeout_with_handle(move || self.ask(), PAUSE).ok());
        }

        /// Asks the server for records that begin so.
        fn ask(self) {
            let typed = self.typed.get_untracked();
            let Some(prefix) = beginning(&typed) else { return };
            let question = self.question.get_value();
            spawn_local(async move {
                let answer = records::find(FindRequest { prefix, limit: ASKED }).await;
                if self.question.get_value() != question {
                    return;
                }
                match answer {
                    Ok(records) => {
                        self.learn(records.items.iter().map(Entry::from));
                        self.rank();
                    }
                    Err(error) => self.words.set(format!("Records could not be looked up: {}", error.message)),
                }
            });
        }
    }

    /// The place of the option that an event is about.
    fn place_of(target: Option<EventTarget>) -> Option<usize> {
        let option = target?.dyn_into::<Element>().ok()?.closest("#found > li").ok()??;
        option.id().strip_prefix("found-")?.parse().ok()
    }

    /// Marks an option as the one that is chosen, and no other.
    fn mark(place: usize) {
        let set = |option: Option<Element>, is_chosen: &str| {
            if let Some(option) = option {
                // The name is a fixed attribute: it cannot be refused.
                let _ = option.set_attribute("aria-selected", is_chosen);
            }
        };
        set(find("#found > [aria-selected=true]"), "false");
        set(find(&format!("#found-{place}")), "true");
    }

    /// The leases in the table of this page.
    fn on_this_page() -> Vec<Entry> {
        let Ok(links) = document().query_selector_all("tbody th a[href^='/core/leases']") else { return Vec::new() };
        let names = (0..links.length()).filter_map(|place| links.item(place)?.text_content());
        names.map(|name| Entry::record(Kind::Lease, name.trim(), "on this page")).collect()
    }
}
