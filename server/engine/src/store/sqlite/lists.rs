//! The statements of lists: any filter, any order, and a way to go about it that looks at few rows.
//!
//! SQLite would choose by statistics that it does not have. So the way is chosen here: if few rows answer to one of the
//! filters, those are looked at and sorted; if many answer to each, rows are walked in the order asked for until enough are
//! found, which then is soon.

use domain::Timestamp;
use domain::lease::{LeaseStatus, Outcome};
use sqlx::QueryBuilder;
use sqlx::sqlite::{Sqlite, SqliteConnection};

use super::rows::grant_columns;
use crate::error::StoreError;
use crate::reading::{ListQuery, MOST_COUNTED, SortField};
use crate::store::prefixes::after_prefix;

const COUNT_KEYS: &str = "-- list: count keys\nSELECT value FROM counters WHERE name = 'keys'";

/// So many rows can be looked at and sorted for one page.
const FEW: i64 = 4_000;

/// Where the walk begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// With the order: rows come as they are asked for, and those that do not answer are passed over.
    Order,
    /// With what concerns the subject.
    Subject,
    /// With the owner's grants, the oldest or the newest first.
    Owner,
    /// With the job's.
    Job,
    /// With the keys that begin so.
    Prefix,
    /// With what is held, the next to expire first.
    Live,
    /// With the grants that ended so, if that is a rare end.
    End,
}

impl Way {
    /// Chooses by how many rows answer to each filter.
    pub(super) async fn choose(db: &mut SqliteConnection, query: &ListQuery) -> Result<Self, StoreError> {
        // Of few keys all can be looked at.
        let few = match query.current_only {
            true => sqlx::query_scalar::<_, i64>(COUNT_KEYS).fetch_one(&mut *db).await?.min(FEW),
            false => FEW,
        };
        let mut best = (None, few);
        for way in Self::open(query) {
            let (_, least) = best;
            let count: i64 = way.count(query, least).build_query_scalar().fetch_one(&mut *db).await?;
            if count < least {
                best = (Some(way), count);
            }
        }
        let by_grant = query.sort.field == SortField::AcquiredAt;
        Ok(match best.0 {
            // Their rows come in that order by themselves.
            None if by_grant && few == FEW => {
                Self::open(query).find(|way| matches!(way, Self::Subject | Self::Owner | Self::Job))
            }
            way => way,
        }
        .unwrap_or(Self::Order))
    }

    /// Those that the query's filters open.
    fn open(query: &ListQuery) -> impl Iterator<Item = Self> {
        let alive = matches!(query.status, Some(LeaseStatus::Held | LeaseStatus::Breaking));
        let rare = matches!(query.status, Some(LeaseStatus::Ended(outcome)) if outcome != Outcome::Released);
        [
            (Self::Subject, query.subject.is_some()),
            (Self::Owner, query.owner.is_some()),
            (Self::Job, query.job_key.is_some()),
            (Self::Prefix, query.current_only && (query.prefix.is_some() || !query.allowed_prefixes.is_empty())),
            (Self::Live, query.current_only && alive),
            (Self::End, !query.current_only && rare),
        ]
        .into_iter()
        .filter_map(|(way, is_open)| is_open.then_some(way))
    }

    /// How many rows there are this way, if fewer than `most`.
    fn count(self, query: &ListQuery, most: i64) -> QueryBuilder<Sqlite> {
        let mut sql = QueryBuilder::new("-- list: count\nSELECT count(*) FROM (SELECT 1 FROM ");
        // Each is there where its way is open.
        match self {
            Self::Order => sql.push("progress"),
            Self::Subject => {
                let subject = query.subject.as_ref().map(|subject| subject.as_str().to_owned());
                sql.push("subjects WHERE subject = ").push_bind(subject)
            }
            Self::Owner => {
                let owner = query.owner.as_ref().map(|owner| owner.as_str().to_owned());
                sql.push("grants INDEXED BY grants_by_owner WHERE owner = ").push_bind(owner)
            }
            Self::Job => {
                let job_key = query.job_key.as_ref().map(|job_key| job_key.as_str().to_owned());
                sql.push("grants INDEXED BY grants_by_job WHERE job_key = ").push_bind(job_key)
            }
            Self::Prefix => {
                sql.push("keys AS k WHERE true");
                prefixes(&mut sql, query, "k.lease_key");
                &mut sql
            }
            Self::Live => sql.push("keys INDEXED BY keys_live WHERE live = 1"),
            Self::End => sql.push("grants INDEXED BY grants_by_end WHERE ").push(of_end(query.status)),
        };
        sql.push(" LIMIT ").push_bind(most).push(")");
        sql
    }

