//! `/`: the leases, live.

use domain::Timestamp;
use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;

use super::board::{Board, Entry, Reading};
use crate::api::ApiError;
use crate::api::counters::Counters as Totals;
use crate::ui::live::line::Line;
use crate::ui::live::{Live, News};
use crate::ui::parts::countdown::Term;
use crate::ui::parts::numbers::grouped;
use crate::ui::parts::times::{in_full, moment};
use crate::ui::parts::{Countdown, Counter, Counters, StatusMark};
use crate::ui::shell::{Around, AroundResource};

/// The query parameter that says where the page of the list begins.
const CURSOR: &str = "cursor";

/// The first screen.
#[component]
pub fn LeasesPage() -> impl IntoView {
    let AroundResource(around) = expect_context();
    let query = use_query_map();
    let cursor = Memo::new(move |_| query.read().get(CURSOR));
    let reading = Resource::new_blocking(move || cursor.get(), Reading::fetch);
    view! {
        <Title text="Job Leases"/>
        <header class="head">
            <p class="eyebrow">"Redundancy, Safety & Job Reliability"</p>
            <h1>"Job Leases"</h1>
            <p class="lede">"Acquire and release job leases so duplicate workers do not collide."</p>
        </header>
        <Suspense>
            {move || Suspend::new(async move {
                around.await.ok().and_then(|Around { counters, .. }| counters).map(|read| view! { <Figures read/> })
            })}
        </Suspense>
        <Transition>
            {move || {
                let cursor = cursor.get();
                Suspend::new(async move {
                    match reading.await {
                        Ok(reading) => view! { <Records reading cursor/> }.into_any(),
                        Err(error) => view! { <Unreadable error/> }.into_any(),
                    }
                })
            }}
        </Transition>
    }
}

/// The figures that are true already. Some are not told to those who may see some keys only.
#[component]
fn Figures(
    /// As read while the page was rendered.
    read: Totals,
) -> impl IntoView {
    let latest = expect_context::<Live>().counters();
    let now = Memo::new(move |_| latest.get().unwrap_or(read));
    view! {
        <Counters>
            <Counter
                name="Collisions prevented"
                figure=Signal::derive(move || now.get().collisions_today)
                note=Signal::derive(move || format!("today, {} in all", grouped(now.get().collisions_total)))
                first=true
            />
            <Counter
                name="Leases held"
                figure=Signal::derive(move || now.get().held)
                note=Signal::derive(move || format!("now, of {} keys", grouped(now.get().keys)))
            />
            {read.waiting.map(|waiting| view! {
                <Counter
                    name="Waiting"
                    figure=Signal::derive(move || now.get().waiting.unwrap_or(waiting))
                    note=Signal::derive(|| "callers in queues".to_owned())
                />
            })}
            {read.jobs.map(|jobs| view! {
                <Counter
                    name="Jobs"
                    figure=Signal::derive(move || now.get().jobs.unwrap_or(jobs))
                    note=Signal::derive(|| "recorded".to_owned())
                />
            })}
            {read.grants.map(|grants| view! {
                <Counter
                    name="Grants"
                    figure=Signal::derive(move || now.get().grants.unwrap_or(grants))
                    note=Signal::derive(|| "leases ever granted".to_owned())
                />
            })}
        </Counters>
    }
}

/// The table with its heading and foot.
#[component]
fn Records(
    /// What was read while the page was rendered, or went to.
    reading: Reading,
    /// Where this page of the list begins; the first page has none.
    cursor: Option<String>,
) -> impl IntoView {
    let live = expect_context::<Live>();
    let read_at = reading.read_at;
    live.has_read(reading.position);
    let board = Board::new(reading, cursor.is_none());
    keep_true(live, board, cursor.clone());

    let first_page = cursor.is_none();
    let next = board.next();
    let foot = move || {
        let shown = board.len();
        match (first_page, next.read().is_some()) {
            (true, false) => format!("{shown} {}, newest grant first", keys(shown)),
            (true, true) => format!("The newest {shown} {}", keys(shown)),
            (false, _) => format!("{shown} older {}", keys(shown)),
        }
    };
    view! {
        <section class="card records" aria-labelledby="records">
            <header>
                <h2 id="records">"Records: Leases"</h2>
                <p class="sub">"The latest lease of each key. Times are UTC."</p>
            </header>
            <Show when=move || !board.is_empty() fallback=move || view! { <Nothing first_page/> }>
                <table role="table" aria-labelledby="records">
                    <thead role="rowgroup">
                        <tr role="row">
                            <th role="columnheader" scope="col" class="key">"lease_key"</th>
                            <th role="columnheader" scope="col" class="job wider">"job_key"</th>
                            <th role="columnheader" scope="col" class="owner">"owner"</th>
                            <th role="columnheader" scope="col" class="state">"status"</th>
                            <th role="columnheader" scope="col" class="number wide">"token"</th>
                            <th role="columnheader" scope="col" class="term">"expires_at"</th>
                            <th role="columnheader" scope="col" class="changed wider">"updated_at"</th>
                        </tr>
                    </thead>
                    <tbody role="rowgroup">
                        <For each=move || board.entries().get() key=|entry| entry.lease_key.clone() let:entry>
                            <LeaseRow entry read_at/>
                        </For>
                    </tbody>
                </table>
            </Show>
            <footer class:is-empty=move || board.is_empty() && first_page>
                <p>{foot}</p>
                <p class="pages">
                    {(!first_page).then(|| view! { <a href="/">"Newest"</a> })}
                    {move || next.get().map(|next| {
                        view! { <a href=format!("/?{CURSOR}={next}")>"Older"</a> }
                    })}
                </p>
            </footer>
        </section>
    }
}

