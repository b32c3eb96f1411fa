//! What a key is now, as the browser keeps it true, and what can be done about it.

use domain::lease::KeyStatus;
use domain::{LeaseKey, Timestamp};
use leptos::prelude::*;
use leptos::task::spawn_local;

use crate::api::leases::{self, GetRequest, Inspection, Intervention, Lease, Renewal, Waiter};
use crate::ui::live::{Live, News};
use crate::ui::parts::countdown::Term;
use crate::ui::parts::times::{in_full, lasted, moment};
use crate::ui::parts::{Countdown, StatusMark};

/// The state, the holder, the renewals, the waiters, what operators did, and their actions.
#[island]
pub fn Now(
    /// As read while the page was rendered.
    inspection: Inspection,
    /// Whether the reader may do what operators may.
    may_act: bool,
) -> impl IntoView {
    let live = Live::current();
    let key = inspection.key.lease_key.clone();
    let shown = RwSignal::new(inspection);
    keep_true(live, key.clone(), shown);
    let now = live.now();
    let at = move || now.get().unwrap_or_else(|| shown.read().key.server_time);
    view! {
        <div class="pair">
            <div class="stack">
                <section class="card" aria-labelledby="now">
                    <header><h2 id="now">"Now"</h2></header>
                    <p class="answer">{move || why(&shown.read(), at())}</p>
                    {move || shown.read().key.lease.clone().map(|lease| view! { <Holder lease now/> })}
                </section>
                <section class="card" aria-labelledby="waiters">
                    <header><h2 id="waiters">"Waiting, in order"</h2></header>
                    {move || {
                        let shown = shown.read();
                        let (waiters, length) = (shown.waiters.clone(), shown.key.queue_length);
                        view! { <Waiters waiters length at=shown.key.server_time/> }
                    }}
                </section>
            </div>
            <div class="stack">
                {may_act.then(|| view! { <Actions shown now/> })}
                <section class="card" aria-labelledby="renewals">
                    <header>
                        <h2 id="renewals">"Renewals"</h2>
                        <p class="sub">"How much time was left at each"</p>
                    </header>
                    {move || {
                        let shown = shown.read();
                        let lease = shown.key.lease.clone();
                        view! { <Margins renewals=shown.recent_renewals.clone() lease at=shown.key.server_time/> }
                    }}
                </section>
                <section class="card" aria-labelledby="interventions">
                    <header><h2 id="interventions">"What operators did"</h2></header>
                    {move || {
                        let shown = shown.read();
                        view! { <Interventions interventions=shown.interventions.clone() at=shown.key.server_time/> }
                    }}
                </section>
            </div>
        </div>
    }
}

/// Reads the key anew when the timeline tells of it, no more often than it is answered.
fn keep_true(live: Live, key: LeaseKey, shown: RwSignal<Inspection>) {
    // Whether a reading is under way, and whether another is wanted after it.
    let state = StoredValue::new((false, false));
    live.listen(move |news| {
        let concerns_it = match news {
            News::Lines(lines) => {
                lines.iter().any(|line| line.changes_all() || line.lease_key.as_deref() == Some(key.as_str()))
            }
            News::Gap => true,
        };
        let (under_way, _) = state.get_value();
        if !concerns_it || under_way {
            state.update_value(|(_, again)| *again |= concerns_it);
            return;
        }
        state.set_value((true, false));
        let key = key.clone();
        spawn_local(async move {
            loop {
                if let Ok(inspection) = leases::inspect(GetRequest { lease_key: key.clone() }).await {
                    // Nothing to set means that the page was left.
                    if shown.try_set(inspection).is_some() {
                        return;
                    }
                }
                let again = state.try_update_value(|(under_way, again)| {
                    *under_way = *again;
                    std::mem::take(again)
                });
                if again != Some(true) {
                    return;
                }
            }
        });
    });
}

