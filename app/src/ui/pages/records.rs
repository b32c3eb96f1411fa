//! The table of leases, as the browser keeps it true.

use domain::Timestamp;
use leptos::prelude::*;
use leptos::task::spawn_local;

use super::board::{Board, Entry, Reading};
use super::filter::{self, Filter, lease_address};
use crate::api::leases::ListRequest;
use crate::api::page::Count;
use crate::ui::live::line::Line;
use crate::ui::live::{Live, News};
use crate::ui::parts::countdown::Term;
use crate::ui::parts::numbers::grouped;
use crate::ui::parts::times::{in_full, moment};
use crate::ui::parts::{Countdown, StatusMark};

/// The head of a column that can be sorted: where a click leads, and whether it is the one that sorts now, upwards or not.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Head {
    /// Where a click leads.
    pub address: String,
    /// How it sorts the list, if it does.
    pub is_rising: Option<bool>,
}

#[component]
fn SortedHead(head: Head, class: &'static str, name: &'static str) -> impl IntoView {
    let (sort, mark) = match head.is_rising {
        Some(true) => (Some("ascending"), "\u{2191}"),
        Some(false) => (Some("descending"), "\u{2193}"),
        None => (None, ""),
    };
    view! {
        <th role="columnheader" scope="col" class=class aria-sort=sort>
            <a href=head.address>{name}<span class="mark" aria-hidden="true">{mark}</span></a>
        </th>
    }
}

/// The table with its foot.
#[island]
pub fn Records(
    /// What was read while the page was rendered.
    reading: Reading,
    /// How.
    request: ListRequest,
    /// The heads of the columns key, token, expires_at and updated_at.
    heads: [Head; 4],
    /// Whether it shows some leases only.
    is_filtered: bool,
    /// The address of the first page.
    first: String,
    /// Whether this is the first page.
    is_first: bool,
) -> impl IntoView {
    let live = Live::current();
    let read_at = reading.read_at;
    live.has_read(reading.position);
    // Where a new lease belongs is known only if all are shown, and by when they were granted.
    let takes_new = is_first && !is_filtered && request.sort.is_none_or(|sort| sort == Filter::NEWEST);
    let board = Board::new(reading, takes_new);
    keep_true(live, board, request);
    let (fresh, next) = (board.fresh(), board.next());
    let chip = move || {
        let count = fresh.get();
        let words = || if count == 1 { "1 new lease".to_owned() } else { format!("{} new leases", grouped(count)) };
        (count > 0).then(|| view! { <a class="chip is-new" href="">{words()}": show"</a> })
    };
    let foot = move || {
        let shown = board.len();
        let of = board.count().get().map(|Count { at_least, is_all }| {
            format!(" of {}{}", if is_all { "" } else { "more than " }, grouped(at_least.into()))
        });
        match (is_first, next.read().is_some(), is_filtered) {
            (true, false, false) => format!("{shown} {}", if shown == 1 { "key" } else { "keys" }),
            (true, true, _) => format!("The first {shown}{}", of.unwrap_or_default()),
            (true, false, true) => format!("{shown} found"),
            (false, ..) => format!("{shown} more{}", of.unwrap_or_default()),
        }
    };
    let [by_key, by_token, by_expiry, by_update] = heads;
    view! {
        <Show when=move || !board.is_empty() fallback=move || view! { <Nothing is_first is_filtered/> }>
            <table role="table" aria-labelledby="records">
                <thead role="rowgroup">
                    <tr role="row">
                        <SortedHead head=by_key.clone() class="key" name="lease_key"/>
                        <th role="columnheader" scope="col" class="job wider">"job_key"</th>
                        <th role="columnheader" scope="col" class="owner">"owner"</th>
                        <th role="columnheader" scope="col" class="state">"status"</th>
                        <SortedHead head=by_token.clone() class="number wide" name="token"/>
                        <SortedHead head=by_expiry.clone() class="term" name="expires_at"/>
                        <SortedHead head=by_update.clone() class="changed wider" name="updated_at"/>
                    </tr>
                </thead>
                <tbody role="rowgroup">
                    <For each=move || board.entries().get() key=|entry| entry.lease_key.clone() let:entry>
                        <LeaseRow entry read_at/>
                    </For>
                </tbody>
            </table>
        </Show>
        <footer class:is-empty=move || board.is_empty() && is_first && !is_filtered>
            <p>{foot}" "{chip}</p>
            <p class="hints needs-script">
                <kbd>"j"</kbd><kbd>"k"</kbd>" move "<kbd>"Enter"</kbd>" open "<kbd>"?"</kbd>" keys"
            </p>
            <p class="pages">
                <span class="files">
                    "All as "
                    <a href=filter::export(&first, "csv") rel="external">"CSV"</a>
                    " "
                    <a href=filter::export(&first, "json") rel="external">"JSON"</a>
                </span>
                {(!is_first).then(|| view! { <a href=first.clone()>"First page"</a> })}
                {move || next.get().map(|next| {
                    view! { <a href=filter::further(&first, &next) rel="next">"Next page"</a> }
                })}
            </p>
        </footer>
    }
}

