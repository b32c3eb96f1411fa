//! Lists against a plain filter and sort of the same rows, and how PostgreSQL means to carry them out.

use domain::{JobKey, Owner, Subject};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Execute as _, Executor as _};

use super::super::testing::{self, Database};
use super::super::url::PostgresUrl;
use super::super::{open, reading};
use super::*;
use crate::reading::Sort;

const NOW: Timestamp = Timestamp::from_micros(100);

/// Lists of many kinds: every status with every order, filtered or not.
pub(super) fn examples() -> Vec<ListQuery> {
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
                    allowed_prefixes: if has(2) { vec!["b/".to_owned(), "a/".to_owned()] } else { Vec::new() },
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

/// One grant, as it is put into the tables and as it is thought of here.
struct Grant {
    token: i64,
    lease_key: String,
    owner: &'static str,
    has_job: bool,
    has_subject: bool,
    expires_at: i64,
    updated_at: i64,
    /// Of those without an end some are over all the same.
    outcome: Option<Outcome>,
    is_breaking: bool,
    is_last: bool,
}

impl Grant {
    /// Grants of some keys, current and former, of every status, by two owners, for jobs and subjects or not.
    fn some() -> Vec<Self> {
        let outcomes = [
            None,
            Some(Outcome::Released),
            Some(Outcome::Expired),
            Some(Outcome::Broken),
            None,
            Some(Outcome::Transferred),
            Some(Outcome::Undelivered),
            None,
        ];
        let grant = |n: i64| Self {
            token: n,
            lease_key: format!("{}/{:02}", if n % 3 == 0 { "b" } else { "a" }, n % 50),
            owner: if n % 2 == 0 { "o" } else { "p" },
            has_job: n % 5 < 3,
            has_subject: n % 4 < 2,
            expires_at: n * 37 % 200,
            updated_at: n + n % 11,
            outcome: outcomes[(n % 7 + n / 50) as usize],
            is_breaking: outcomes[(n % 7 + n / 50) as usize].is_none() && n % 4 == 0,
            is_last: false,
        };
        let mut all: Vec<Self> = (1..=90).map(grant).collect();
        for index in 0..all.len() {
            let is_last = all[index + 1..].iter().all(|later| later.lease_key != all[index].lease_key);
            let grant = &mut all[index];
            grant.is_last = is_last;
            if !is_last && grant.outcome.is_none() {
                // Only the last grant of a key can be without an end.
                (grant.outcome, grant.is_breaking) = (Some(Outcome::Released), false);
            }
        }
        all
    }

    fn status(&self) -> LeaseStatus {
        match self.outcome {
            Some(outcome) => LeaseStatus::Ended(outcome),
            None if self.expires_at <= NOW.as_micros() && self.is_breaking => LeaseStatus::Ended(Outcome::Broken),
            None if self.expires_at <= NOW.as_micros() => LeaseStatus::Ended(Outcome::Expired),
            None if self.is_breaking => LeaseStatus::Breaking,
            None => LeaseStatus::Held,
        }
    }

    fn answers(&self, query: &ListQuery) -> bool {
        let begins = |prefix: &String| self.lease_key.starts_with(prefix.as_str());
        (self.is_last || !query.current_only)
            && query.prefix.iter().all(begins)
            && (query.allowed_prefixes.is_empty() || query.allowed_prefixes.iter().any(begins))
            && query.owner.iter().all(|owner| owner.as_str() == self.owner)
            && (self.has_job || query.job_key.is_none())
            && (self.has_subject || query.subject.is_none())
            && query.status.is_none_or(|status| status == self.status())
    }

    /// By what it is sorted.
    fn place(&self, field: SortField) -> (i64, &str, i64) {
        match field {
            SortField::LeaseKey => (0, &self.lease_key, self.token),
            SortField::AcquiredAt => (0, "", self.token),
            SortField::ExpiresAt => (self.expires_at, "", self.token),
            SortField::UpdatedAt => (self.updated_at, "", self.token),
        }
    }
}

/// The tokens of a page and of one row more, and how many rows there are on all pages.
fn expected(all: &[Grant], query: &ListQuery) -> (Vec<i64>, i64) {
    let field = query.sort.field;
    let mut found: Vec<&Grant> = all.iter().filter(|grant| grant.answers(query)).collect();
    let count = found.len() as i64;
    found.sort_by(|one, other| one.place(field).cmp(&other.place(field)));
    if query.sort.descending {
        found.reverse();
    }
    if let Some(Cursor { value, lease_key, token, .. }) = &query.cursor {
        let end = match field {
            SortField::LeaseKey => (0, lease_key.as_str(), *token),
            SortField::AcquiredAt => (0, "", *token),
            SortField::ExpiresAt | SortField::UpdatedAt => (*value, "", *token),
        };
        found.retain(|grant| if query.sort.descending { grant.place(field) < end } else { grant.place(field) > end });
    }
    (found.into_iter().take(query.limit as usize + 1).map(|grant| grant.token).collect(), count)
}

/// Models in a database of their own, and a connection on which lists are read as they always are.
struct Models {
    db: PoolConnection<Postgres>,
    _database: Database,
}

impl Models {
    async fn with(all: &[Grant]) -> Self {
        let database = testing::database().await;
        let (via, _) = PostgresUrl::new(&database.url).ways().unwrap();
        open::migrate(&via).await.unwrap();
        let mut db = via.pool().acquire().await.unwrap();
        for grant in all {
            let ends_at = grant.is_breaking.then_some(grant.expires_at);
            let outcome = grant.outcome.map(Outcome::as_str);
            sqlx::query(
                "INSERT INTO job_leases_views.grants (token, lease_key, owner, job_key, acquired_at, expires_at, updated_at, \
                 ttl, outcome, ended_at, break_ends_at, breaking, previous) VALUES ($1, $2, $3, $4, $1, $5, $6, 1, $7, $8, $9, \
                 $10, (SELECT max(token) FROM job_leases_views.grants WHERE lease_key = $2))",
            )
            .bind(grant.token)
            .bind(&grant.lease_key)
            .bind(grant.owner)
            .bind(grant.has_job.then_some("j"))
            .bind(grant.expires_at)
            .bind(grant.updated_at)
            .bind(outcome)
            .bind(outcome.map(|_| grant.expires_at))
            .bind(ends_at)
            .bind(ends_at.map(|_| r#"{"ends_at":"1970-01-01T00:00:00Z"}"#))
            .execute(&mut *db)
            .await
            .unwrap();
        }
        let of = |sql: &'static str, tokens: Vec<i64>| sqlx::query::<Postgres>(sql).bind(tokens);
        let those = |has: fn(&Grant) -> bool| -> Vec<i64> {
            all.iter().filter(|grant| has(grant)).map(|grant| grant.token).collect()
        };
        let filled = [
            of(
                "INSERT INTO job_leases_views.subjects (subject, token) SELECT 'customer:acme', * FROM unnest($1::bigint[])",
                those(|grant| grant.has_subject),
            ),
            of(
                "INSERT INTO job_leases_views.keys (lease_key, token, expires_at, updated_at, live, cooling_until, changed_at) \
                 SELECT lease_key, token, expires_at, updated_at, outcome IS NULL, 0, updated_at FROM job_leases_views.grants \
                 WHERE token = ANY ($1)",
                those(|grant| grant.is_last),
            ),
            of(
                "INSERT INTO job_leases_views.rare_states (status, token) SELECT coalesce(outcome, 'breaking'), token \
                 FROM job_leases_views.grants WHERE token = ANY ($1)",
                those(|grant| grant.is_breaking || grant.outcome.is_some_and(|outcome| outcome != Outcome::Released)),
            ),
        ];
        for query in filled {
            query.execute(&mut *db).await.unwrap();
        }
        db.execute("INSERT INTO job_leases_views.keys (lease_key, quarantine, changed_at) VALUES ('a/never', '{}', 1)")
            .await
            .unwrap();
        let mut models = Self { db, _database: database };
        models.count_keys(50).await;
        models
    }

    async fn count_keys(&mut self, keys: i64) {
        let sql = "UPDATE job_leases_views.counters SET value = $1 WHERE name = 'keys'";
        sqlx::query(sql).bind(keys).execute(&mut *self.db).await.unwrap();
    }

    /// Reads as lists are read.
    async fn read(&mut self, mut sql: QueryBuilder<Postgres>) -> Vec<PgRow> {
        let rows = sql.build().persistent(false).fetch_all(&mut *self.db).await;
        rows.unwrap_or_else(|error| panic!("{}: {error}", sql.sql().as_str()))
    }

    /// How PostgreSQL means to carry it out.
    async fn plan(&mut self, mut sql: QueryBuilder<Postgres>) -> String {
        let text = format!("EXPLAIN (COSTS OFF) {}", sql.sql().as_str());
        let arguments = sql.build().take_arguments().unwrap().unwrap();
        let rows = sqlx::query_with(AssertSqlSafe(text), arguments).persistent(false).fetch_all(&mut *self.db).await;
        let lines = rows.unwrap().into_iter().map(|row| row.get::<String, _>(0));
        lines.collect::<Vec<_>>().join("\n")
    }

    async fn begin(&mut self) {
        self.db.execute("BEGIN").await.unwrap();
        sqlx::raw_sql(reading::SETTINGS).execute(&mut *self.db).await.unwrap();
    }

    async fn choose(&mut self, query: &ListQuery) -> Way {
        Way::choose(&mut self.db, query, NOW).await.unwrap()
    }
}

fn tokens(rows: &[PgRow]) -> Vec<i64> {
    rows.iter().map(|row| row.get("token")).collect()
}

#[tokio::test]
async fn every_way_finds_the_rows_that_answer_in_the_order_asked_for() {
    let all = Grant::some();
    let mut models = Models::with(&all).await;
    models.begin().await;
    let (mut found, mut ways) = (0, 0);
    for query in examples() {
        let (expected, count_expected) = expected(&all, &query);
        for way in Way::open(&query).chain([Way::Order]) {
            let rows = models.read(sql(&query, way, NOW)).await;
            assert_eq!(tokens(&rows), expected, "{way:?}: {query:?}");
            let counted: i64 = models.read(count(&query, way, NOW)).await[0].get(0);
            assert_eq!(counted, count_expected, "{way:?}: {query:?}");
            ways += 1;
        }
        found += expected.len();
    }
    assert!(found > 400 && ways > 2_000, "{found} rows by {ways} ways");
}

#[tokio::test]
async fn a_caller_sees_only_what_is_below_both_the_prefix_asked_for_and_one_of_the_callers() {
    let all = Grant::some();
    let mut models = Models::with(&all).await;
    models.begin().await;
    let mut seen = 0;
    for (asked, allowed) in [
        ("a/1", &["a/"][..]),
        ("a/", &["a/1", "b/", "a/2"]),
        ("b/", &["a/"]),
        ("a/0", &["a/0", "a/", "a/04"]),
        ("", &["b/3", "a/4"]),
    ] {
        for query in examples().into_iter().filter(|query| query.subject.is_none() && query.prefix.is_none()) {
            let allowed_prefixes = allowed.iter().map(ToString::to_string).collect();
            let query = ListQuery { prefix: Some(asked.to_owned()), allowed_prefixes, ..query };
            let (expected, _) = expected(&all, &query);
            for way in Way::open(&query).chain([Way::Order]) {
                let rows = models.read(sql(&query, way, NOW)).await;
                assert_eq!(tokens(&rows), expected, "{way:?}: {query:?}");
            }
            seen += expected.len();
        }
    }
    assert!(seen > 400, "{seen}");
}

#[tokio::test]
async fn what_comes_in_order_is_walked_and_not_sorted() {
    let mut models = Models::with(&Grant::some()).await;
    models.begin().await;
    let mut walks = 0;
    for query in examples() {
        // Of grants that are not the last of their key some orders are in no index.
        let by_grant = query.sort.field == SortField::AcquiredAt;
        let has_index = query.current_only || by_grant;
        let led = Way::open(&query).filter(|way| by_grant && way.name(&query).is_some());
        for way in has_index.then_some(Way::Order).into_iter().chain(led) {
            let plan = models.plan(sql(&query, way, NOW)).await;
            let sorts = plan.lines().any(|line| line.contains("Sort") && !line.contains("Sort Key"));
            assert!(!sorts && !plan.contains("Seq Scan"), "{way:?}: {query:?}\n{plan}");
            let leads = match way {
                Way::Owner => "grants_by_owner",
                Way::Job => "grants_by_job",
                Way::Subject => "subjects_pkey",
                _ => "",
            };
            assert!(plan.contains(leads), "{way:?}: {query:?}\n{plan}");
            walks += 1;
        }
    }
    assert!(walks > 600, "{walks}");
}

#[tokio::test]
async fn the_rarest_filter_leads_unless_all_are_common() {
    let mut models = Models::with(&Grant::some()).await;
    let example = |change: &dyn Fn(&mut ListQuery)| {
        let mut query = examples().swap_remove(1);
        query.status = None;
        change(&mut query);
        query
    };
    let by_owner = example(&|query| query.owner = Owner::parse("o").ok());
    models.count_keys(1_000).await;
    assert_eq!(models.choose(&by_owner).await, Way::Owner);
    let both = example(&|query| {
        query.owner = Owner::parse("o").ok();
        query.prefix = Some("a/07".to_owned());
    });
    assert_eq!(models.choose(&both).await, Way::Prefix);
    let breaking = example(&|query| query.status = Some(LeaseStatus::Breaking));
    assert_eq!(models.choose(&breaking).await, Way::Rare);
    assert_eq!(models.choose(&example(&|_| {})).await, Way::Order);
    let many = "INSERT INTO job_leases_views.grants (token, lease_key, owner, acquired_at, expires_at, updated_at, ttl) \
        SELECT 1000 + n, 'many', 'o', 1, 1, 1, 1 FROM generate_series(1, $1) AS n";
    sqlx::query(many).bind(FEW).execute(&mut *models.db).await.unwrap();
    // Of few keys all can be looked at, whatever was granted on them.
    assert_eq!(models.choose(&by_owner).await, Way::Order);
    models.count_keys(1_000_000).await;
    assert_eq!(models.choose(&by_owner).await, Way::Order);
    let newest = ListQuery { sort: Sort { field: SortField::AcquiredAt, descending: true }, ..by_owner };
    assert_eq!(models.choose(&newest).await, Way::Owner);
}

#[tokio::test]
async fn a_cursor_that_was_made_up_finds_rows_or_none_but_no_error() {
    let mut models = Models::with(&Grant::some()).await;
    let (value, token, lease_key) = (i64::MIN, i64::MAX, "a/\0\u{10ffff}".to_owned());
    for query in examples() {
        let field = query.sort.field;
        let cursor = Some(Cursor { field, value, lease_key: lease_key.clone(), token });
        let query = ListQuery { cursor, ..query };
        assert!(models.read(sql(&query, Way::Order, NOW)).await.len() <= 6);
    }
}