/// Why somebody who asks for the key does not get it, in a sentence.
fn why(inspection: &Inspection, now: Timestamp) -> String {
    let key = &inspection.key;
    let before = match key.queue_length {
        0 => String::new(),
        1 => " One caller waits already.".to_owned(),
        count => format!(" {count} callers wait already."),
    };
    if let Some(quarantine) = &key.quarantine {
        let (reason, by) = (&quarantine.reason, &quarantine.by.name);
        return format!(
            "Nobody can acquire it: it is quarantined since {}, by {by}: \u{201c}{reason}\u{201d}.",
            moment(quarantine.since, now)
        );
    }
    let is_over = key.lease.as_ref().is_none_or(|lease| !lease.status.at(lease.expires_at, Some(now)).is_alive());
    match (key.status, &key.lease) {
        (KeyStatus::Held, Some(lease)) if !is_over => format!(
            "It cannot be acquired now: {} holds it since {}, for another {} unless it is renewed.{before}",
            lease.owner,
            moment(lease.acquired_at, now),
            lasted(now, lease.expires_at)
        ),
        (KeyStatus::Breaking, Some(lease)) if !is_over => format!(
            "It cannot be acquired now: {} was asked to stop and has {} left.{before}",
            lease.owner,
            lasted(now, lease.expires_at)
        ),
        (KeyStatus::Cooling, _) if key.cooling_until.is_some_and(|until| now < until) => format!(
            "It cannot be acquired now: it cools for another {} after its last holder.{before}",
            lasted(now, key.cooling_until.unwrap_or(now))
        ),
        _ => format!("It can be acquired: nobody holds it.{before}"),
    }
}

/// Whether the holder of a lease is at work, judged by its renewals.
fn is_alive(lease: &Lease, renewals: &[Renewal], now: Timestamp) -> String {
    let ago = |at: Timestamp| lasted(at, now);
    let rhythm = renewals.windows(2).map(|pair| pair[0].at.since(pair[1].at).as_micros()).max();
    match (renewals.first(), rhythm) {
        (None, _) => format!("It has not been renewed yet; it was granted {} ago.", ago(lease.acquired_at)),
        (Some(last), Some(longest)) if now.since(last.at).as_micros() > longest * 2 => format!(
            "Its holder is probably gone: the last renewal was {} ago, although there were never more than {} between two.",
            ago(last.at),
            lasted(Timestamp::EPOCH, Timestamp::from_micros(longest))
        ),
        (Some(last), Some(_)) => {
            format!("Its holder is probably at work: it renewed {} ago, as it does regularly.", ago(last.at))
        }
        (Some(last), None) => format!("It was renewed once, {} ago.", ago(last.at)),
    }
}

/// Who holds or held the key, and on which terms.
#[component]
fn Holder(lease: Lease, now: Signal<Option<Timestamp>>) -> impl IntoView {
    let read_at = lease.server_time;
    let (told, until) = (lease.status, lease.expires_at);
    let status = Memo::new(move |_| told.at(until, now.get()));
    let term = Memo::new(move |_| Term { from: lease.updated_at, until, ended: !told.is_alive() });
    let metadata = (!lease.metadata.is_empty()).then(|| lease.metadata.as_str().to_owned());
    let subjects = lease.subjects.iter().map(|subject| view! { <li class="chip is-still">{subject.to_string()}</li> });
    let subjects = (!lease.subjects.is_empty()).then(|| view! { <ul class="chips">{subjects.collect_view()}</ul> });
    view! {
        <dl class="facts">
            <dt>"Status"</dt>
            <dd><StatusMark status/></dd>
            <dt>"Owner"</dt>
            <dd class="code">{lease.owner.to_string()}</dd>
            {lease.job_key.map(|job| view! { <dt>"Job"</dt><dd class="code">{job.to_string()}</dd> })}
            <dt>"Ends"</dt>
            <dd><Countdown term now read_at/></dd>
            <dt>"Fencing token"</dt>
            <dd class="code">{lease.fencing_token.get()}</dd>
            <dt>"Lease"</dt>
            <dd class="code">{lease.lease_id.to_string()}</dd>
            <dt>"Acquired"</dt>
            <dd><time datetime=lease.acquired_at.to_string()>{in_full(lease.acquired_at)}</time></dd>
            <dt>"Renewals"</dt>
            <dd>{lease.renewals}</dd>
            {lease.max_hold_until.map(|until| view! {
                <dt>"At the longest until"</dt>
                <dd><time datetime=until.to_string()>{in_full(until)}</time></dd>
            })}
            {subjects.map(|subjects| view! { <dt>"Concerns"</dt><dd>{subjects}</dd> })}
            {metadata.map(|metadata| view! { <dt>"Metadata"</dt><dd class="code">{metadata}</dd> })}
        </dl>
    }
}

