//! The statements of lists: any filter, any order, and a way to go about it that looks at few rows.
//!
//! PostgreSQL would choose by its statistics, which do not know what filters have in common; and where there is a limit it hopes
//! that rows which answer are found soon, and so looks at every row there is if the few of them are at the end of the order. So
//! the way is chosen here, as on SQLite: if few rows answer to one of the filters, those are looked at and sorted; if many
//! answer to each, rows are walked in the order asked for until enough are found, which then is soon.
//!
//! What keeps PostgreSQL to it: a subquery with `OFFSET 0` or an order is carried out by itself, and a lateral one once for each
//! row before it; and where sorting is forbidden (see `reading::SETTINGS`) what is to come in order is walked in order.

use domain::Timestamp;
use domain::lease::{LeaseStatus, Outcome};
use sqlx::postgres::{PgConnection, Postgres};
use sqlx::{QueryBuilder, Row as _};

use super::rows::{self, grant_columns};
use crate::error::StoreError;
use crate::reading::{Cursor, ListQuery, MOST_COUNTED, SortField};
use crate::store::prefixes::{after_prefix, outermost};

/// So many rows can be looked at and sorted for one page. More than on SQLite, since a row that is walked past costs more here.
const FEW: i64 = 6_000;

/// A key that was never leased has no grant.
const LEASED_KEYS: &str = "SELECT * FROM job_leases_views.keys WHERE token IS NOT NULL";

/// Where the walk begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// With the order: rows come as they are asked for, and those that do not answer are passed over.
    Order,
    /// With what concerns the subject.
    Subject,
    /// With the owner's grants.
    Owner,
    /// With the job's.
    Job,
    /// With the keys that begin so, or their grants.
    Prefix,
    /// With what is held.
    Live,
    /// With the grants that are in this state, if it is a rare one.
    Rare,
}

impl Way {
    /// Chooses by how many rows answer to each filter.
    pub(super) async fn choose(db: &mut PgConnection, query: &ListQuery, now: Timestamp) -> Result<Self, StoreError> {
        let open: Vec<Self> = Self::open(query).collect();
        if open.is_empty() {
            return Ok(Self::Order);
        }
        let row = Self::counts(&open, query, now).build().persistent(false).fetch_one(db).await?;
        // Of few keys all can be looked at.
        let few = if query.current_only { row.try_get::<i64, _>(0)?.min(FEW) } else { FEW };
        let mut best = (None, few);
        for (index, way) in open.iter().enumerate() {
            let count: i64 = row.try_get(index + 1)?;
            if count < best.1 {
                best = (Some(*way), count);
            }
        }
        let by_grant = query.sort.field == SortField::AcquiredAt;
        Ok(match best.0 {
            // Their rows come in that order by themselves.
            None if by_grant && few == FEW => open.into_iter().find(|way| way.is_in_order_of_grant()),
            way => way,
        }
        .unwrap_or(Self::Order))
    }

    /// Those that the query's filters open.
    fn open(query: &ListQuery) -> impl Iterator<Item = Self> {
        [
            (Self::Subject, query.subject.is_some()),
            (Self::Owner, query.owner.is_some()),
            (Self::Job, query.job_key.is_some()),
            (Self::Prefix, prefixes(query).is_some()),
            (Self::Live, query.current_only && wants_alive(query)),
            (Self::Rare, query.status.is_some_and(rows::is_rare)),
        ]
        .into_iter()
        .filter_map(|(way, is_open)| is_open.then_some(way))
    }

    /// Whether its rows come the oldest or the newest first, if asked to.
    const fn is_in_order_of_grant(self) -> bool {
        matches!(self, Self::Subject | Self::Owner | Self::Job | Self::Rare)
    }

    /// How many keys there are; then how many rows each of these ways, if fewer than few. One statement for all of them, since
    /// each by itself would go to the database and back.
    fn counts(ways: &[Self], query: &ListQuery, now: Timestamp) -> QueryBuilder<Postgres> {
        let keys = "-- list: counts\nSELECT (SELECT value FROM job_leases_views.counters WHERE name = 'keys')";
        let mut sql = QueryBuilder::new(keys);
        for way in ways {
            sql.push(", (SELECT count(*) FROM (");
            way.candidates(&mut sql, query, now, None);
            sql.push(" LIMIT ").push_bind(FEW).push(") AS few)");
        }
        sql
    }