/// What arrives while the list is being read.
#[derive(Default)]
struct Meanwhile {
    lines: Vec<Line>,
    gap: bool,
}

/// Whether the reader is about to do something with what is shown: the keyboard is on a row, something is open, or the pointer
/// is on a row and moved a moment ago (a pointer that only lies there does not count). Then no row may come or go.
#[derive(Clone, Copy)]
struct Hand {
    /// Seconds since the pointer moved.
    #[cfg(feature = "hydrate")]
    still: StoredValue<u32>,
}

impl Hand {
    /// How long a pointer that stands still may be about to press.
    #[cfg(feature = "hydrate")]
    const PATIENCE: u32 = 4;

    #[cfg(not(feature = "hydrate"))]
    const fn watch(_: Signal<Option<Timestamp>>) -> Self {
        Self {}
    }

    #[cfg(not(feature = "hydrate"))]
    #[expect(clippy::unused_self, reason = "in the browser it has something to tell")]
    const fn is_on_it(self) -> bool {
        false
    }

    #[cfg(feature = "hydrate")]
    fn watch(now: Signal<Option<Timestamp>>) -> Self {
        let still = StoredValue::new(Self::PATIENCE);
        let listening = window_event_listener(leptos::ev::pointermove, move |_| still.set_value(0));
        on_cleanup(move || listening.remove());
        Effect::new(move |_| {
            now.track();
            still.update_value(|seconds| *seconds += 1);
        });
        Self { still }
    }

    #[cfg(feature = "hydrate")]
    fn is_on_it(self) -> bool {
        let has = |selector| document().query_selector(selector).is_ok_and(|element| element.is_some());
        has("tbody:focus-within, :popover-open, dialog[open]")
            || (self.still.get_value() < Self::PATIENCE && has("tbody:hover"))
    }
}

/// Lets the board follow the news for as long as it is shown. What it cannot follow it reads anew, one reading at a
/// time; lines that arrive meanwhile are applied on top.
fn keep_true(live: Live, board: Board, request: ListRequest) {
    // Some while a reading is under way.
    let meanwhile = StoredValue::new(None::<Meanwhile>);
    let now = live.now();
    let hand = Hand::watch(now);
    let read = move || read_anew(live, board, request.clone(), meanwhile, hand);
    live.listen({
        let read = read.clone();
        move |news| {
            let taken = meanwhile.try_update_value(|meanwhile| {
                meanwhile.as_mut().map(|meanwhile| match news {
                    News::Lines(lines) => meanwhile.lines.extend_from_slice(lines),
                    News::Gap => meanwhile.gap = true,
                })
            });
            let follows = |lines| taken == Some(None) && board.follow(lines, hand.is_on_it());
            if taken == Some(None) && !matches!(news, News::Lines(lines) if follows(lines)) {
                read();
            }
        }
    });
    // Once the reader has let go, what came meanwhile takes its place.
    Effect::new(move |_| {
        now.track();
        if board.is_due() && !hand.is_on_it() && meanwhile.with_value(Option::is_none) {
            read();
        }
    });
}

fn read_anew(live: Live, board: Board, request: ListRequest, meanwhile: StoredValue<Option<Meanwhile>>, hand: Hand) {
    meanwhile.set_value(Some(Meanwhile::default()));
    spawn_local(async move {
        loop {
            let answer = Reading::fetch(request.clone()).await;
            // Nothing to take means that the page was left.
            let Some(Some(Meanwhile { lines, gap })) = meanwhile.try_update_value(Option::take) else { return };
            if let Ok(reading) = answer {
                live.has_read(reading.position);
                board.replace(reading, hand.is_on_it());
                // What these lines cannot tell, the next ones will make the board read again.
                let _ = board.follow(&lines, hand.is_on_it());
            }
            if !gap {
                return;
            }
            meanwhile.set_value(Some(Meanwhile::default()));
        }
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
    let now = Live::current().now();
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
                <a class="name" href=lease_address(&key)>{key.to_string()}</a>
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

/// What to do where there is nothing.
#[component]
fn Nothing(
    /// Whether this is the first page.
    is_first: bool,
    /// Whether it shows some leases only.
    is_filtered: bool,
) -> impl IntoView {
    if is_filtered {
        return view! { <div class="empty"><p>"No lease is like that. "<a href="/">"Show all"</a></p></div> }
            .into_any();
    }
    if !is_first {
        return view! { <div class="empty"><p>"There is nothing more."</p></div> }.into_any();
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
