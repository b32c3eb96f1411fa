//! The browser's entry point: takes over the page that the server has rendered.

use wasm_bindgen::prelude::wasm_bindgen;

/// Called once by the page's script when the WASM has loaded.
#[wasm_bindgen]
pub fn hydrate() {
    app::ui::hydrate();
}
