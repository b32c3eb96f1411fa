//! Light, dark, or as the system is.
//!
//! The choice is kept in a cookie, so that the server writes it into the document: no flash of the other, and no script
//! before the first paint.

use leptos::prelude::*;

/// The cookie that keeps the choice.
const COOKIE: &str = "appearance";

/// What the reader chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Appearance {
    /// As the system is.
    #[default]
    System,
    /// Always light.
    Light,
    /// Always dark.
    Dark,
}

impl Appearance {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::System, Self::Light, Self::Dark];

    /// As it stands in the cookie and in `html[data-appearance]`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// In words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::System => "As the system",
            Self::Light => "Light",
            Self::Dark => "Dark",
        }
    }

    /// What the browser may paint with before any style has arrived.
    #[must_use]
    pub const fn color_scheme(self) -> &'static str {
        match self {
            Self::System => "light dark",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|appearance| appearance.as_str() == text).unwrap_or_default()
    }

    /// The choice in a `Cookie` header.
    #[must_use]
    pub fn in_cookies(header: &str) -> Self {
        let mut pairs = header.split(';').filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == COOKIE).map_or_else(Self::default, |(_, value)| Self::parse(value))
    }

    /// The choice that holds for this document.
    #[cfg(feature = "ssr")]
    #[must_use]
    pub fn current() -> Self {
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
    pub fn current() -> Self {
        let root = document().document_element();
        root.and_then(|root| root.get_attribute("data-appearance"))
            .map_or_else(Self::default, |text| Self::parse(&text))
    }

    /// Shows it at once, and keeps it for a year.
    #[cfg(feature = "hydrate")]
    pub(super) fn choose(self) {
        use leptos::wasm_bindgen::JsCast;

        let text = self.as_str();
        let document = document();
        if let Some(root) = document.document_element() {
            // Neither can fail: the name is a fixed attribute, the value one of three words.
            let _ = root.set_attribute("data-appearance", text);
        }
        if let Some(document) = document.dyn_ref::<web_sys::HtmlDocument>() {
            let _ = document.set_cookie(&format!("{COOKIE}={text}; Path=/; Max-Age=31536000; SameSite=Lax"));
        }
        // The choice may have been made elsewhere.
        let choice = document.query_selector("select[name=appearance]").ok().flatten();
        if let Some(choice) = choice.and_then(|choice| choice.dyn_into::<web_sys::HtmlSelectElement>().ok()) {
            choice.set_value(text);
        }
    }
}

/// The control. It needs the browser's part, so it is out of sight until that has taken over.
#[island]
pub fn AppearanceChoice() -> impl IntoView {
    let current = Appearance::current();
    let options = Appearance::ALL.map(|appearance| {
        view! {
            <option value=appearance.as_str() selected={appearance == current}>{appearance.title()}</option>
        }
    });
    view! {
        <label class="field needs-script">
            <span>"Appearance"</span>
            <select
                name="appearance"
                on:change=move |event| {
                    let chosen = Appearance::parse(&event_target_value(&event));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_is_read_from_among_other_cookies() {
        assert_eq!(Appearance::in_cookies("session=abc; appearance=dark"), Appearance::Dark);
        assert_eq!(Appearance::in_cookies("appearance=light;x=y"), Appearance::Light);
        assert_eq!(Appearance::in_cookies("myappearance=dark"), Appearance::System);
        assert_eq!(Appearance::in_cookies("appearance=pink"), Appearance::System);
        assert_eq!(Appearance::in_cookies(""), Appearance::System);
    }
}
