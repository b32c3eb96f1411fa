//! `/core/leases/<key>`: one key, its holder, its past, and what an operator can do.

use domain::{LeaseKey, Role};
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::{use_location, use_query_map};

use super::audit;
use super::filter::{Filter, lease_address};
use super::inspection::Now;
use crate::api::leases::{self, GetRequest, HistoryRequest, Inspection, Lease};
use crate::api::values::PageSize;
use crate::api::{ApiError, page::Page};
use crate::ui::parts::numbers::grouped;
use crate::ui::parts::times::{in_full, lasted, moment};
use crate::ui::parts::{StatusMark, Unreadable};
use crate::ui::shell::{Around, AroundResource};

/// Where the page lies; the key follows, percent-encoded.
pub const PATH: &str = "/core/leases";

/// How many grants of the key are shown.
const GRANTS: Option<PageSize> = PageSize::new(50);

/// The key that an address names: below [`PATH`], or in its query where no path can hold it.
pub(crate) fn key_of(path: &str, query: Option<String>) -> Option<LeaseKey> {
    let text = match path.strip_prefix(PATH)?.strip_prefix('/') {
        Some(encoded) if !encoded.is_empty() => unescape(encoded)?,
        _ => query?,
    };
    LeaseKey::parse(&text).ok()
}