    /// What the first rows are called: keys, grants, or just tokens of grants.
    const fn leader(self, query: &ListQuery) -> &'static str {
        match self {
            Self::Order | Self::Prefix | Self::Live if query.current_only => "k",
            Self::Order => "g",
            Self::Subject | Self::Owner | Self::Job | Self::Prefix | Self::Live | Self::Rare => "c",
        }
    }

    /// The first rows of the walk. Where their filter was not given there are none. If they are to come in the order of grants,
    /// `by_grant` tells whether the newest first.
    fn candidates(self, sql: &mut QueryBuilder<Postgres>, query: &ListQuery, now: Timestamp, by_grant: Option<bool>) {
        match self {
            Self::Order => in_order(sql, query),
            Self::Subject => named(sql, "subjects", "subject", self.name(query), by_grant),
            Self::Owner => named(sql, "grants", "owner", self.name(query), by_grant),
            Self::Job => named(sql, "grants", "job_key", self.name(query), by_grant),
            Self::Prefix if query.current_only => {
                sql.push("SELECT * FROM job_leases_views.keys WHERE ");
                within(sql, "lease_key", &prefixes(query).unwrap_or_default());
            }
            Self::Prefix => {
                // Each grant of a key leads to the one before. If there are more keys than few, nobody goes this way.
                sql.push("WITH RECURSIVE chain (token) AS ((SELECT token FROM job_leases_views.keys WHERE ");
                within(sql, "lease_key", &prefixes(query).unwrap_or_default());
                sql.push(" LIMIT ").push_bind(FEW);
                sql.push(
                    ") UNION ALL SELECT o.previous FROM chain CROSS JOIN LATERAL (SELECT previous FROM job_leases_views.grants \
                     WHERE token = chain.token OFFSET 0) AS o WHERE o.previous IS NOT NULL) SELECT token FROM chain",
                );
            }
            Self::Live => {
                sql.push("SELECT * FROM job_leases_views.keys WHERE live AND expires_at > ").push_bind(now.as_micros());
            }
            Self::Rare => rare(sql, query, now, by_grant),
        }
    }

    /// The name that all of the first rows have.
    fn name(self, query: &ListQuery) -> Option<&str> {
        match self {
            Self::Subject => query.subject.as_ref().map(|subject| subject.as_str()),
            Self::Owner => query.owner.as_ref().map(|owner| owner.as_str()),
            Self::Job => query.job_key.as_ref().map(|job_key| job_key.as_str()),
            Self::Order | Self::Prefix | Self::Live | Self::Rare => None,
        }
    }
}

/// The statement for one page.
pub(super) fn sql(query: &ListQuery, way: Way, now: Timestamp) -> QueryBuilder<Postgres> {
    let mut sql = QueryBuilder::new(concat!("-- list\nSELECT g.lease_key, ", grant_columns!(), " FROM "));
    let by_grant = query.sort.field == SortField::AcquiredAt;
    rows(&mut sql, query, way, now, by_grant.then_some(query.sort.descending));
    page(&mut sql, query, way);
    sql.push(" LIMIT ").push_bind(i64::from(query.limit) + 1);
    sql
}

/// The statement that counts all pages' rows, up to one more than are counted.
pub(super) fn count(query: &ListQuery, way: Way, now: Timestamp) -> QueryBuilder<Postgres> {
    let mut sql = QueryBuilder::new("-- list: count all\nSELECT count(*) FROM (SELECT 1 FROM ");
    // The last grants of keys are found soon among the newest, late among the oldest.
    rows(&mut sql, query, way, now, Some(true));
    sql.push(" LIMIT ").push_bind(i64::from(MOST_COUNTED) + 1).push(") AS counted");
    sql
}

/// The tables, each row leading to those of the next, and what rows must answer to.
fn rows(sql: &mut QueryBuilder<Postgres>, query: &ListQuery, way: Way, now: Timestamp, by_grant: Option<bool>) {
    let leader = way.leader(query);
    sql.push("(");
    way.candidates(sql, query, now, by_grant);
    if way != Way::Order && (by_grant.is_none() || !way.is_in_order_of_grant()) {
        sql.push(" OFFSET 0");
    }
    sql.push(") AS ").push(leader);
    if query.current_only && leader != "k" {
        sql.push(" CROSS JOIN LATERAL (SELECT * FROM job_leases_views.keys WHERE token = c.token OFFSET 0) AS k");
    }
    if leader != "g" {
        sql.push(" CROSS JOIN LATERAL (SELECT * FROM job_leases_views.grants WHERE token = ").push(leader);
        sql.push(".token OFFSET 0) AS g");
    }
    sql.push(" WHERE true");
    if query.current_only && wants_alive(query) {
        // The same as is asked of the grant below, known before it is looked up.
        sql.push(" AND k.live AND k.expires_at > ").push_bind(now.as_micros());
    }
    if let Some(subject) = query.subject.as_ref().filter(|_| way != Way::Subject) {
        sql.push(" AND EXISTS (SELECT 1 FROM job_leases_views.subjects AS s WHERE s.subject = ");
        sql.push_bind(subject.as_str().to_owned()).push(" AND s.token = g.token OFFSET 0)");
    }
    let by_name = query.current_only && query.sort.field == SortField::LeaseKey;
    let is_below = way == Way::Prefix || (way == Way::Order && by_name);
    if let Some(prefixes) = prefixes(query).filter(|_| !is_below) {
        sql.push(" AND ");
        within(sql, if query.current_only { "k.lease_key" } else { "g.lease_key" }, &prefixes);
    }
    if let Some(owner) = query.owner.as_ref().filter(|_| way != Way::Owner) {
        sql.push(" AND g.owner = ").push_bind(owner.as_str().to_owned());
    }
    if let Some(job_key) = query.job_key.as_ref().filter(|_| way != Way::Job) {
        sql.push(" AND g.job_key = ").push_bind(job_key.as_str().to_owned());
    }
    if let Some(status) = query.status {
        with_status(sql, status, now);
    }
}

