//! What islands ask of the browser.

use leptos::prelude::*;
use leptos::wasm_bindgen::JsCast;
use web_sys::Storage;

/// The first element that a selector finds, if it is of this type.
pub(super) fn find<T: JsCast>(selector: &str) -> Option<T> {
    document().query_selector(selector).ok()??.dyn_into().ok()
}

/// What the browser keeps for this console; some keep nothing.
pub(super) fn storage() -> Option<Storage> {
    window().local_storage().ok()?
}
