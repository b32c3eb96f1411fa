//! A shared database, read from end to end while nodes serve it.

use domain::Timestamp;
use domain::lease::{KeyState, Outage};
use sqlx::PgConnection;

use super::link::{Link, in_time};
use super::time::{Told, told_columns};
use super::url::PostgresUrl;
use super::via::Via;
use super::{follow, life, log, open};
use crate::error::{OpenError, StoreError};
use crate::store::sqlite::{AnswerRow, KeptRow, LinkRow, SessionRow, TokenRow};
use crate::timeline::{Hash, Line, Position};

/// All that follows is of one moment. A file may be slow to be written meanwhile, which is no reason to cut the connection.
const BE_SNAPSHOT: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; \
     SET LOCAL idle_in_transaction_session_timeout = '60s'";
const HEAD: &str = concat!(
    "-- backup: head\nSELECT h.epoch, h.position, h.hash, h.base_position, h.base_hash, s.lived_at, ",
    told_columns!(),
    " FROM job_leases.head AS h, job_leases.service AS s WHERE h.id = 1 AND s.id = 1"
);
const LINES: &str = "-- backup: lines\nSELECT position, hash, body FROM job_leases.timeline WHERE position > $1 \
     ORDER BY position LIMIT $2";
const LOGGED: &str = "-- backup: log\nSELECT id, body FROM job_leases.log WHERE id > $1 ORDER BY id LIMIT $2";
const KEPT: &str = "-- backup: kept keys\nSELECT lease_key, state, alive_until FROM job_leases.kept_keys WHERE lease_key > $1 \
     ORDER BY lease_key LIMIT $2";
const KEYS: &str =
    "-- backup: keys\nSELECT state, outage FROM job_leases.keys WHERE lease_key > $1 ORDER BY lease_key LIMIT $2";
const TOKENS: &str = "-- backup: tokens\nSELECT token_id, hash, name, role, prefixes, created_at, expires_at, revoked_at \
     FROM job_leases.tokens";
const SESSIONS: &str = "-- backup: sessions\nSELECT session_id, hash, name, role, prefixes, token_id, created_at, expires_at, \
     closed_at FROM job_leases.sessions";
const LINKS: &str = "-- backup: links\nSELECT hash, created_at, expires_at FROM job_leases.sign_in_links";
const ANSWERS: &str = "-- backup: answers\nSELECT caller, key, fingerprint, answer, created_at FROM job_leases.idempotency \
     WHERE (caller, key) > ($1, $2) ORDER BY caller, key LIMIT $3";

/// Every statement of this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    vec![HEAD, LINES, LOGGED, KEPT, KEYS, TOKENS, SESSIONS, LINKS, ANSWERS]
}

/// The database, which must be of this very version: of another, not all of it would be known.
pub(crate) struct Source(Via);

impl Source {
    pub(crate) async fn open(url: &PostgresUrl) -> Result<Self, OpenError> {
        let (_, via) = url.ways()?;
        let mut link = via.begin().await?;
        let schema = open::Schema::of(&via, &mut link).await?.known_whole()?;
        link.commit().await?;
        if schema.found < open::known() {
            return Err(OpenError::Older { found: schema.found, known: open::known() });
        }
        Ok(Self(via))
    }

    /// Lines after a position, which do not change, but for those that retention takes away.
    pub(crate) async fn lines(&self, after: Position, limit: u32) -> Result<Vec<Line>, StoreError> {
        let mut link = self.0.begin().await?;
        let lines = lines(&self.0, &mut link, after, limit).await?;
        link.commit().await?;
        Ok(lines)
    }

    /// Up to where retention has taken lines away by now.
    pub(crate) async fn base(&self) -> Result<Position, StoreError> {
        Ok(follow::read(&self.0, Position(i64::MAX), 1).await?.1)
    }

    /// All as it is now.
    pub(crate) async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let mut link = self.0.begin().await?;
        in_time(sqlx::raw_sql(BE_SNAPSHOT).execute(&mut *link)).await?;
        Ok(Snapshot { via: self.0.clone(), link })
    }

    pub(crate) async fn close(self) {
        self.0.close().await;
    }
}

/// The ends of the timeline.
pub(crate) struct Ends {
    pub(crate) epoch: String,
    /// The last line that has a position.
    pub(crate) head: (Position, Hash),
    /// What retention has taken away.
    pub(crate) base: (Position, Hash),
    /// When the service was last known to live.
    pub(crate) lived_at: Timestamp,
    /// Server time, if it was known then.
    pub(crate) now: Timestamp,
}

/// The database as it was at one moment. It should not be held for long: what goes meanwhile cannot be cleared away.
pub(crate) struct Snapshot {
    via: Via,
    link: Link,
}

impl Snapshot {
    pub(crate) async fn ends(&mut self) -> Result<Ends, StoreError> {
        type Row = (String, i64, Vec<u8>, i64, Vec<u8>, i64, i64, i64, i64, bool);
        let row: Row = in_time(self.via.query_as(HEAD).fetch_one(&mut *self.link)).await?;
        let (epoch, position, hash, base, base_hash, lived_at, clock, ahead, since, is_good) = row;
        Ok(Ends {
            epoch,
            head: (Position(position), open::hash(&hash)?),
            base: (Position(base), open::hash(&base_hash)?),
            lived_at: Timestamp::from_micros(lived_at),
            now: Told::new((clock, ahead, since, is_good)).time(),
        })
    }

    /// Lines after a position.
    pub(crate) async fn lines(&mut self, after: Position, limit: u32) -> Result<Vec<Line>, StoreError> {
        lines(&self.via, &mut self.link, after, limit).await
    }

