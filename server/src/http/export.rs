//! `/core/export/leases.csv` and `.json`: all leases that a filter of the console finds, as a file.
//!
//! It is read and sent page by page: a million leases need no more memory than two pages, here or in the database. By key, or those that
//! ended by when they were granted, whatever the order of the list: neither ever changes, so that none is left out or told twice while
//! others change, and an index leads to each page. Each line is as of when it was read.

use std::borrow::Cow;
use std::sync::Arc;

use app::api::ApiError;
use app::api::exchange::Exchange;
use app::api::leases::{Lease, ListRequest, Sort, Status};
use app::api::page::Page;
use app::api::values::PageSize;
use app::ui::pages::filter::{EXPORT, Filter, QUERY};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Path, Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use futures::stream;
use http::header;
use tower_http::compression::CompressionLayer;

use super::request::Passed;
use super::{Http, problem};

/// How many are read at once.
const PAGE: Option<PageSize> = PageSize::new(PageSize::MAX);

/// The columns of a table, in their order.
const COLUMNS: [&str; 11] = [
    "lease_key",
    "job_key",
    "owner",
    "status",
    "fencing_token",
    "acquired_at",
    "expires_at",
    "updated_at",
    "renewals",
    "subjects",
    "metadata",
];

/// Routes to it.
pub(super) fn routes(http: Arc<Http>) -> Router {
    Router::new().route(&format!("{EXPORT}.{{format}}"), get(export)).layer(CompressionLayer::new()).with_state(http)
}

/// How it is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    /// A table, for spreadsheets.
    Csv,
    /// A list of leases as the API tells of them.
    Json,
}

async fn export(
    State(http): State<Arc<Http>>,
    Extension(passed): Extension<Passed>,
    Path(format): Path<String>,
    request: Request,
) -> Response {
    let Passed { id, caller, secret } = passed;
    if caller.is_none() {
        let is_browser = problem::wants_page(request.headers());
        return if is_browser { Redirect::to("/sign-in").into_response() } else { problem::unauthenticated(&request) };
    }
    let format = match &*format {
        "csv" => Format::Csv,
        "json" => Format::Json,
        _ => return problem::not_found(request).await,
    };
    let query = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
    let typed = query.into_iter().find(|(name, _)| name == QUERY).map(|(_, typed)| typed).unwrap_or_default();
    let refused = |error: ApiError| error.into_response(Some(Box::from(&*id.0)));
    let asked = Filter::parse(&typed, None).and_then(|filter| filter.request(None));
    let request = match asked {
        Ok(request) => {
            // A list of those that ended is one of grants, which are in the order of their tokens.
            let by_key = request.status.is_none_or(Status::is_alive);
            let sort = Some(if by_key { Sort::LeaseKey } else { Sort::AcquiredAt });
            ListRequest { sort, limit: PAGE, count: None, ..request }
        }
        Err(wrong) => return refused(ApiError::invalid(QUERY, wrong)),
    };
    let Ok(place) = Arc::clone(&http.limits.exports).try_acquire_owned() else {
        return refused(ApiError::new("overloaded", "too many files are being sent").retry_after_ms(5_000));
    };
    let exchange = Exchange::new(Arc::clone(&http.backends), caller, id.clone(), None, "");
    // Whatever is wrong with all of it shows before anything is sent.
    let first = match exchange.backends().leases.list(&exchange, request.clone()).await {
        Ok(page) => page,
        Err(error) => return refused(error),
    };
    let name = format!("attachment; filename=\"leases-{}.{}\"", day(&first), format.extension());
    let headers = [
        (header::CONTENT_TYPE, format.media_type().to_owned()),
        (header::CONTENT_DISPOSITION, name),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    let pages = stream::try_unfold(Some((first, true, place)), move |page| {
        let (exchange, request, http, secret) = (exchange.clone(), request.clone(), Arc::clone(&http), secret.clone());
        async move {
            let Some((page, is_first, place)) = page else { return Ok(None) };
            if !http.still_knows(secret.as_deref()) {
                return Err(ApiError::unauthenticated());
            }
            let piece = format.write(&page, is_first)?;
            let next = match page.next {
                None => None,
                // What fails now breaks the answer off, so that nobody takes a part for the whole.
                cursor => {
                    let request = ListRequest { cursor, ..request };
                    Some((exchange.backends().leases.list(&exchange, request).await?, false, place))
                }
            };
            Ok::<_, ApiError>(Some((Bytes::from(piece), next)))
        }
    });
    (headers, Body::from_stream(pages)).into_response()
}

/// The day on which it was read.
fn day(page: &Page<Lease>) -> String {
    page.server_time.to_string().chars().take_while(|letter| *letter != 'T').collect()
}

impl Format {
    const fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Json => "json",
        }
    }

    const fn media_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv; charset=utf-8; header=present",
            Self::Json => "application/json",
        }
    }

    /// A page, with what comes before the first and after the last.
    fn write(self, page: &Page<Lease>, is_first: bool) -> Result<Vec<u8>, ApiError> {
        match self {
            Self::Csv => {
                let head = is_first.then(|| COLUMNS.map(Cow::Borrowed).to_vec());
                table(head.into_iter().chain(page.items.iter().map(cells))).map_err(unwritten)
            }
            Self::Json => {
                let mut text = Vec::new();
                if is_first {
                    text.push(b'[');
                }
                for (place, lease) in page.items.iter().enumerate() {
                    text.extend_from_slice(if is_first && place == 0 { b"\n" } else { b",\n" });
                    serde_json::to_writer(&mut text, lease).map_err(unwritten)?;
                }
                if page.next.is_none() {
                    text.extend_from_slice(b"\n]\n");
                }
                Ok(text)
            }
        }
    }
}