    /// The tables in the order in which they are walked; of ends, behind the tokens of what ended so.
    const fn tables(self, current_only: bool) -> &'static str {
        match (self, current_only) {
            (Self::Order, true) => "keys AS k CROSS JOIN grants AS g ON g.token = k.token",
            (Self::Order, false) => "grants AS g",
            (Self::Subject, true) => {
                "subjects AS s CROSS JOIN grants AS g ON g.token = s.token CROSS JOIN keys AS k ON k.token = g.token"
            }
            (Self::Subject, false) => "subjects AS s CROSS JOIN grants AS g ON g.token = s.token",
            (Self::Owner, true) => "grants AS g INDEXED BY grants_by_owner CROSS JOIN keys AS k ON k.token = g.token",
            (Self::Owner, false) => "grants AS g INDEXED BY grants_by_owner",
            (Self::Job, true) => "grants AS g INDEXED BY grants_by_job CROSS JOIN keys AS k ON k.token = g.token",
            (Self::Job, false) => "grants AS g INDEXED BY grants_by_job",
            // Keys have no prefix but in the table of keys.
            (Self::Prefix, _) => "keys AS k CROSS JOIN grants AS g ON g.token = k.token",
            (Self::Live, _) => "keys AS k INDEXED BY keys_live CROSS JOIN grants AS g ON g.token = k.token",
            (Self::End, _) => " AS e CROSS JOIN grants AS g ON g.token = e.token",
        }
    }
}

/// The statement for one page.
pub(super) fn sql(query: &ListQuery, way: Way, now: Timestamp) -> QueryBuilder<Sqlite> {
    let mut sql = QueryBuilder::new(concat!("-- list\nSELECT g.lease_key, ", grant_columns!(), " FROM "));
    rows(&mut sql, query, way, now);
    in_order(&mut sql, query, way);
    sql.push(" LIMIT ").push_bind(i64::from(query.limit) + 1);
    sql
}

/// The statement that counts all pages' rows, up to one more than are counted.
pub(super) fn count(query: &ListQuery, way: Way, now: Timestamp) -> QueryBuilder<Sqlite> {
    let mut sql = QueryBuilder::new("-- list: count all\nSELECT count(*) FROM (SELECT 1 FROM ");
    rows(&mut sql, query, way, now);
    // The last grants of keys are found soon among the newest, late among the oldest.
    sql.push(match way {
        Way::Subject => " ORDER BY s.token DESC",
        Way::Owner | Way::Job => " ORDER BY g.token DESC",
        Way::Order | Way::Prefix | Way::Live | Way::End => "",
    });
    sql.push(" LIMIT ").push_bind(i64::from(MOST_COUNTED) + 1).push(")");
    sql
}

/// The tables, and what rows must answer to.
fn rows(sql: &mut QueryBuilder<Sqlite>, query: &ListQuery, way: Way, now: Timestamp) {
    if way == Way::End {
        // An end that nobody has recorded yet is in no index of ends.
        sql.push("(SELECT token FROM grants INDEXED BY grants_by_end WHERE ").push(of_end(query.status));
        sql.push(" UNION ALL SELECT token FROM keys INDEXED BY keys_live WHERE live = 1 AND expires_at <= ");
        sql.push_bind(now.as_micros()).push(")");
    }
    sql.push(way.tables(query.current_only)).push(" WHERE true");
    if let Some(subject) = &query.subject {
        if way == Way::Subject {
            sql.push(" AND s.subject = ").push_bind(subject.as_str().to_owned());
        } else {
            sql.push(" AND EXISTS (SELECT 1 FROM subjects AS s WHERE s.token = g.token AND s.subject = ");
            sql.push_bind(subject.as_str().to_owned()).push(")");
        }
    }
    // Where the walk does not begin with the keys' names, they must not tempt it to.
    let by_name = way == Way::Prefix || (way == Way::Order && query.sort.field == SortField::LeaseKey);
    prefixes(
        sql,
        query,
        match (query.current_only, by_name) {
            (true, true) => "k.lease_key",
            (true, false) => "+k.lease_key",
            (false, _) => "+g.lease_key",
        },
    );
    if let Some(owner) = &query.owner {
        sql.push(if way == Way::Owner { " AND g.owner = " } else { " AND +g.owner = " });
        sql.push_bind(owner.as_str().to_owned());
    }
    if let Some(job_key) = &query.job_key {
        sql.push(if way == Way::Job { " AND g.job_key = " } else { " AND +g.job_key = " });
        sql.push_bind(job_key.as_str().to_owned());
    }
    if way == Way::Live {
        sql.push(" AND k.live = 1");
    }
    if let Some(status) = query.status {
        with_status(sql, status, now);
    }
}

