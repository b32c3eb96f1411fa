//! The keyboard: what each key does, and the panel that says so.

use leptos::prelude::*;

use super::places::PLACES;

/// The keys and what they do, for the panel, besides those that go to a place.
const KEYS: [(&str, &str); 6] = [
    ("Ctrl K or /", "fast search"),
    ("f", "find in the list of this page"),
    ("j, k", "the next row, the one before"),
    ("Enter", "open the row"),
    ("Esc", "close what is open"),
    ("?", "show these keys"),
];

/// Listens to the keyboard, and shows what it listens to. Nothing fires while somebody types; and single letters, which those who speak to
/// their computer may say by chance, can be turned off.
#[island]
pub fn Keys() -> impl IntoView {
    #[cfg(feature = "hydrate")]
    Effect::new(listening::start);
    let places =
        PLACES.iter().filter_map(|place| Some((format!("g {}", place.key?), format!("go to {}", place.title))));
    let keys = KEYS.iter().map(|(keys, about)| ((*keys).to_owned(), (*about).to_owned()));
    let rows = places.chain(keys).map(|(keys, about)| view! { <dt><kbd>{keys}</kbd></dt><dd>{about}</dd> });
    view! {
        <dialog id="keys" aria-labelledby="keys-title">
            <form method="dialog">
                <h2 id="keys-title">"Keys"</h2>
                <dl class="keys">{rows.collect_view()}</dl>
                <label class="check">
                    <input
                        id="single-keys"
                        type="checkbox"
                        checked=true
                        on:change=move |event| {
                            #[cfg(feature = "hydrate")]
                            listening::allow_letters(event_target_checked(&event));
                            #[cfg(not(feature = "hydrate"))]
                            let _ = event;
                        }
                    />
                    "Keys without Ctrl, in this browser"
                </label>
                <p class="buttons"><button class="button">"Close"</button></p>
            </form>
        </dialog>
    }
}

#[cfg(feature = "hydrate")]
mod listening {
    use std::cell::Cell;

    use leptos::ev;
    use leptos::prelude::*;
    use leptos::wasm_bindgen::JsCast;
    use web_sys::{Element, HtmlDialogElement, HtmlElement, HtmlInputElement, KeyboardEvent};

    use super::PLACES;
    use crate::ui::shell::browser::{find, storage};

    /// What is kept in the browser's storage if letters do nothing.
    const OFF: &str = "single-keys-off";

    /// From now on, as long as the document lives.
    pub(super) fn start() {
        if let Some(choice) = find::<HtmlInputElement>("#single-keys") {
            choice.set_checked(are_letters_allowed());
        }
        let after_g = Cell::new(false);
        window_event_listener(ev::keydown, move |event| {
            let was_after_g = after_g.replace(false);
            if event.is_composing() || event.alt_key() {
                return;
            }
            let key = event.key();
            if event.ctrl_key() || event.meta_key() {
                if key.eq_ignore_ascii_case("k") && find::<Element>("dialog[open]").is_none() {
                    event.prevent_default();
                    search();
                }
                return;
            }
            if is_typing(&event) || !are_letters_allowed() {
                return;
            }
            let letter = key.chars().next().filter(|_| key.chars().count() == 1);
            if was_after_g && let Some(place) = PLACES.iter().find(|place| place.key.is_some() && place.key == letter) {
                return go(place.path);
            }
            match key.as_str() {
                "g" => after_g.set(true),
                "/" => {
                    event.prevent_default();
                    search();
                }
                "f" => {
                    if let Some(field) = find::<HtmlElement>("main form[role=search] input") {
                        event.prevent_default();
                        let _ = field.focus();
                    }
                }
                "?" => {
                    if let Some(dialog) = find::<HtmlDialogElement>("#keys") {
                        let _ = dialog.show_modal();
                    }
                }
                "j" => step(1),
                "k" => step(-1),
                _ => {}
            }
        });
    }

    /// Whether a letter by itself does anything. A browser that keeps nothing lets them.
    fn are_letters_allowed() -> bool {
        storage().is_none_or(|storage| storage.get_item(OFF).ok().flatten().is_none())
    }

    pub(super) fn allow_letters(allowed: bool) {
        if let Some(storage) = storage() {
            let _ = if allowed { storage.remove_item(OFF) } else { storage.set_item(OFF, "") };
        }
    }

    fn search() {
        if let Some(field) = find::<HtmlElement>("#fast-search") {
            field.click();
        }
    }

    fn go(address: &str) {
        // A browser that refuses to go somewhere stays where it is.
        let _ = window().location().set_href(address);
    }

    fn is_typing(event: &KeyboardEvent) -> bool {
        let target = event.target().and_then(|target| target.dyn_into::<Element>().ok());
        target.is_some_and(|target| target.closest("input, select, textarea, dialog[open]").ok().flatten().is_some())
    }

    /// The focus goes to another row.
    fn step(by: i32) {
        let Ok(rows) = document().query_selector_all("tbody a") else { return };
        let here = document().active_element();
        let at = (0..rows.length()).find(|index| {
            let row = rows.item(*index).and_then(|row| row.dyn_into::<Element>().ok());
            row.is_some() && row == here
        });
        let next = match at {
            Some(at) => at.saturating_add_signed(by),
            None => 0,
        };
        if let Some(row) = rows.item(next).and_then(|row| row.dyn_into::<HtmlElement>().ok()) {
            // Focus brings the row into sight.
            let _ = row.focus();
        }
    }
}