/// The latest renewals as bars, the newest at the right: what was left of the lease's time at each. The same as a table.
#[component]
fn Margins(renewals: Vec<Renewal>, lease: Option<Lease>, at: Timestamp) -> impl IntoView {
    const HEIGHT: u64 = 56;
    if renewals.is_empty() {
        return view! { <p class="nothing">"None yet."</p> }.into_any();
    }
    let most = renewals.iter().map(|renewal| renewal.margin_ms).max().unwrap_or(0);
    // What the last renewal gave, if it can be told; no bar can be longer.
    let given = lease.filter(|lease| lease.status.is_alive()).map_or(0, |lease| {
        let from = renewals.first().map_or(lease.acquired_at, |renewal| renewal.at);
        lease.expires_at.since(from).as_millis().unsigned_abs()
    });
    let whole = most.max(given).max(1);
    let bars = renewals.iter().rev().enumerate().map(|(index, renewal)| {
        let height = (renewal.margin_ms * HEIGHT / whole).max(1);
        let class = if renewal.margin_ms * 5 < whole { "is-low" } else { "" };
        let title = format!("{} left at {}", margin(renewal.margin_ms), in_full(renewal.at));
        view! {
            <rect class=class x=index * 9 y=HEIGHT - height width="7" height=height.to_string() rx="1">
                <title>{title}</title>
            </rect>
        }
    });
    let width = renewals.len() * 9;
    let least = renewals.iter().map(|renewal| renewal.margin_ms).min().unwrap_or(0);
    let about = match renewals.len() {
        1 => format!("The latest renewal: {} were left", margin(least)),
        count => format!("The latest {count} renewals: at least {} were left", margin(least)),
    };
    let rows = renewals.iter().map(|renewal| {
        view! {
            <tr>
                <td class="code"><time datetime=renewal.at.to_string()>{moment(renewal.at, at)}</time></td>
                <td class="number">{margin(renewal.margin_ms)}</td>
            </tr>
        }
    });
    view! {
        <figure class="margins">
            <svg viewBox=format!("0 0 {width} {HEIGHT}") role="img" aria-label=about.clone() preserveAspectRatio="xMinYMax meet">
                {bars.collect_view()}
            </svg>
            <figcaption>{about}"."</figcaption>
            <details>
                <summary>"As a table"</summary>
                <table class="plain-table">
                    <thead><tr><th scope="col">"renewed"</th><th scope="col" class="number">"left"</th></tr></thead>
                    <tbody>{rows.collect_view()}</tbody>
                </table>
            </details>
        </figure>
    }
    .into_any()
}

/// What was left: tenths of seconds matter while it is short.
fn margin(millis: u64) -> String {
    if millis < 60_000 {
        return format!("{}.{} s", millis / 1_000, millis % 1_000 / 100);
    }
    lasted(Timestamp::EPOCH, Timestamp::from_micros(i64::try_from(millis).unwrap_or(i64::MAX).saturating_mul(1_000)))
}

#[component]
fn Waiters(waiters: Vec<Waiter>, length: u64, at: Timestamp) -> impl IntoView {
    if waiters.is_empty() {
        return view! { <p class="nothing">"Nobody."</p> }.into_any();
    }
    let more = length.saturating_sub(waiters.len() as u64);
    let rows = waiters.into_iter().map(|waiter| {
        view! {
            <li>
                <span class="code">{waiter.owner.to_string()}</span>
                <span class="sub">"for "{lasted(waiter.since, at)}", until "{moment(waiter.deadline, at)}" at the longest"</span>
            </li>
        }
    });
    view! {
        <ol class="lines">{rows.collect_view()}</ol>
        {(more > 0).then(|| view! { <p class="nothing">"And "{more}" more."</p> })}
    }
    .into_any()
}

