//! The keyboard: what each key does, and the panel that says so.

use leptos::prelude::*;

/// The keys and what they do, for the panel.
const KEYS: [(&str, &str); 7] = [
    ("g l", "go to the leases"),
    ("g t", "go to the timeline"),
    ("/", "find"),
    ("j, k", "the next row, the one before"),
    ("Enter", "open the row"),
    ("Esc", "close what is open"),
    ("?", "show these keys"),
];

/// Listens to the keyboard, and shows what it listens to. Nothing fires while somebody types.
#[island]
pub fn Keys() -> impl IntoView {
    #[cfg(feature = "hydrate")]
    Effect::new(listening::start);
    let rows = KEYS.map(|(keys, about)| view! { <dt><kbd>{keys}</kbd></dt><dd>{about}</dd> });
    view! {
        <dialog id="keys" aria-labelledby="keys-title">
            <form method="dialog">
                <h2 id="keys-title">"Keys"</h2>
                <dl class="keys">{rows.collect_view()}</dl>
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
    use web_sys::{Element, HtmlDialogElement, HtmlElement, KeyboardEvent};

    /// From now on, as long as the document lives.
    pub(super) fn start() {
        let after_g = Cell::new(false);
        window_event_listener(ev::keydown, move |event| {
            let was_after_g = after_g.replace(false);
            if event.ctrl_key() || event.meta_key() || event.alt_key() || event.is_composing() || is_typing(&event) {
                return;
            }
            match (was_after_g, event.key().as_str()) {
                (true, "l") => go("/"),
                (true, "t") => go("/core/audit"),
                (_, "g") => after_g.set(true),
                (_, "/") => {
                    if let Some(field) = find::<HtmlElement>("form[role=search] input") {
                        event.prevent_default();
                        let _ = field.focus();
                    }
                }
                (_, "?") => {
                    if let Some(dialog) = find::<HtmlDialogElement>("#keys") {
                        let _ = dialog.show_modal();
                    }
                }
                (_, "j") => step(1),
                (_, "k") => step(-1),
                _ => {}
            }
        });
    }

    fn find<T: JsCast>(selector: &str) -> Option<T> {
        document().query_selector(selector).ok()??.dyn_into().ok()
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
