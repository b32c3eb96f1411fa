//! `/`: the leases, live.

use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;

use super::board::Reading;
use super::filter::{self, Filter};
use super::records::{Head, Records};
use crate::api::counters::{self, Counters as Totals, Trend, TrendRequest};
use crate::api::leases::{Sort, Status};
use crate::ui::live::Live;
use crate::ui::parts::numbers::grouped;
use crate::ui::parts::{Counter, Counters, Unreadable, trend};
use crate::ui::shell::{Around, AroundResource};

/// The first screen.
#[component]
pub fn LeasesPage() -> impl IntoView {
    let AroundResource(around) = expect_context();
    let query = use_query_map().get_untracked();
    let typed = query.get(filter::QUERY).unwrap_or_default();
    let asked = Filter::parse(&typed, query.get(filter::SORT).as_deref());
    let problem = asked.as_ref().err().cloned();
    let filter = asked.unwrap_or_default();
    let request = filter.request(query.get(filter::CURSOR)).ok();
    view! {
        <Title text="Job Leases"/>
        <header class="head">
            <p class="eyebrow">"Redundancy, Safety & Job Reliability"</p>
            <h1>"Job Leases"</h1>
            <p class="lede">"Acquire and release job leases so duplicate workers do not collide."</p>
        </header>
        <Suspense>
            {move || Suspend::new(async move {
                let read = around.await.ok().and_then(|Around { counters, .. }| counters)?;
                let trends = counters::trend(TrendRequest::default()).await.ok();
                Some(view! { <Figures read trends=trends.as_ref().map(Trends::of)/> })
            })}
        </Suspense>
        <Suspense>
            {move || {
                let (filter, request, typed, problem) =
                    (filter.clone(), request.clone(), typed.clone(), problem.clone());
                Suspend::new(async move {
                    let list = match request.filter(|_| problem.is_none()) {
                        Some(request) => match Reading::fetch(request.clone()).await {
                            Ok(reading) => {
                                let (first, is_first) = (filter.address(None), request.cursor.is_none());
                                let is_filtered = !filter.parts.is_empty();
                                let heads = heads(&filter);
                                view! { <Records reading request heads is_filtered first is_first/> }.into_any()
                            }
                            Err(error) => {
                                let again = filter.address(None);
                                view! { <Unreadable title="The leases could not be read" error again/> }.into_any()
                            }
                        },
                        // The problem is told above the list.
                        None => ().into_any(),
                    };
                    view! {
                        <section class="card records" aria-labelledby="records">
                            <header>
                                <h2 id="records">"Records: Leases"</h2>
                                <Chips filter=filter.clone()/>
                                <Search filter typed problem/>
                            </header>
                            {list}
                        </section>
                    }
                })
            }}
        </Suspense>
    }
}

/// The points of the small drawings beside the figures, each over the last hour.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Trends {
    refused: String,
    held: String,
    granted: String,
    most_held: u64,
}

impl Trends {
    fn of(trend: &Trend) -> Self {
        let points =
            |figure: fn(&counters::Minute) -> u64| trend::points(&trend.minutes.iter().map(figure).collect::<Vec<_>>());
        Self {
            refused: points(|minute| minute.refused),
            held: points(|minute| minute.held),
            granted: points(|minute| minute.granted),
            most_held: trend.minutes.iter().map(|minute| minute.held).max().unwrap_or(0),
        }
    }
}

/// The figures that are true already. Some are not told to those who may see some keys only.
#[island]
pub fn Figures(
    /// As read while the page was rendered.
    read: Totals,
    /// How they came about.
    trends: Option<Trends>,
) -> impl IntoView {
    let latest = Live::current().counters();
    let now = Memo::new(move |_| latest.get().unwrap_or(read));
    let (refused, held, granted) = match trends {
        None => (None, None, None),
        Some(Trends { refused, held, granted, most_held }) => (
            Some((refused, "Duplicates refused each minute of the last hour".to_owned())),
            Some((held, format!("Leases held in the last hour, {} at the most", grouped(most_held)))),
            Some((granted, "Grants each minute of the last hour".to_owned())),
        ),
    };
    view! {
        <Counters>
            <Counter
                name="Collisions prevented"
                figure=Signal::derive(move || now.get().collisions_today)
                note=Signal::derive(move || format!("today, {} in all", grouped(now.get().collisions_total)))
                first=true
                trend=refused
            />
            <Counter
                name="Leases held"
                figure=Signal::derive(move || now.get().held)
                note=Signal::derive(move || format!("now, of {} keys", grouped(now.get().keys)))
                trend=held
            />
            {read.waiting.map(|waiting| view! {
                <Counter
                    name="Waiting"
                    figure=Signal::derive(move || now.get().waiting.unwrap_or(waiting))
                    note=Signal::derive(|| "callers in queues".to_owned())
                    trend=None
                />
            })}
            {read.jobs.map(|jobs| view! {
                <Counter
                    name="Jobs"
                    figure=Signal::derive(move || now.get().jobs.unwrap_or(jobs))
                    note=Signal::derive(|| "recorded".to_owned())
                    trend=None
                />
            })}
            {read.grants.map(|grants| view! {
                <Counter
                    name="Grants"
                    figure=Signal::derive(move || now.get().grants.unwrap_or(grants))
                    note=Signal::derive(|| "leases ever granted".to_owned())
                    trend=granted
                />
            })}
        </Counters>
    }
}