#[component]
fn Interventions(interventions: Vec<Intervention>, at: Timestamp) -> impl IntoView {
    if interventions.is_empty() {
        return view! { <p class="nothing">"Nothing."</p> }.into_any();
    }
    let rows = interventions.into_iter().map(|done| {
        let what = match done.kind.as_str() {
            "lease.breaking" => "asked the holder to stop",
            "lease.broken" => "broke the lease",
            "lease.transferred" => "handed the lease over",
            "key.quarantined" => "quarantined the key",
            "key.lifted" => "lifted the quarantine",
            _ => "changed it",
        };
        let of = done.owner.map(|owner| format!(" of {owner}")).unwrap_or_default();
        let reason = done.reason.map(|reason| format!("\u{201c}{reason}\u{201d}"));
        view! {
            <li>
                <time class="code" datetime=done.at.to_string() title=in_full(done.at)>{moment(done.at, at)}</time>
                <span><b>{done.by.name.to_string()}</b>" "{what}{of}" "{reason}</span>
            </li>
        }
    });
    view! { <ul class="lines">{rows.collect_view()}</ul> }.into_any()
}

/// Plain forms in native dialogs: they work before the browser's part has arrived, and without it.
#[component]
fn Actions(shown: RwSignal<Inspection>, now: Signal<Option<Timestamp>>) -> impl IntoView {
    let key = shown.read_untracked().key.lease_key.to_string();
    let lease_id = move || shown.read().key.lease.as_ref().map(|lease| lease.lease_id.to_string()).unwrap_or_default();
    let is_held = move || {
        let now = now.get();
        let is_held = |lease: &Lease| lease.status.at(lease.expires_at, now).is_alive();
        shown.read().key.lease.as_ref().is_some_and(is_held)
    };
    let is_quarantined = move || shown.read().key.quarantine.is_some();
    let verdict = move || {
        let shown = shown.read();
        let at = now.get().unwrap_or(shown.key.server_time);
        shown.key.lease.as_ref().map(|lease| is_alive(lease, &shown.recent_renewals, at))
    };
    // Matches the key itself and nothing else.
    let pattern: String = key
        .chars()
        .flat_map(|letter| {
            let is_plain = letter.is_alphanumeric() || letter == '_' || letter == ' ';
            (!is_plain && letter.is_ascii()).then_some('\\').into_iter().chain([letter])
        })
        .collect();
    let key = StoredValue::new(key);
    #[cfg(feature = "hydrate")]
    Effect::new(open_asked);
    view! {
        <section class="card actions" aria-labelledby="actions">
            <header>
                <h2 id="actions">"Actions"</h2>
                <p class="sub">"Each is in the timeline with your name and reason."</p>
            </header>
            <div class="buttons">
                <Show when=is_held>
                    <button type="button" class="button is-danger" command="show-modal" commandfor="break">"Force-release\u{2026}"</button>
                    <button type="button" class="button" command="show-modal" commandfor="transfer">"Hand over\u{2026}"</button>
                </Show>
                <Show when=is_quarantined fallback=|| view! {
                    <button type="button" class="button" command="show-modal" commandfor="quarantine">"Quarantine\u{2026}"</button>
                }>
                    <button type="button" class="button" command="show-modal" commandfor="lift">"Lift the quarantine\u{2026}"</button>
                </Show>
            </div>
            <ActionDialog action="break" title="Force-release" key is_danger=true>
                <p>{verdict}</p>
                <p class="warning">
                    "It cannot be undone. A holder that is at work hears of it at once or at its next renewal, and has the time below
                    to stop; what it writes afterwards is refused only where its fencing token is checked."
                </p>
                <input type="hidden" name="lease_id" prop:value=lease_id value=lease_id/>
                <Reason/>
                <label class="field">
                    <span>"Time to stop"</span>
                    <select name="grace_ms">
                        <option value="0">"None: at once"</option>
                        <option value="10000">"10 seconds"</option>
                        <option value="30000" selected>"30 seconds"</option>
                        <option value="60000">"1 minute"</option>
                        <option value="300000">"5 minutes"</option>
                    </select>
                </label>
                <label class="field">
                    <span>"Type the key to confirm"</span>
                    <input name="confirm" required pattern=pattern autocomplete="off" spellcheck="false" title="The key, exactly as above"/>
                </label>
            </ActionDialog>
            <ActionDialog action="transfer" title="Hand over" key>
                <p>
                    "The new owner gets a lease of its own with a greater token, at once and before all who wait; it ends when the
                    present one would. The present holder loses it."
                </p>
                <input type="hidden" name="lease_id" prop:value=lease_id value=lease_id/>
                <label class="field"><span>"New owner"</span><input name="to_owner" required maxlength="256" autocomplete="off"/></label>
            </ActionDialog>
            <ActionDialog action="quarantine" title="Quarantine" key>
                <p>"Nobody is granted the key until this is lifted, and all who wait are refused. Its holder may go on."</p>
                <Reason/>
            </ActionDialog>
            <ActionDialog action="lift" title="Lift the quarantine of" button="Lift" key>
                <Reason/>
            </ActionDialog>
        </section>
    }
}