/// It cannot be: what is written is texts, and where to has room.
fn unwritten(error: impl std::fmt::Display) -> ApiError {
    tracing::error!(%error, "leases cannot be written to a file");
    ApiError::internal()
}

fn cells(lease: &Lease) -> Vec<Cow<'_, str>> {
    let subjects: Vec<&str> = lease.subjects.iter().map(|subject| subject.as_str()).collect();
    vec![
        lease.lease_key.as_str().into(),
        lease.job_key.as_ref().map_or("", |job| job.as_str()).into(),
        lease.owner.as_str().into(),
        lease.status.as_str().into(),
        lease.fencing_token.to_string().into(),
        lease.acquired_at.to_string().into(),
        lease.expires_at.to_string().into(),
        lease.updated_at.to_string().into(),
        lease.renewals.to_string().into(),
        subjects.join(" ").into(),
        serde_json::to_string(&lease.metadata).unwrap_or_default().into(),
    ]
}

/// Spreadsheets take what begins like a formula for one, whoever wrote it: an apostrophe before it keeps it a text. Some of them part cells
/// at semicolons, too.
fn plain(cell: &str) -> Cow<'_, str> {
    let mut begins = true;
    let mut guarded = String::new();
    for (at, letter) in cell.char_indices() {
        if begins && matches!(letter, '=' | '+' | '-' | '@' | '\t' | '\r' | '\n') {
            if guarded.is_empty() {
                guarded.push_str(&cell[..at]);
            }
            guarded.push('\'');
            guarded.push(letter);
            begins = false;
            continue;
        }
        begins = letter == ';' || (begins && letter == ' ');
        if !guarded.is_empty() {
            guarded.push(letter);
        }
    }
    if guarded.is_empty() { Cow::Borrowed(cell) } else { Cow::Owned(guarded) }
}

/// Lines of RFC 4180.
fn table<'l>(lines: impl Iterator<Item = Vec<Cow<'l, str>>>) -> Result<Vec<u8>, csv::Error> {
    let mut table = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(Vec::new());
    for line in lines {
        table.write_record(line.iter().map(|cell| plain(cell).into_owned()))?;
    }
    table.into_inner().map_err(|error| error.into_error().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_like_a_formula_stays_a_text_and_quotes_are_doubled() {
        let cells =
            ["a", "", "=1+1", "-2", "x,y", "say \"so\"", "@SUM(A1)", "\tx", "a=b", "w; =1;b"].map(Cow::Borrowed);
        let written = table(std::iter::once(cells.to_vec())).unwrap();
        let expected = "a,,'=1+1,'-2,\"x,y\",\"say \"\"so\"\"\",'@SUM(A1),'\tx,a=b,w; '=1;b\r\n";
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }
}
