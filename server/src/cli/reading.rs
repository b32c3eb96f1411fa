//! What anybody may look at: `get`, `list`, `history`, `export`.

use app::api::leases::{GetRequest, HistoryRequest, Key, Lease, ListRequest, Sort, Status};
use app::api::page::Page;
use app::api::values::{PageSize, Prefix};
use domain::lease::KeyStatus;
use domain::{JobKey, LeaseKey, Owner, Subject};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde::de::value::{Error as Unreadable, StrDeserializer};

use super::client::Client;
use super::exit::Problem;
use super::holder::{Common, job_key, key, lease_facts, owner, subject};
use super::output;

/// Show a key: its state, and its current or last lease
#[derive(Debug, clap::Args)]
pub struct Get {
    /// The key
    #[arg(env = "JOB_LEASES_KEY", value_parser = key)]
    key: LeaseKey,
    #[command(flatten)]
    common: Common,
}

/// List leases: the latest of each key, unless filters say otherwise
#[derive(Debug, clap::Args)]
pub struct List {
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    common: Common,
}

/// Show every grant of a key, newest first
#[derive(Debug, clap::Args)]
pub struct History {
    /// The key
    #[arg(env = "JOB_LEASES_KEY", value_parser = key)]
    key: LeaseKey,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    common: Common,
}

/// Which leases.
#[derive(Debug, clap::Args)]
pub struct Filter {
    /// Keys that begin so
    #[arg(long, short, env = "JOB_LEASES_FILTER_PREFIX", value_parser = prefix)]
    prefix: Option<Prefix>,
    /// Of this owner
    #[arg(long, short, env = "JOB_LEASES_FILTER_OWNER", value_parser = owner)]
    owner: Option<Owner>,
    /// For this job
    #[arg(long, env = "JOB_LEASES_FILTER_JOB", value_name = "JOB_KEY", value_parser = job_key)]
    job: Option<JobKey>,
    /// That concern this
    #[arg(long, env = "JOB_LEASES_FILTER_SUBJECT", value_name = "KIND:ID", value_parser = subject)]
    subject: Option<Subject>,
    /// In this state: held, breaking, released, expired, broken, transferred or undelivered
    #[arg(long, env = "JOB_LEASES_FILTER_STATUS", value_parser = word::<Status>)]
    status: Option<Status>,
    /// By lease_key, acquired_at, expires_at or updated_at; with a minus in front, backwards
    #[arg(long, env = "JOB_LEASES_SORT", allow_hyphen_values = true, value_parser = word::<Sort>)]
    sort: Option<Sort>,
}

/// How many.
#[derive(Debug, clap::Args)]
struct Paging {
    /// How many at most, 1 to 500
    #[arg(long, env = "JOB_LEASES_LIMIT", value_parser = page_size, default_value = "100")]
    limit: PageSize,
    /// Go on where a list ended
    #[arg(long, env = "JOB_LEASES_CURSOR")]
    cursor: Option<String>,
    /// All of them, page by page
    #[arg(long, env = "JOB_LEASES_ALL", conflicts_with = "cursor")]
    all: bool,
}

/// Write everything as JSON lines
#[derive(Debug, clap::Subcommand)]
pub enum Export {
    /// The leases that `list` would list
    Leases {
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        connection: super::connection::Connection,
    },
    /// Every grant of a key, newest first
    History {
        /// The key
        #[arg(env = "JOB_LEASES_KEY", value_parser = key)]
        key: LeaseKey,
        #[command(flatten)]
        connection: super::connection::Connection,
    },
}

pub(super) fn prefix(text: &str) -> Result<Prefix, String> {
    Prefix::parse(text).map_err(|error| error.to_string())
}

fn page_size(text: &str) -> Result<PageSize, String> {
    text.parse().ok().and_then(PageSize::new).ok_or_else(|| "must lie between 1 and 500".to_owned())
}

/// Reads a word that the API knows.
pub(super) fn word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    T::deserialize(StrDeserializer::<Unreadable>::new(text)).map_err(|error| error.to_string())
}

impl Get {
    pub(super) async fn run(self) -> Result<(), Problem> {
        let answer: Key =
            self.common.connection.client()?.ask("leases/get", &GetRequest { lease_key: self.key }).await?;
        print_key(&self.common, &answer)
    }
}

impl List {
    pub(super) async fn run(self) -> Result<(), Problem> {
        let request = self.filter.request(Some(self.paging.limit), self.paging.cursor.clone());
        let client = self.common.connection.client()?;
        show(&self.common, &self.paging, &client, "leases/list", request, |request, cursor| request.cursor = cursor)
            .await
    }
}