/// Opens the dialog that the address asks for, if what it does can be done; and takes that out of the address, so that it is asked once.
#[cfg(feature = "hydrate")]
fn open_asked() {
    use leptos::wasm_bindgen::JsCast;
    use leptos::wasm_bindgen::JsValue;

    let location = window().location();
    let (path, query) = (location.pathname().unwrap_or_default(), location.search().unwrap_or_default());
    let mut rest = form_urlencoded::Serializer::new(String::new());
    let mut asked = None;
    for (name, value) in form_urlencoded::parse(query.trim_start_matches('?').as_bytes()) {
        if name == "do" {
            asked = Some(value);
        } else {
            rest.append_pair(&name, &value);
        }
    }
    let Some(asked) = asked else { return };
    let rest = rest.finish();
    let address = if rest.is_empty() { path } else { format!("{path}?{rest}") };
    // A browser that keeps the address as it is only asks again when the page is loaded anew.
    let _ = window().history().map(|history| history.replace_state_with_url(&JsValue::NULL, "", Some(&address)));
    let buttons = document().query_selector_all(".actions button[command='show-modal']");
    let Ok(buttons) = buttons else { return };
    let buttons = (0..buttons.length()).filter_map(|at| buttons.item(at)?.dyn_into::<web_sys::HtmlElement>().ok());
    // There is a button for what can be done now.
    if let Some(button) =
        buttons.into_iter().find(|button| button.get_attribute("commandfor").as_deref() == Some(&*asked))
    {
        let _ = button.focus();
        button.click();
    }
}

/// One action: what it means and asks for between its title and its buttons.
#[component]
fn ActionDialog(
    /// Its name, of the dialog and in its address.
    action: &'static str,
    /// What it does, before the key.
    title: &'static str,
    /// What its button says, if that is not the title.
    #[prop(optional)]
    button: Option<&'static str>,
    /// On which key.
    key: StoredValue<String>,
    /// Whether it cannot be undone.
    #[prop(optional)]
    is_danger: bool,
    children: Children,
) -> impl IntoView {
    let title_id = format!("{action}-title");
    let labelled_by = title_id.clone();
    let class = if is_danger { "button is-danger" } else { "button is-main" };
    view! {
        <dialog id=action aria-labelledby=labelled_by>
            <form method="post" action=format!("/core/leases/actions/{action}")>
                <h2 id=title_id>{title}" "<code>{key.get_value()}</code></h2>
                <input type="hidden" name="lease_key" value=key.get_value()/>
                {children()}
                <p class="buttons">
                    <button type="button" class="button" command="close" commandfor=action>"Cancel"</button>
                    <button type="submit" class=class>{button.unwrap_or(title)}</button>
                </p>
            </form>
        </dialog>
    }
}

/// Why.
#[component]
fn Reason() -> impl IntoView {
    view! {
        <label class="field"><span>"Reason"</span><input name="reason" required maxlength="1024" autocomplete="off"/></label>
    }
}
