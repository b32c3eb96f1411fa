//! `/core/find`: what fast search finds, as a page, for those without scripts.

use domain::Role;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;

use crate::api::ApiError;
use crate::api::records::{self, FindRequest};
use crate::api::values::PageSize;
use crate::ui::parts::Unreadable;
use crate::ui::shell::search::PATH;
use crate::ui::shell::search::entries::{Entry, answers, beginning, fixed};
use crate::ui::shell::{Around, AroundResource};

/// How many records of each kind.
const ASKED: Option<PageSize> = PageSize::new(50);

/// The page.
#[component]
pub fn FindPage() -> impl IntoView {
    let AroundResource(around) = expect_context();
    let typed = use_query_map().get_untracked().get("q").unwrap_or_default();
    let value = typed.clone();
    view! {
        <Title text="Find \u{b7} Job Leases"/>
        <header class="head">
            <p class="eyebrow">"Workspace"</p>
            <h1>"Find"</h1>
            <p class="lede">"Pages, leases, owners, jobs, customers, licenses and invoices, by the beginning of their names."</p>
        </header>
        <section class="card" aria-labelledby="results">
            <header>
                <h2 id="results">"Found"</h2>
                <form class="search" role="search" method="get" action=PATH>
                    <label class="out-of-sight" for="find-q">"Find"</label>
                    <input id="find-q" name="q" type="search" autocomplete="off" spellcheck="false" value=value/>
                    <button class="button" type="submit">"Find"</button>
                </form>
            </header>
            <Suspense>
                {move || {
                    let typed = typed.clone();
                    Suspend::new(async move {
                        let role = around.await.ok().map_or(Role::Viewer, |Around { session, .. }| session.role);
                        match found(&typed, role).await {
                            Ok(entries) => view! { <Entries entries/> }.into_any(),
                            Err(error) => {
                                let again = PATH.to_owned();
                                view! { <Unreadable title="The records could not be looked up" error again/> }.into_any()
                            }
                        }
                    })
                }}
            </Suspense>
        </section>
    }
}

/// What answers, from the pages and the server's records.
async fn found(typed: &str, role: Role) -> Result<Vec<Entry>, ApiError> {
    let mut entries = fixed();
    if let Some(prefix) = beginning(typed) {
        let records = records::find(FindRequest { prefix, limit: ASKED }).await?;
        entries.extend(records.items.iter().map(Entry::from));
    }
    // What is no address needs the browser's part.
    entries.retain(|entry| entry.address().is_some());
    Ok(answers(typed, &entries, role))
}

#[component]
fn Entries(entries: Vec<Entry>) -> impl IntoView {
    if entries.is_empty() {
        return view! { <div class="empty"><p>"Nothing is called that."</p></div> }.into_any();
    }
    let rows = entries.into_iter().map(|entry| {
        let address = entry.address().unwrap_or_default().to_owned();
        view! {
            <li>
                <span class="kind">{entry.kind.title()}</span>
                <a href=address rel="external">{entry.title}</a>
                <span class="sub">{entry.about}</span>
            </li>
        }
    });
    view! { <ul class="lines found">{rows.collect_view()}</ul> }.into_any()
}