/// What the page begins after, and the order.
fn page(sql: &mut QueryBuilder<Postgres>, query: &ListQuery, way: Way) {
    let by_grant = query.sort.field == SortField::AcquiredAt;
    let rows = match (by_grant, query.current_only) {
        // The same number, of the rows that come first.
        (true, _) => way.leader(query),
        (false, true) => "k",
        (false, false) => "g",
    };
    let columns: &[&str] = match columns(query) {
        _ if by_grant && way.name(query).is_some() => &["name", "token"],
        columns => columns,
    };
    if let Some(cursor) = &query.cursor {
        sql.push(" AND (");
        let mut places = sql.separated(", ");
        for column in columns {
            places.push(format_args!("{rows}.{column}"));
        }
        sql.push(if query.sort.descending { ") < (" } else { ") > (" });
        let mut values = sql.separated(", ");
        for column in columns {
            match *column {
                "name" => values.push_bind(way.name(query).map(str::to_owned)),
                "lease_key" => values.push_bind(known(cursor)),
                "token" => values.push_bind(cursor.token),
                _ => values.push_bind(cursor.value),
            };
        }
        sql.push(")");
    }
    order(sql, rows, columns, query.sort.descending);
}

/// The name at which a page ended. PostgreSQL's texts hold no NUL, nor do names: only a cursor that was made up has one.
fn known(cursor: &Cursor) -> String {
    cursor.lease_key.replace('\0', "")
}

/// The columns by which a list is in order. A key has one last grant; otherwise the token decides between what is equal.
const fn columns(query: &ListQuery) -> &'static [&'static str] {
    match query.sort.field {
        SortField::LeaseKey if query.current_only => &["lease_key"],
        SortField::LeaseKey => &["lease_key", "token"],
        SortField::AcquiredAt => &["token"],
        SortField::ExpiresAt => &["expires_at", "token"],
        SortField::UpdatedAt => &["updated_at", "token"],
    }
}

fn order(sql: &mut QueryBuilder<Postgres>, rows: &str, columns: &[&str], descending: bool) {
    let (dot, down) = (if rows.is_empty() { "" } else { "." }, if descending { " DESC" } else { "" });
    sql.push(" ORDER BY ");
    let mut terms = sql.separated(", ");
    for column in columns {
        terms.push(format_args!("{rows}{dot}{column}{down}"));
    }
}

/// All that there is, as far as possible in the order asked for. What has that order only in pieces is made of these: the keys
/// that begin with one of several prefixes; those that are live, and those that are over.
fn in_order(sql: &mut QueryBuilder<Postgres>, query: &ListQuery) {
    if !query.current_only {
        sql.push("SELECT * FROM job_leases_views.grants");
        return;
    }
    match (query.sort.field, prefixes(query)) {
        (SortField::LeaseKey, Some(prefixes)) if prefixes.is_empty() => {
            sql.push(LEASED_KEYS).push(" AND false");
        }
        (SortField::LeaseKey, Some(prefixes)) => {
            for (number, prefix) in prefixes.into_iter().enumerate() {
                piece(sql, query, number, |sql| within(sql, "lease_key", &[prefix]));
            }
        }
        (SortField::ExpiresAt, _) if !wants_alive(query) => {
            for (number, condition) in ["live", "NOT live"].into_iter().enumerate() {
                piece(sql, query, number, |sql| {
                    sql.push(condition);
                });
            }
        }
        _ => {
            sql.push(LEASED_KEYS);
        }
    }
}

/// One of several pieces that are each in order, so that they can be merged.
fn piece(
    sql: &mut QueryBuilder<Postgres>,
    query: &ListQuery,
    number: usize,
    condition: impl FnOnce(&mut QueryBuilder<Postgres>),
) {
    sql.push(if number > 0 { " UNION ALL (" } else { "(" }).push(LEASED_KEYS).push(" AND ");
    condition(sql);
    order(sql, "", columns(query), query.sort.descending);
    sql.push(")");
}