/// What the walk begins after, and the order.
fn in_order(sql: &mut QueryBuilder<Sqlite>, query: &ListQuery, way: Way) {
    let begins_with_keys = query.current_only && matches!(way, Way::Order | Way::Prefix | Way::Live);
    // The same number, of the table that is walked first.
    let token = match way {
        Way::Subject => "s.token",
        _ if begins_with_keys => "k.token",
        _ => "g.token",
    };
    let column = match (query.sort.field, query.current_only) {
        (SortField::AcquiredAt, _) => token,
        (SortField::LeaseKey, true) => "k.lease_key",
        (SortField::LeaseKey, false) => "g.lease_key",
        (SortField::ExpiresAt, true) => "k.expires_at",
        (SortField::ExpiresAt, false) => "g.expires_at",
        (SortField::UpdatedAt, true) => "k.updated_at",
        (SortField::UpdatedAt, false) => "g.updated_at",
    };
    let (beyond, order) = if query.sort.descending { (" < ", " DESC") } else { (" > ", "") };
    // Where few rows are sorted at the end, the order must not lead the walk.
    let is_led = matches!(way, Way::Order)
        || matches!(column, "g.token" | "s.token")
        || (way == Way::Prefix && column == "k.lease_key");
    let plus = if is_led { "" } else { "+" };
    if let Some(cursor) = &query.cursor {
        sql.push(" AND ");
        match query.sort.field {
            SortField::AcquiredAt => {
                sql.push(plus).push(token).push(beyond).push_bind(cursor.token);
            }
            SortField::LeaseKey if query.current_only => {
                // Each key once, were it granted anew since.
                sql.push(plus).push(column).push(beyond).push_bind(cursor.lease_key.clone());
            }
            SortField::LeaseKey => {
                sql.push("(").push(plus).push(column).push(", ").push(token).push(")").push(beyond).push("(");
                sql.push_bind(cursor.lease_key.clone()).push(", ").push_bind(cursor.token).push(")");
            }
            SortField::ExpiresAt | SortField::UpdatedAt => {
                sql.push("(").push(plus).push(column).push(", ").push(token).push(")").push(beyond).push("(");
                sql.push_bind(cursor.value).push(", ").push_bind(cursor.token).push(")");
            }
        }
    }
    // An index that does not hold keys without a grant serves only a query that cannot want them.
    sql.push(" AND ").push(token).push(" IS NOT NULL ORDER BY ").push(plus).push(column).push(order);
    if column != token {
        sql.push(", ").push(token).push(order);
    }
}

/// What the index of rare ends is asked; it must be told what it holds, or SQLite would not believe that it serves.
const fn of_end(status: Option<LeaseStatus>) -> &'static str {
    const RARE: [&str; 4] = [
        "outcome = 'expired' AND outcome IN ('expired', 'broken', 'transferred', 'undelivered')",
        "outcome = 'broken' AND outcome IN ('expired', 'broken', 'transferred', 'undelivered')",
        "outcome = 'transferred' AND outcome IN ('expired', 'broken', 'transferred', 'undelivered')",
        "outcome = 'undelivered' AND outcome IN ('expired', 'broken', 'transferred', 'undelivered')",
    ];
    match status {
        Some(LeaseStatus::Ended(Outcome::Expired)) => RARE[0],
        Some(LeaseStatus::Ended(Outcome::Broken)) => RARE[1],
        Some(LeaseStatus::Ended(Outcome::Transferred)) => RARE[2],
        Some(LeaseStatus::Ended(Outcome::Undelivered)) => RARE[3],
        // Such lists do not go this way.
        _ => "false",
    }
}

