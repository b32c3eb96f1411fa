//! The top bar: where the reader is, how fresh the page is, and who is signed in.

use domain::Timestamp;
use leptos::prelude::*;
use leptos_router::hooks::use_location;

use super::appearance::Appearance;
use super::choices::control;
use super::density::Density;
use super::places::place_at;
use super::search::FastSearch;
use super::{Around, AroundResource};
use crate::api::sessions::Session;
use crate::ui::live::Live;
use crate::ui::live::link::Link;
use crate::ui::parts::Shape;
use crate::ui::parts::times::{in_full, time_of_day};

/// The top bar.
#[component]
pub fn Bar() -> impl IntoView {
    let AroundResource(around) = expect_context();
    let path = use_location().pathname;
    let place = Memo::new(move |_| place_at(&path.read()));
    view! {
        <header class="bar">
            <button type="button" class="plain menu" popovertarget="rail" aria-label="Pages">
                <Shape of="#bars"/>
            </button>
            <p class="crumbs">
                {move || place.get().map(|place| view! {
                    <span class="group">{place.group.title()}" / "</span>
                    <b>{place.title}</b>
                })}
            </p>
            <Suspense>
                {move || Suspend::new(async move {
                    around.await.ok().map(|Around { session, .. }| view! {
                        <FastSearch role=session.role reader=format!("{}/{}", session.name, session.prefixes.join(" "))/>
                        <Freshness read_at=session.server_time/>
                        <Account session/>
                    })
                })}
            </Suspense>
        </header>
    }
}

/// How fresh the page is. Only the words are announced, not each second.
#[island]
fn Freshness(
    /// When the server wrote what the page first showed.
    read_at: Timestamp,
) -> impl IntoView {
    Effect::new(|| {
        if let Some(root) = document().document_element() {
            // Tells style sheets and tests that the page answers now. The name is fixed, so it cannot be refused.
            let _ = root.set_attribute("data-hydrated", "");
        }
    });
    let live = Live::current();
    let (link, now) = (live.link(), live.now());
    let shape = Signal::derive(move || match link.get() {
        Link::AsRead => "#ring",
        Link::Live => "#disc",
        Link::Reconnecting => "#half",
        Link::Stale(_) => "#slash",
        Link::SignedOut => "#cross",
    });
    let class = move || match link.get() {
        Link::AsRead => "freshness is-rest",
        Link::Live => "freshness is-held",
        Link::Reconnecting => "freshness is-wait",
        Link::Stale(_) | Link::SignedOut => "freshness is-bad",
    };
    let words = Memo::new(move |_| match link.get() {
        Link::AsRead => "As of ".to_owned(),
        Link::Live => "Live".to_owned(),
        Link::Reconnecting => "Reconnecting".to_owned(),
        Link::Stale(since) => format!("Stale since {} UTC", time_of_day(since.unwrap_or(read_at))),
        Link::SignedOut => "Signed out".to_owned(),
    });
    // Beside the words: the instant the page was read, or the server's clock while it is live.
    let clock = Memo::new(move |_| match link.get() {
        Link::AsRead => Some(read_at),
        Link::Live => now.get(),
        _ => None,
    });
    view! {
        <p class=class>
            <Shape of=shape/>
            <span role="status">{words}</span>
            {move || clock.get().map(|at| view! {
                <time class="clock" datetime=at.to_string() title=in_full(at)>{time_of_day(at)}" UTC"</time>
            })}
            {move || (link.get() == Link::SignedOut).then(|| view! { <a href="/sign-in" rel="external">"Sign in"</a> })}
        </p>
    }
}

/// Who is signed in, the appearance, and the way out.
#[component]
fn Account(
    /// Who.
    session: Session,
) -> impl IntoView {
    let Session { name, role, prefixes, .. } = session;
    let label = format!("Account and appearance: {name}");
    view! {
        <button type="button" class="account" popovertarget="account" aria-label=label>
            {initials(&name)}
        </button>
        <div id="account" class="panel" popover="auto">
            <p class="who"><b>{name}</b><span>{role.as_str()}</span></p>
            {(!prefixes.is_empty()).then(|| view! { <p class="scope">"Keys below "{prefixes.join(", ")}</p> })}
            <Choices/>
            <form method="post" action="/sign-out">
                <button type="submit" class="button">"Sign out"</button>
            </form>
        </div>
    }
}

/// What each reader chooses for the whole console.
#[island]
fn Choices() -> impl IntoView {
    view! { {control::<Appearance>()} {control::<Density>()} }
}

/// Up to two letters that stand for a name.
fn initials(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    words.filter_map(|word| word.chars().next()).take(2).flat_map(char::to_uppercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shortened_to_its_initials() {
        assert_eq!(initials("local"), "L");
        assert_eq!(initials("on-call operator (night)"), "OC");
        assert_eq!(initials("ärzte"), "Ä");
        assert_eq!(initials("--"), "");
    }
}