/// What the list can be narrowed to with one click, each a link. Without figures: they would stand still while the list moves.
#[component]
fn Chips(
    /// What it shows.
    filter: Filter,
) -> impl IntoView {
    let chosen = filter.value("status").and_then(Status::parse);
    let shown = [None, Some(Status::Held), Some(Status::Breaking), Some(Status::Expired), Some(Status::Broken)];
    let chips = shown.map(|status| {
        let name = status.map_or("All", Status::title);
        let address = filter.with("status", status.map(Status::as_str)).address(None);
        let current = (status == chosen).then_some("true");
        view! { <li><a class="chip" href=address aria-current=current>{name}</a></li> }
    });
    view! { <ul class="chips" aria-label="By status">{chips.collect_view()}</ul> }
}

/// The search field, what is looked for now, and what is wrong with it.
#[component]
fn Search(
    /// What the list shows.
    filter: Filter,
    /// What was typed.
    typed: String,
    /// Why that cannot be looked for.
    problem: Option<String>,
) -> impl IntoView {
    let parts: Vec<_> = filter
        .parts
        .iter()
        .map(|part| {
            let (text, without) = (part.text(), filter.with(part.name, None).address(None));
            let label = format!("Remove {text}");
            view! {
                <li>
                    <a class="chip is-part" href=without aria-label=label>{text}<span aria-hidden="true">"\u{d7}"</span></a>
                </li>
            }
        })
        .collect();
    let parts = (!parts.is_empty()).then(|| view! { <ul class="chips parts" aria-label="Looked for">{parts}</ul> });
    let value = if problem.is_some() { typed } else { filter.text() };
    let is_wrong = problem.as_ref().map(|_| "true");
    let described_by = problem.as_ref().map(|_| "q-problem");
    let hints = filter::QUALIFIERS.map(|(name, about)| view! { <li><code>{name}":"</code><span>{about}</span></li> });
    view! {
        <form class="search" role="search" method="get" action="/">
            <label class="out-of-sight" for="q">"Find leases"</label>
            <input
                id="q"
                name=filter::QUERY
                type="search"
                autocomplete="off"
                spellcheck="false"
                placeholder="owner: status: key:"
                value=value
                aria-invalid=is_wrong
                aria-describedby=described_by
            />
            {filter.sort.map(|sort| view! { <input type="hidden" name=filter::SORT value=sort.as_str()/> })}
            <button class="button" type="submit">"Find"</button>
            <button class="button" type="button" popovertarget="q-help" aria-label="How to find leases">"?"</button>
            <div id="q-help" class="panel is-wide" popover="auto">
                <p>"All that is typed must hold. A word alone is the beginning of a key; quotes keep spaces."</p>
                <ul>{hints.collect_view()}</ul>
            </div>
        </form>
        {parts}
        {problem.map(|problem| view! { <p class="problem" id="q-problem" role="alert">{problem}</p> })}
    }
}

/// The heads of the columns key, token, expires_at and updated_at. A click on the column that sorts turns it round.
fn heads(filter: &Filter) -> [Head; 4] {
    let now = filter.sort.unwrap_or(Filter::NEWEST);
    Sort::PAIRS.map(|(up, down)| {
        // Names and ends are looked for from the first, grants and changes from the latest.
        let (first, second) = if matches!(up, Sort::LeaseKey | Sort::ExpiresAt) { (up, down) } else { (down, up) };
        let next = if now == first { second } else { first };
        let is_rising = [(up, true), (down, false)].into_iter().find(|(sort, _)| *sort == now);
        Head { address: filter.sorted(next).address(None), is_rising: is_rising.map(|(_, is_rising)| is_rising) }
    })
}