/// Undoes percent-encoding; a plus is a plus in a path.
fn unescape(encoded: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            let digits = std::str::from_utf8(&digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// The path as it was asked for, before anything decodes it.
fn asked_path() -> String {
    #[cfg(feature = "ssr")]
    if let Some(parts) = use_context::<http::request::Parts>() {
        return parts.uri.path().to_owned();
    }
    use_location().pathname.get_untracked()
}

/// The page.
#[component]
pub fn LeasePage() -> impl IntoView {
    let AroundResource(around) = expect_context();
    let query = use_query_map().get_untracked();
    let key = key_of(&asked_path(), query.get("key"));
    let notice = query.get("done").or(query.get("refused"));
    view! {
        <Suspense>
            {move || {
                let (key, notice) = (key.clone(), notice.clone());
                Suspend::new(async move {
                    let Some(key) = key else {
                        return view! { <Unknown key=None/> }.into_any();
                    };
                    let role = around.await.ok().map_or(Role::Viewer, |Around { session, .. }| session.role);
                    match read(key.clone()).await {
                        Ok((inspection, history)) => {
                            view! { <Known inspection history may_act={role >= Role::Operator} notice/> }.into_any()
                        }
                        Err(error) if error.code == "lease_key_unknown" => {
                            view! { <Unknown key=Some(key)/> }.into_any()
                        }
                        Err(error) => {
                            let again = lease_address(key.as_str());
                            view! {
                                <Title text="Job Leases"/>
                                <header class="head"><h1 class="name">{key.to_string()}</h1></header>
                                <section class="card"><Unreadable title="The key could not be read" error again/></section>
                            }
                            .into_any()
                        }
                    }
                })
            }}
        </Suspense>
    }
}

async fn read(key: LeaseKey) -> Result<(Inspection, Page<Lease>), ApiError> {
    let inspection = leases::inspect(GetRequest { lease_key: key.clone() }).await?;
    let history = leases::history(HistoryRequest { lease_key: key, limit: GRANTS, cursor: None }).await?;
    Ok((inspection, history))
}

#[component]
fn Known(
    /// What it is.
    inspection: Inspection,
    /// Who had it.
    history: Page<Lease>,
    /// Whether the reader may do what operators may.
    may_act: bool,
    /// What the last action came to: its name, or the code of the refusal.
    notice: Option<String>,
) -> impl IntoView {
    let key = inspection.key.lease_key.to_string();
    let same_prefix = key.rfind('/').map(|end| key[..=end].to_owned());
    let siblings = same_prefix.map(|prefix| {
        let address = Filter::default().with("key", Some(&prefix)).address(None);
        view! { <p><a href=address>"All keys below "<code>{prefix}</code></a></p> }
    });
    let title = format!("{key} \u{b7} Job Leases");
    let events = audit::address("", &key, None);
    view! {
        <Title text=title/>
        <header class="head">
            <p class="eyebrow"><a href="/">"Job Leases"</a></p>
            <h1 class="name">{key}</h1>
        </header>
        {notice.map(|notice| view! { <Notice notice/> })}
        <Now inspection may_act/>
        <History history events/>
        {siblings}
    }
}

/// What came of the last action.
#[component]
fn Notice(notice: String) -> impl IntoView {
    let (is_done, words) = match notice.as_str() {
        "break" => (true, "The break is on its way: it is in the history below as soon as the lease has ended."),
        "transfer" => (true, "The lease was handed over: its new holder has a new lease id and a greater token."),
        "quarantine" => (true, "The key is quarantined: nobody is granted it until that is lifted."),
        "lift" => (true, "The quarantine is lifted: the key can be granted again."),
        "confirm" => (false, "Nothing was done: the key that was typed is not this one."),
        "forbidden" => (false, "Nothing was done: this needs the role operator, for this key."),
        "lease_lost" | "not_held" | "lease_unknown" => {
            (false, "Nothing was done: the lease that was shown has ended meanwhile.")
        }
        "not_quarantined" => (false, "Nothing was done: the key is not quarantined any more."),
        "breaking" | "quarantined" => (false, "Nothing was done: the key is being broken or is quarantined."),
        "reason_invalid" => (false, "Nothing was done: a reason is needed, without line breaks."),
        "to_owner_invalid" => (false, "Nothing was done: that cannot be an owner."),
        _ => (false, "Nothing was done: the server refused. Look at the state below and try again."),
    };
    let class = if is_done { "notice is-done" } else { "notice is-refused" };
    view! { <p class=class role="status">{words}</p> }
}

/// Everybody who had the key.
#[component]
fn History(
    history: Page<Lease>,
    /// Where the timeline of its events is.
    events: String,
) -> impl IntoView {
    let now = history.server_time;
    let is_all = history.next.is_none();
    let count = history.items.len();
    let rows = history.items.into_iter().map(|lease| {
        let status = lease.status;
        let end = (!status.is_alive()).then_some(lease.expires_at);
        let held_for = lasted(lease.acquired_at, end.unwrap_or(now));
        let owned_by = Filter::default().with("owner", Some(lease.owner.as_str())).address(None);
        view! {
            <tr>
                <td class="number">{lease.fencing_token.get()}</td>
                <th scope="row" class="code"><a href=owned_by>{lease.owner.to_string()}</a></th>
                <td><StatusMark status=Memo::new(move |_| status)/></td>
                <td class="code">
                    <time datetime=lease.acquired_at.to_string() title=in_full(lease.acquired_at)>
                        {moment(lease.acquired_at, now)}
                    </time>
                </td>
                <td class="number">{held_for}</td>
                <td class="number">{grouped(lease.renewals.into())}</td>
            </tr>
        }
    });
    let foot = if is_all { format!("{count} in all") } else { format!("The latest {count}") };
    view! {
        <section class="card" aria-labelledby="history">
            <header>
                <h2 id="history">"Ownership"</h2>
                <p class="sub">"Every grant of this key, newest first. Times are UTC."</p>
            </header>
            <div class="scroll">
                <table class="plain-table">
                    <thead>
                        <tr>
                            <th scope="col" class="number">"token"</th>
                            <th scope="col">"owner"</th>
                            <th scope="col">"status"</th>
                            <th scope="col">"acquired_at"</th>
                            <th scope="col" class="number">"held for"</th>
                            <th scope="col" class="number">"renewals"</th>
                        </tr>
                    </thead>
                    <tbody>{rows.collect_view()}</tbody>
                </table>
            </div>
            <footer>
                <p>{foot}</p>
                <p class="pages"><a href=events>"In the timeline"</a></p>
            </footer>
        </section>
    }
}

/// A key of which nothing is known.
#[component]
fn Unknown(key: Option<LeaseKey>) -> impl IntoView {
    #[cfg(feature = "ssr")]
    if let Some(response) = use_context::<leptos_axum::ResponseOptions>() {
        response.set_status(http::StatusCode::NOT_FOUND);
    }
    let words = match &key {
        Some(key) => format!("No lease was ever taken on {key}, and it is not quarantined: anybody can acquire it."),
        None => "This address names nothing that could be a lease key.".to_owned(),
    };
    let command = key.as_ref().map(|key| {
        let quoted = key.as_str().replace('\'', "'\\''");
        view! { <pre><code>{format!("job-leases run --key '{quoted}' -- sleep 60")}</code></pre> }
    });
    view! {
        <Title text="Unknown key \u{b7} Job Leases"/>
        <header class="head">
            <p class="eyebrow"><a href="/">"Job Leases"</a></p>
            <h1>"Unknown key"</h1>
            <p class="lede">{words}</p>
        </header>
        {command}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_read_from_any_address_that_a_key_has() {
        for key in ["nightly/report", "a b%?#\u{e4}..", "..", "a+b&c=d", "\u{65e5}\u{672c}"] {
            let address = lease_address(key);
            let (path, query) = address.split_once('?').unwrap_or((&address, ""));
            let query = form_urlencoded::parse(query.as_bytes()).next().map(|(_, value)| value.into_owned());
            assert_eq!(key_of(path, query).unwrap().as_str(), key);
        }
        for (path, query) in
            [(PATH, None), ("/core/leases/", None), ("/core/leases/%ff", None), ("/core/leases/%4", None)]
        {
            assert_eq!(key_of(path, query), None, "{path}");
        }
    }
}
