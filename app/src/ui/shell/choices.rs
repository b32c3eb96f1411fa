//! What each reader chooses for the whole console, such as its colours.
//!
//! A choice is kept in a cookie, so that the server writes it into the document (`html[data-...]`): nothing changes its look after the first
//! paint, and no script comes before that.

use leptos::prelude::*;

/// Something that readers choose.
pub trait Choice: Copy + Default + PartialEq + 'static {
    /// The cookie that keeps it, its name in forms, and after `data-` its attribute.
    const NAME: &'static str;
    /// What it is called.
    const LABEL: &'static str;
    /// What there is to choose from.
    const ALL: &'static [Self];

    /// As it stands in the cookie and the attribute.
    fn as_str(self) -> &'static str;

    /// In words.
    fn title(self) -> &'static str;

    /// The choice of that name; what is usual if there is none.
    #[must_use]
    fn parse(text: &str) -> Self {
        Self::ALL.iter().copied().find(|choice| choice.as_str() == text).unwrap_or_default()
    }

    /// The choice in a `Cookie` header.
    #[must_use]
    fn in_cookies(header: &str) -> Self {
        let mut pairs = header.split(';').filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == Self::NAME).map_or_else(Self::default, |(_, value)| Self::parse(value))
    }

    /// The choice that holds for this document.
    #[cfg(feature = "ssr")]
    #[must_use]
    fn current() -> Self {
        use_context::<http::request::Parts>()
            .and_then(|parts| {
                let cookies = parts.headers.get(http::header::COOKIE)?;
                cookies.to_str().ok().map(Self::in_cookies)
            })
            .unwrap_or_default()
    }

    /// The choice that holds for this document.
    #[cfg(not(feature = "ssr"))]
    #[must_use]
    fn current() -> Self {
        let root = document().document_element();
        root.and_then(|root| root.get_attribute(&format!("data-{}", Self::NAME)))
            .map_or_else(Self::default, |text| Self::parse(&text))
    }

    /// Shows it at once, and keeps it for a year.
    #[cfg(feature = "hydrate")]
    fn choose(self) {
        keep(Self::NAME, self.as_str());
    }
}

#[cfg(feature = "hydrate")]
fn keep(name: &str, text: &str) {
    use leptos::wasm_bindgen::JsCast;

    use super::browser::find;

    let document = document();
    if let Some(root) = document.document_element() {
        // Neither can fail: the name is a fixed attribute, the value one of a few words.
        let _ = root.set_attribute(&format!("data-{name}"), text);
    }
    if let Some(document) = document.dyn_ref::<web_sys::HtmlDocument>() {
        let _ = document.set_cookie(&format!("{name}={text}; Path=/; Max-Age=31536000; SameSite=Lax"));
    }
    // The choice may have been made elsewhere.
    if let Some(field) = find::<web_sys::HtmlSelectElement>(&format!("select[name={name}]")) {
        field.set_value(text);
    }
}

/// The control of a choice. It needs the browser's part, so it is out of sight until that has taken over.
pub fn control<C: Choice>() -> impl IntoView {
    let current = C::current();
    let options = C::ALL.iter().map(|choice| {
        view! { <option value=choice.as_str() selected={*choice == current}>{choice.title()}</option> }
    });
    view! {
        <label class="field needs-script">
            <span>{C::LABEL}</span>
            <select
                name=C::NAME
                on:change=move |event| {
                    let chosen = C::parse(&event_target_value(&event));
                    #[cfg(feature = "hydrate")]
                    chosen.choose();
                    #[cfg(not(feature = "hydrate"))]
                    let _ = chosen;
                }
            >
                {options.collect_view()}
            </select>
        </label>
    }
}