/// The tokens that belong to a name. It is asked for as a range, so that only the index by name and token is in the order of both:
/// if it were equal to something, their order would be that of the tokens alone, and all grants there are might be walked in it.
fn named(
    sql: &mut QueryBuilder<Postgres>,
    table: &'static str,
    column: &'static str,
    name: Option<&str>,
    by_grant: Option<bool>,
) {
    sql.push("SELECT ").push(column).push(" AS name, token FROM job_leases_views.").push(table);
    sql.push(" WHERE ").push(column).push(" BETWEEN ").push_bind(name.map(str::to_owned));
    sql.push(" AND ").push_bind(name.map(str::to_owned));
    if let Some(descending) = by_grant {
        order(sql, "", &["name", "token"], descending);
    }
}

/// The tokens of grants in a rare state.
fn rare(sql: &mut QueryBuilder<Postgres>, query: &ListQuery, now: Timestamp, by_grant: Option<bool>) {
    let end = |sql: &mut QueryBuilder<Postgres>| {
        if let Some(descending) = by_grant {
            order(sql, "", &["token"], descending);
        }
        sql.push(")");
    };
    sql.push("(SELECT token FROM job_leases_views.rare_states WHERE status = ");
    sql.push_bind(query.status.map(LeaseStatus::as_str));
    end(sql);
    if !wants_alive(query) {
        // An end that nobody has recorded yet is not noted there.
        sql.push(
            " UNION ALL (SELECT token FROM (SELECT token FROM job_leases_views.keys WHERE live AND expires_at <= ",
        );
        sql.push_bind(now.as_micros()).push(" OFFSET 0) AS due");
        end(sql);
    }
}

/// Whether only leases whose holder may work are wanted.
const fn wants_alive(query: &ListQuery) -> bool {
    matches!(query.status, Some(LeaseStatus::Held | LeaseStatus::Breaking))
}

/// What keys must begin with: one of these, none of which is below another; nothing, if there are none. None if any will do.
fn prefixes<'q>(query: &'q ListQuery) -> Option<Vec<&'q str>> {
    let asked = query.prefix.as_deref();
    if query.allowed_prefixes.is_empty() {
        return asked.map(|asked| vec![asked]);
    }
    let narrower = |allowed: &'q str| match asked {
        Some(asked) if asked.starts_with(allowed) => Some(asked),
        Some(asked) => allowed.starts_with(asked).then_some(allowed),
        None => Some(allowed),
    };
    Some(outermost(&query.allowed_prefixes).filter_map(narrower).collect())
}

fn within(sql: &mut QueryBuilder<Postgres>, key: &'static str, prefixes: &[&str]) {
    sql.push("(false");
    for prefix in prefixes {
        sql.push(" OR ").push(key).push(" >= ").push_bind((*prefix).to_owned());
        sql.push(" AND ").push(key).push(" < ").push_bind(after_prefix(prefix));
    }
    sql.push(")");
}

/// The same rule as `Lease::status`: what is over is over, whether its end is recorded or not.
fn with_status(sql: &mut QueryBuilder<Postgres>, status: LeaseStatus, now: Timestamp) {
    let now = now.as_micros();
    match status {
        LeaseStatus::Held => {
            sql.push(" AND g.outcome IS NULL AND g.breaking IS NULL AND g.expires_at > ").push_bind(now);
        }
        LeaseStatus::Breaking => {
            sql.push(" AND g.outcome IS NULL AND g.breaking IS NOT NULL AND g.expires_at > ").push_bind(now);
        }
        LeaseStatus::Ended(outcome) => {
            sql.push(" AND (g.outcome = ").push_bind(outcome.as_str());
            let unrecorded = match outcome {
                Outcome::Expired => " OR g.outcome IS NULL AND coalesce(g.break_ends_at > g.expires_at, true)",
                Outcome::Broken => " OR g.outcome IS NULL AND g.break_ends_at <= g.expires_at",
                _ => "",
            };
            if !unrecorded.is_empty() {
                sql.push(unrecorded).push(" AND g.expires_at <= ").push_bind(now);
            }
            sql.push(")");
        }
    }
}

/// The statements of lists, by every way, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<String> {
    let mut all = std::collections::BTreeSet::new();
    for query in tests::examples() {
        let open: Vec<Way> = Way::open(&query).collect();
        all.insert(Way::counts(&open, &query, Timestamp::EPOCH).into_string());
        for way in open.into_iter().chain([Way::Order]) {
            all.insert(sql(&query, way, Timestamp::EPOCH).into_string());
            all.insert(count(&query, way, Timestamp::EPOCH).into_string());
        }
    }
    all.into_iter().collect()
}

#[cfg(test)]
mod tests;