    /// Lines that have no position yet, after one of these ids, in the order in which they would be given one; and the last id.
    pub(crate) async fn logged(&mut self, after: i64, limit: u32) -> Result<Option<(i64, Vec<String>)>, StoreError> {
        let query = self.via.query_as(LOGGED).bind(after).bind(i64::from(limit));
        let rows: Vec<(i64, String)> = in_time(query.fetch_all(&mut *self.link)).await?;
        let Some((last, _)) = rows.last() else { return Ok(None) };
        let lines = rows.iter().flat_map(|(_, row)| log::lines(row)).map(str::to_owned);
        Ok(Some((*last, lines.collect())))
    }

    /// What retention has kept, after a name.
    pub(crate) async fn kept(&mut self, after: &str, limit: u32) -> Result<Vec<KeptRow>, StoreError> {
        let query = self.via.query_as(KEPT).bind(after).bind(i64::from(limit));
        in_time(query.fetch_all(&mut *self.link)).await
    }

    /// States of keys after a name, and the last outage each was read through.
    pub(crate) async fn states(&mut self, after: &str, limit: u32) -> Result<Vec<(KeyState, i64)>, StoreError> {
        states(&self.via, &mut self.link, after, limit).await
    }

    /// All outages, with their numbers.
    pub(crate) async fn outages(&mut self) -> Result<Vec<(i64, Outage)>, StoreError> {
        life::outages_after(&self.via, &mut self.link, 0).await
    }

    pub(crate) async fn tokens(&mut self) -> Result<Vec<TokenRow>, StoreError> {
        in_time(self.via.query_as(TOKENS).fetch_all(&mut *self.link)).await
    }

    pub(crate) async fn sessions(&mut self) -> Result<Vec<SessionRow>, StoreError> {
        in_time(self.via.query_as(SESSIONS).fetch_all(&mut *self.link)).await
    }

    pub(crate) async fn links(&mut self) -> Result<Vec<LinkRow>, StoreError> {
        in_time(self.via.query_as(LINKS).fetch_all(&mut *self.link)).await
    }

    /// Answers after one of these names.
    pub(crate) async fn answers(&mut self, after: (&str, &str), limit: u32) -> Result<Vec<AnswerRow>, StoreError> {
        let query = self.via.query_as(ANSWERS).bind(after.0).bind(after.1).bind(i64::from(limit));
        in_time(query.fetch_all(&mut *self.link)).await
    }

    pub(crate) async fn end(self) -> Result<(), StoreError> {
        self.link.commit().await
    }
}

/// Lines after a position.
pub(super) async fn lines(
    via: &Via,
    db: &mut PgConnection,
    after: Position,
    limit: u32,
) -> Result<Vec<Line>, StoreError> {
    let query = via.query_as(LINES).bind(after.0).bind(i64::from(limit));
    let rows: Vec<(i64, Vec<u8>, String)> = in_time(query.fetch_all(db)).await?;
    rows.into_iter().map(|(position, hash, body)| Line::stored(Position(position), open::hash(&hash)?, body)).collect()
}

/// States of keys after a name, and the last outage each was read through.
pub(super) async fn states(
    via: &Via,
    db: &mut PgConnection,
    after: &str,
    limit: u32,
) -> Result<Vec<(KeyState, i64)>, StoreError> {
    let query = via.query_as(KEYS).bind(after).bind(i64::from(limit));
    let rows: Vec<(String, i64)> = in_time(query.fetch_all(db)).await?;
    let state = |(text, outage): (String, i64)| Ok((serde_json::from_str(&text).map_err(StoreError::corrupt)?, outage));
    rows.into_iter().map(state).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::store::postgres::testing;

    /// What a backup carries, by table and column; and what it leaves behind: connections and whoever waited at them, what is made
    /// anew, and what is written under another name.
    const CARRIED: [(&str, &str); 7] = [
        ("timeline", "body hash position"),
        ("log", "body id"),
        ("head", "base_hash base_position epoch hash id position"),
        ("kept_keys", "alive_until lease_key state"),
        ("idempotency", "answer caller created_at fingerprint key"),
        ("tokens", "created_at expires_at hash name prefixes revoked_at role token_id"),
        ("sessions", "closed_at created_at expires_at hash name prefixes role session_id token_id"),
    ];
    const OTHERS: [(&str, &str); 10] = [
        ("sign_in_links", "created_at expires_at hash"),
        ("service", "ahead ahead_since id lived_at outages server"),
        ("keys", "lease_key outage queue state waiting"),
        ("outages", "began ended grace id"),
        ("nodes", "node schema seen_at version"),
        ("duties", "held_until name node token"),
        ("waiters", "body caller fingerprint key lease_key node place waiter"),
        ("wakings", "is_kept node result told_at waiter"),
        ("access", "changes id"),
        ("compatibility", "id oldest"),
    ];

    const COLUMNS: &str = "SELECT table_name::text, string_agg(column_name, ' ' ORDER BY column_name COLLATE \"C\") \
         FROM information_schema.columns WHERE table_schema = 'job_leases' AND table_name <> 'migrations' GROUP BY 1";

    #[tokio::test]
    async fn every_table_and_column_is_known_to_be_carried_or_not() {
        let database = testing::database().await;
        let (via, _) = PostgresUrl::new(&database.url).ways().unwrap();
        open::migrate(&via).await.unwrap();
        let mut link = via.begin().await.unwrap();
        let found: Vec<(String, String)> = via.query_as(COLUMNS).fetch_all(&mut *link).await.unwrap();
        link.commit().await.unwrap();
        let found: BTreeSet<(&str, &str)> = found.iter().map(|(table, columns)| (&**table, &**columns)).collect();
        let known: BTreeSet<(&str, &str)> = CARRIED.into_iter().chain(OTHERS).collect();
        assert_eq!(found, known, "whoever adds to the database decides here whether a backup carries it");
    }
}