impl History {
    pub(super) async fn run(self) -> Result<(), Problem> {
        let request =
            HistoryRequest { lease_key: self.key, limit: Some(self.paging.limit), cursor: self.paging.cursor.clone() };
        let client = self.common.connection.client()?;
        show(&self.common, &self.paging, &client, "leases/history", request, |request, cursor| request.cursor = cursor)
            .await
    }
}

impl Export {
    pub(super) async fn run(self) -> Result<(), Problem> {
        let most = PageSize::new(PageSize::MAX);
        match self {
            Self::Leases { filter, connection } => {
                let request = filter.request(most, None);
                let set = |request: &mut ListRequest, cursor| request.cursor = cursor;
                lines(&connection.client()?, "leases/list", request, set).await
            }
            Self::History { key, connection } => {
                let request = HistoryRequest { lease_key: key, limit: most, cursor: None };
                let set = |request: &mut HistoryRequest, cursor| request.cursor = cursor;
                lines(&connection.client()?, "leases/history", request, set).await
            }
        }
    }
}

impl Filter {
    fn request(self, limit: Option<PageSize>, cursor: Option<String>) -> ListRequest {
        ListRequest {
            prefix: self.prefix,
            owner: self.owner,
            job_key: self.job,
            subject: self.subject,
            status: self.status,
            sort: self.sort,
            limit,
            cursor,
            count: None,
        }
    }
}

/// Prints one page, or all of them. As JSON each page is a line.
async fn show<R: Serialize>(
    common: &Common,
    paging: &Paging,
    client: &Client,
    operation: &str,
    mut request: R,
    set_cursor: impl Fn(&mut R, Option<String>),
) -> Result<(), Problem> {
    let mut leases = Vec::new();
    let more = loop {
        let page: Page<Lease> = client.ask(operation, &request).await?;
        if common.json {
            common.print_json(&page)?;
        }
        leases.extend(page.items);
        match page.next {
            Some(next) if paging.all => set_cursor(&mut request, Some(next)),
            more => break more,
        }
        if common.json {
            leases.clear();
        }
    };
    if common.json {
        return Ok(());
    }
    print_leases(&leases)?;
    if let Some(cursor) = more {
        // Not part of the table, which may be piped somewhere.
        super::say::say(format_args!("there are more: --cursor {cursor}, or --all"));
    }
    Ok(())
}

/// Writes every lease of every page as a line.
async fn lines<R: Serialize>(
    client: &Client,
    operation: &str,
    mut request: R,
    set_cursor: impl Fn(&mut R, Option<String>),
) -> Result<(), Problem> {
    loop {
        let page: Page<serde_json::Value> = client.ask(operation, &request).await?;
        for item in &page.items {
            output::json(item)?;
        }
        if page.next.is_none() {
            return Ok(());
        }
        set_cursor(&mut request, page.next);
    }
}

fn print_leases(leases: &[Lease]) -> Result<(), Problem> {
    let rows: Vec<Vec<String>> = leases
        .iter()
        .map(|lease| {
            let left = if lease.status.is_alive() { output::span(lease.ttl_remaining_ms) } else { "-".to_owned() };
            vec![
                lease.lease_key.to_string(),
                lease.status.as_str().to_owned(),
                lease.owner.to_string(),
                left,
                lease.acquired_at.to_string(),
                lease.lease_id.to_string(),
            ]
        })
        .collect();
    Ok(output::table(&["KEY", "STATUS", "OWNER", "LEFT", "ACQUIRED AT", "LEASE ID"], &rows)?)
}

/// Prints a key, as the person or the script wants it.
pub(super) fn print_key(common: &Common, key: &Key) -> Result<(), Problem> {
    if common.json {
        return common.print_json(key);
    }
    let mut facts = vec![
        ("key", key.lease_key.to_string()),
        ("state", key.status.as_str().to_owned()),
        ("waiting", key.queue_length.to_string()),
    ];
    if let Some(until) = key.cooling_until.filter(|_| key.status == KeyStatus::Cooling) {
        facts.push(("cooling until", until.to_string()));
    }
    if let Some(quarantine) = &key.quarantine {
        facts.push(("quarantined since", quarantine.since.to_string()));
        facts.push(("quarantined by", quarantine.by.name.to_string()));
        facts.push(("reason", quarantine.reason.to_string()));
    }
    if let Some(lease) = &key.lease {
        let mut of_lease = lease_facts(lease);
        // The key stands above already.
        of_lease.remove(0);
        if let Some(status) = of_lease.first_mut() {
            status.0 = if lease.status.is_alive() { "lease" } else { "last lease" };
        }
        facts.extend(of_lease);
    }
    Ok(output::facts(&facts)?)
}