const fn keys(count: usize) -> &'static str {
    if count == 1 { "key" } else { "keys" }
}

/// What arrives while the list is being read.
#[derive(Default)]
struct Meanwhile {
    lines: Vec<Line>,
    gap: bool,
}

/// Lets the board follow the news for as long as it is shown. What it cannot follow it reads anew, one reading at a
/// time; lines that arrive meanwhile are applied on top.
fn keep_true(live: Live, board: Board, cursor: Option<String>) {
    // Some while a reading is under way.
    let meanwhile = StoredValue::new(None::<Meanwhile>);
    live.listen(move |news| {
        let taken = meanwhile.try_update_value(|meanwhile| {
            meanwhile.as_mut().map(|meanwhile| match news {
                News::Lines(lines) => meanwhile.lines.extend_from_slice(lines),
                News::Gap => meanwhile.gap = true,
            })
        });
        let followed = matches!(news, News::Lines(lines) if taken == Some(None) && board.follow(lines));
        if followed || taken != Some(None) {
            return;
        }
        meanwhile.set_value(Some(Meanwhile::default()));
        let cursor = cursor.clone();
        spawn_local(async move {
            loop {
                let answer = Reading::fetch(cursor.clone()).await;
                // Nothing to take means that the page was left.
                let Some(Some(Meanwhile { lines, gap })) = meanwhile.try_update_value(Option::take) else { return };
                if let Ok(reading) = answer {
                    live.has_read(reading.position);
                    board.replace(reading);
                    // What these lines cannot tell, the next ones will make the board read again.
                    let _ = board.follow(&lines);
                }
                if !gap {
                    return;
                }
                meanwhile.set_value(Some(Meanwhile::default()));
            }
        });
    });
}

/// One row. Its cells are signals of their own: a renewal redraws two of them.
#[component]
fn LeaseRow(
    /// The row.
    entry: Entry,
    /// When the server gave out what the page first showed.
    read_at: Timestamp,
) -> impl IntoView {
    let now = expect_context::<Live>().now();
    let row = RwSignal::from(entry.row);
    let status = Memo::new(move |_| row.read().status_at(now.get()));
    let term = Memo::new(move |_| {
        let row = row.read();
        Term { from: row.updated_at, until: row.expires_at, ended: !row.status.is_alive() }
    });
    let holder = Memo::new(move |_| row.read().owner.to_string());
    let job = Memo::new(move |_| row.read().job_key.as_deref().map(str::to_owned));
    let token = Memo::new(move |_| row.read().fencing_token);
    let updated_at = Memo::new(move |_| row.read().updated_at);
    let key = entry.lease_key;
    view! {
        <tr role="row" class:is-over=move || !status.get().is_alive()>
            <th role="rowheader" scope="row" class="key" title=key.to_string()>
                <span class="name">{key.to_string()}</span>
            </th>
            <td role="cell" class="code wider" title=job>
                <span class="name">{job}</span>
            </td>
            <td role="cell" class="code owner" title=holder>
                <span class="name">{holder}</span>
            </td>
            <td role="cell" class="state"><StatusMark status/></td>
            <td role="cell" class="number wide">{token}</td>
            <td role="cell" class="term"><Countdown term now read_at/></td>
            <td role="cell" class="code wider">
                <time datetime=move || updated_at.get().to_string() title=move || in_full(updated_at.get())>
                    {move || moment(updated_at.get(), now.get().unwrap_or(read_at))}
                </time>
            </td>
        </tr>
    }
}

/// What to do where there is nothing yet.
#[component]
fn Nothing(
    /// Whether there is no lease at all, rather than none on this page.
    first_page: bool,
) -> impl IntoView {
    if !first_page {
        return view! { <div class="empty"><p>"There is nothing older."</p></div> }.into_any();
    }
    view! {
        <div class="empty">
            <h3>"No lease has been taken yet"</h3>
            <p>"One appears here the moment a worker takes it. To see it, run this in a terminal:"</p>
            <pre><code>"job-leases run --key nightly/report -- sleep 60"</code></pre>
            <p>
                "Run it again in a second terminal while the first is at work: the second is refused, and counted as a
                collision prevented. With "<code>"--wait 90s"</code>" it takes its turn instead."
            </p>
        </div>
    }
    .into_any()
}

/// The list could not be read.
#[component]
fn Unreadable(
    /// Why.
    error: ApiError,
) -> impl IntoView {
    view! {
        <section class="card empty" role="alert">
            <h2>"The leases could not be read"</h2>
            <p>{error.message.into_owned()}</p>
            <p>"No lease is affected by this. " <a href="/" rel="external">"Read again"</a></p>
        </section>
    }
}