fn prefixes(sql: &mut QueryBuilder<Sqlite>, query: &ListQuery, key: &'static str) {
    if let Some(prefix) = &query.prefix {
        within(sql, key, std::slice::from_ref(prefix));
    }
    if !query.allowed_prefixes.is_empty() {
        within(sql, key, &query.allowed_prefixes);
    }
}

fn within(sql: &mut QueryBuilder<Sqlite>, key: &'static str, prefixes: &[String]) {
    sql.push(" AND (");
    for (index, prefix) in prefixes.iter().enumerate() {
        if index > 0 {
            sql.push(" OR ");
        }
        sql.push("(").push(key).push(" >= ").push_bind(prefix.clone());
        sql.push(" AND ").push(key).push(" < ").push_bind(after_prefix(prefix)).push(")");
    }
    sql.push(")");
}

/// The same rule as `Lease::status`: what is over is over, whether its end is recorded or not.
fn with_status(sql: &mut QueryBuilder<Sqlite>, status: LeaseStatus, now: Timestamp) {
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

/// Lists of many kinds: every status with every order, filtered or not. For the tests.
#[cfg(test)]
fn examples() -> Vec<ListQuery> {
    use crate::reading::{Cursor, Sort};
    use domain::{JobKey, Owner, Subject};
    let statuses = [LeaseStatus::Held, LeaseStatus::Breaking]
        .into_iter()
        .chain(Outcome::ALL.into_iter().map(LeaseStatus::Ended))
        .map(Some)
        .chain([None]);
    let fields = [SortField::LeaseKey, SortField::AcquiredAt, SortField::ExpiresAt, SortField::UpdatedAt];
    let mut all = Vec::new();
    for status in statuses {
        for field in fields {
            for index in 0..32 {
                let has = |bit: u32| index & (1 << bit) != 0;
                let cursor = Cursor { field, value: 40, lease_key: "a/40".to_owned(), token: 40 };
                all.push(ListQuery {
                    current_only: has(0),
                    prefix: has(1).then(|| "a".to_owned()),
                    allowed_prefixes: if has(2) { vec!["a/".to_owned(), "b/".to_owned()] } else { Vec::new() },
                    owner: has(3).then(|| Owner::parse("o").ok()).flatten(),
                    job_key: has(2).then(|| JobKey::parse("j").ok()).flatten(),
                    subject: has(1).then(|| Subject::parse("customer:acme").ok()).flatten(),
                    status,
                    sort: Sort { field, descending: has(4) },
                    limit: 5,
                    cursor: has(3).then_some(cursor),
                    count: true,
                });
            }
        }
    }
    all
}

/// The statements of lists, by every way, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<String> {
    let mut all = std::collections::BTreeSet::new();
    for query in examples() {
        for way in Way::open(&query).chain([Way::Order]) {
            all.insert(sql(&query, way, Timestamp::EPOCH).sql().as_str().to_owned());
            all.insert(count(&query, way, Timestamp::EPOCH).sql().as_str().to_owned());
            all.insert(way.count(&query, FEW).sql().as_str().to_owned());
        }
    }
    all.into_iter().chain([COUNT_KEYS.to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection as _, Executor as _, Row as _};

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(100);

    /// Grants of some keys, current and former, of every status, by two owners, for jobs and subjects or not.
    async fn models() -> SqliteConnection {
        let mut db = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        sqlx::migrate!("../../migrations/sqlite-views").run(&mut db).await.unwrap();
        for n in 1..=60_i64 {
            let key = format!("{}/{:02}", if n % 3 == 0 { "b" } else { "a" }, n % 50);
            let outcome = [None, Some("released"), Some("expired"), Some("broken"), None, Some("transferred"), None];
            let outcome = outcome[(n % 7) as usize];
            // Of those without an end some are over all the same.
            let expires_at = n * 37 % 200;
            let ends_at = (outcome.is_none() && n % 4 == 0).then_some(expires_at);
            sqlx::query(
                "INSERT INTO grants (token, lease_key, owner, job_key, acquired_at, expires_at, updated_at, ttl, outcome, \
                 ended_at, break_ends_at, breaking) VALUES (?1, ?2, ?3, ?4, ?1, ?5, ?6, 1, ?7, ?8, ?9, ?10)",
            )
            .bind(n)
            .bind(&key)
            .bind(if n % 2 == 0 { "o" } else { "p" })
            .bind((n % 5 < 3).then_some("j"))
            .bind(expires_at)
            .bind(n + n % 11)
            .bind(outcome)
            .bind(outcome.map(|_| expires_at))
            .bind(ends_at)
            .bind(ends_at.map(|_| r#"{"ends_at":"1970-01-01T00:00:00Z"}"#))
            .execute(&mut db)
            .await
            .unwrap();
            if n % 4 < 2 {
                let insert = "INSERT INTO subjects (subject, token) VALUES ('customer:acme', ?1)";
                sqlx::query(insert).bind(n).execute(&mut db).await.unwrap();
            }
        }
        let keys = "INSERT INTO keys (lease_key, token, expires_at, updated_at, live, cooling_until, changed_at) \
            SELECT lease_key, token, expires_at, updated_at, outcome IS NULL, 0, updated_at FROM grants AS g \
            WHERE token = (SELECT max(token) FROM grants AS h WHERE h.lease_key = g.lease_key)";
        db.execute(keys).await.unwrap();
        db.execute("INSERT INTO keys (lease_key, quarantine, changed_at) VALUES ('a/never', '{}', 1)").await.unwrap();
        db.execute("UPDATE counters SET value = 50 WHERE name = 'keys'").await.unwrap();
        db
    }

    #[tokio::test]
    async fn every_way_finds_the_same_rows_in_the_same_order() {
        let mut db = models().await;
        let (mut found, mut ways) = (0, 0);
        for query in examples() {
            let mut tokens = Vec::new();
            for way in Way::open(&query).chain([Way::Order]) {
                let rows = sql(&query, way, NOW).build().fetch_all(&mut db).await.unwrap();
                let counted: i64 = count(&query, way, NOW).build_query_scalar().fetch_one(&mut db).await.unwrap();
                assert!(
                    query.cursor.is_some() || rows.len() == 6 || counted == rows.len() as i64,
                    "{query:?}: {counted}"
                );
                tokens.push((way, counted, rows.iter().map(|row| row.get::<i64, _>("token")).collect::<Vec<_>>()));
            }
            let (_, counted, first) = &tokens[0];
            assert!(tokens.iter().all(|(_, n, of_way)| n == counted && of_way == first), "{query:?}: {tokens:?}");
            found += first.len();
            ways += tokens.len();
        }
        assert!(found > 400 && ways > 2_000, "{found} rows by {ways} ways");
    }

    #[tokio::test]
    async fn the_rarest_filter_leads_unless_all_are_common() {
        let mut db = models().await;
        let example = |change: &dyn Fn(&mut ListQuery)| {
            let mut query = examples().swap_remove(1);
            query.status = None;
            change(&mut query);
            query
        };
        let by_owner = example(&|query| query.owner = domain::Owner::parse("o").ok());
        assert_eq!(Way::choose(&mut db, &by_owner).await.unwrap(), Way::Owner);
        let both = example(&|query| {
            query.owner = domain::Owner::parse("o").ok();
            query.prefix = Some("a/07".to_owned());
        });
        assert_eq!(Way::choose(&mut db, &both).await.unwrap(), Way::Prefix);
        assert_eq!(Way::choose(&mut db, &example(&|_| {})).await.unwrap(), Way::Order);
        db.execute(
            "INSERT INTO grants (token, lease_key, owner, acquired_at, expires_at, updated_at, ttl) \
             WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 5000) SELECT 1000 + value, 'many', 'o', 1, 1, 1, 1 FROM n",
        )
        .await
        .unwrap();
        // Of few keys all can be looked at, whatever was granted on them.
        assert_eq!(Way::choose(&mut db, &by_owner).await.unwrap(), Way::Order);
        db.execute("UPDATE counters SET value = 1000000 WHERE name = 'keys'").await.unwrap();
        assert_eq!(Way::choose(&mut db, &by_owner).await.unwrap(), Way::Order);
        let newest =
            ListQuery { sort: crate::reading::Sort { field: SortField::AcquiredAt, descending: true }, ..by_owner };
        assert_eq!(Way::choose(&mut db, &newest).await.unwrap(), Way::Owner);
    }
}
