//! `/core/audit`: the operations timeline, newest first.

use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;

use super::filter::lease_address;
use crate::api::timeline::{self, Event, Events, ListRequest};
use crate::api::values::{PageSize, Prefix};
use crate::ui::parts::Unreadable;
use crate::ui::parts::times::{in_full, moment};

/// Where the page lies.
pub const PATH: &str = "/core/audit";

/// Events on a page.
const EVENTS: Option<PageSize> = PageSize::new(100);

/// What the list can be narrowed to: the name, and the kinds that begin so.
const KINDS: [(&str, &str); 7] = [
    ("All", ""),
    ("Leases", "lease"),
    ("Quarantine", "key"),
    ("Refusals", "collisions"),
    ("Tokens", "token"),
    ("Sessions", "session"),
    ("Outages", "service"),
];

/// The page.
#[component]
pub fn AuditPage() -> impl IntoView {
    let query = use_query_map().get_untracked();
    let kind = query.get("kind").filter(|kind| KINDS.iter().any(|(_, known)| known == kind));
    let key = query.get("key").unwrap_or_default();
    let cursor = query.get("cursor");
    let prefix = match key.trim_end_matches('*') {
        "" => Ok(None),
        text => Prefix::parse(text).map(Some).map_err(|error| format!("{key} {error}.")),
    };
    let request = prefix.map(|prefix| ListRequest {
        prefix,
        kind: kind.clone().filter(|kind| !kind.is_empty()),
        limit: EVENTS,
        cursor: cursor.clone(),
    });
    let kind = kind.unwrap_or_default();
    let chips = KINDS.map(|(name, of)| {
        let current = (of == kind).then_some("true");
        view! { <li><a class="chip" href=address(of, &key, None) aria-current=current>{name}</a></li> }
    });
    view! {
        <Title text="Operations timeline \u{b7} Job Leases"/>
        <header class="head">
            <p class="eyebrow">"Operations"</p>
            <h1>"Operations timeline"</h1>
            <p class="lede">"Every change with who brought it about, in one chain that "<code>"job-leases verify"</code>" checks."</p>
        </header>
        <section class="card" aria-labelledby="events">
            <header>
                <h2 id="events">"Events"</h2>
                <ul class="chips" aria-label="By kind">{chips.collect_view()}</ul>
                <form class="search" role="search" method="get" action=PATH>
                    <label class="out-of-sight" for="key">"About keys that begin so"</label>
                    <input id="key" name="key" type="search" autocomplete="off" spellcheck="false" placeholder="key: nightly/*" value=key.clone()/>
                    {(!kind.is_empty()).then(|| view! { <input type="hidden" name="kind" value=kind.clone()/> })}
                    <button class="button" type="submit">"Find"</button>
                </form>
            </header>
            <Suspense>
                {move || {
                    let (request, kind, key, is_first) = (request.clone(), kind.clone(), key.clone(), cursor.is_none());
                    Suspend::new(async move {
                        match request {
                            Err(problem) => view! { <p class="problem" role="alert">{problem}</p> }.into_any(),
                            Ok(request) => match timeline::list(request).await {
                                Ok(events) => view! { <List events kind key is_first/> }.into_any(),
                                Err(error) => {
                                    let again = PATH.to_owned();
                                    view! { <Unreadable title="The timeline could not be read" error again/> }.into_any()
                                }
                            },
                        }
                    })
                }}
            </Suspense>
        </section>
    }
}

/// The page's address: events of a kind, about keys that begin so, or all; from a cursor on.
pub(super) fn address(kind: &str, key: &str, cursor: Option<&str>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in [("kind", Some(kind)), ("key", Some(key)), ("cursor", cursor)] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            query.append_pair(name, value);
        }
    }
    let query = query.finish();
    if query.is_empty() { PATH.to_owned() } else { format!("{PATH}?{query}") }
}

#[component]
fn List(events: Events, kind: String, key: String, is_first: bool) -> impl IntoView {
    let now = events.server_time;
    let older = events.next.as_deref().map(|next| address(&kind, &key, Some(next)));
    let newest = (!is_first).then(|| address(&kind, &key, None));
    if events.items.is_empty() && older.is_none() {
        return view! { <div class="empty"><p>"There is no such event."</p></div> }.into_any();
    }
    let words = match events.items.len() {
        0 => "None among the last few thousand events".to_owned(),
        count => format!("{count} shown"),
    };
    let rows = events.items.into_iter().map(|event| view! { <Row event now/> });
    view! {
        <div class="scroll">
            // Its roles are said, since on small screens it is laid out as lines, for which browsers forget them.
            <table role="table" class="plain-table events" aria-labelledby="events">
                <thead role="rowgroup">
                    <tr role="row">
                        <th role="columnheader" scope="col" class="number">"position"</th>
                        <th role="columnheader" scope="col">"at (UTC)"</th>
                        <th role="columnheader" scope="col">"what"</th>
                        <th role="columnheader" scope="col">"key"</th>
                        <th role="columnheader" scope="col">"by"</th>
                        <th role="columnheader" scope="col">"more"</th>
                    </tr>
                </thead>
                <tbody role="rowgroup">{rows.collect_view()}</tbody>
            </table>
        </div>
        <footer>
            <p>{words}</p>
            <p class="pages">
                {newest.map(|newest| view! { <a href=newest>"Newest"</a> })}
                {older.map(|older| view! { <a href=older rel="next">"Older"</a> })}
            </p>
        </footer>
    }
    .into_any()
}

#[component]
fn Row(event: Event, now: domain::Timestamp) -> impl IntoView {
    let text = |name: &str| event.event.get(name).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    let at = domain::Timestamp::parse(&text("at")).unwrap_or(now);
    let kind = text("kind");
    let key = text("lease_key");
    let by = event.event.get("actor").and_then(|actor| actor.get("name")?.as_str()).unwrap_or_default().to_owned();
    let link = (!key.is_empty()).then(|| view! { <a href=lease_address(&key)>{key.clone()}</a> });
    view! {
        <tr role="row">
            <td role="cell" class="number">{event.position}</td>
            <td role="cell" class="code at"><time datetime=at.to_string() title=in_full(at)>{moment(at, now)}</time></td>
            <th role="rowheader" scope="row" class="code what">{kind}</th>
            <td role="cell" class="code key">{link}</td>
            <td role="cell" class="by">{by}</td>
            <td role="cell" class="more">{details(&event)}</td>
        </tr>
    }
}

/// What else an event says that people ask for.
fn details(event: &Event) -> String {
    const TOLD: [&str; 7] = ["owner", "fencing_token", "reason", "name", "role", "means", "origin"];
    let told = TOLD.iter().filter_map(|name| {
        let value = event.event.get(*name)?;
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Some(format!("{name} {value}"))
    });
    let refused = event.event.get("refused").and_then(|refused| refused.as_array()).map(|refused| {
        let times: u64 = refused.iter().filter_map(|one| one.get("times")?.as_u64()).sum();
        let keys = refused.len();
        format!("{times} refused on {keys} {}", if keys == 1 { "key" } else { "keys" })
    });
    told.chain(refused).collect::<Vec<_>>().join(", ")
}
