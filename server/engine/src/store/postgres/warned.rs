//! Whether PostgreSQL warned while it carried out a statement.
//!
//! It answers a COMMIT that it was told not to wait for (an administrator cancelled it while a replica was away) as it answers any
//! other, and only warns that the transaction might not have been replicated. sqlx hands warnings to nobody but the log.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::sync::LazyLock;

use tracing::field::{Field, Visit};
use tracing::instrument::WithSubscriber as _;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// Where sqlx logs what the database says besides its answers.
const NOTICES: &str = "sqlx::postgres::notice";

tokio::task_local! {
    static WARNING: RefCell<Option<String>>;
}

/// One for all, since each that is made is made known to every place that logs.
static EAR: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Ear));

/// Carries out a step; and what the database warned of meanwhile, in its own language, if it did.
pub(super) async fn heeding<T>(step: impl Future<Output = T>) -> (T, Option<String>) {
    let heard = async {
        let done = step.with_subscriber(EAR.clone()).await;
        (done, WARNING.with(RefCell::take))
    };
    WARNING.scope(RefCell::default(), heard).await
}

/// Hears warnings, and nothing else.
struct Ear;

impl Subscriber for Ear {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // It is asked whether it would hear before it is told.
        !metadata.is_span() && metadata.target() == NOTICES && *metadata.level() <= Level::WARN
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        // Outside of `heeding` it is never asked.
        let _ = WARNING.try_with(|warning| *warning.borrow_mut() = Some(text.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.0);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // A string takes all that is written to it.
            let _ = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::error::StoreError;
    use crate::store::postgres::link::{Failed, Link};
    use crate::store::postgres::{PostgresUrl, testing};

    /// As PostgreSQL does when the wait for a replica was cancelled: it commits, and warns.
    const WARN_AT_COMMIT: &str = "CREATE TABLE t (); \
         CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE WARNING ''not replicated''; RETURN NULL; END'; \
         CREATE CONSTRAINT TRIGGER warn AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION warn()";

    #[tokio::test]
    async fn a_commit_that_came_with_a_warning_is_not_taken_for_one() {
        let database = testing::database().await;
        let (via, _) = PostgresUrl::new(&database.url).ways().unwrap();
        let mut tx = Link::begin(&via).await.unwrap();
        sqlx::raw_sql(WARN_AT_COMMIT).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();

        let mut tx = Link::begin(&via).await.unwrap();
        sqlx::raw_sql("INSERT INTO t DEFAULT VALUES").execute(&mut *tx).await.unwrap();
        match tx.try_commit().await {
            Err(Failed::Unknown(StoreError::Unconfirmed(warning))) => assert_eq!(warning, "not replicated"),
            Err(Failed::Unknown(error) | Failed::Refused(error)) => panic!("{error}"),
            Ok(()) => panic!("taken for a commit that every replica has"),
        }
        let insert = async |db: &mut sqlx::PgConnection| sqlx::query("INSERT INTO t DEFAULT VALUES").execute(db).await;
        let link = Link::for_one_warm(&via, std::time::Duration::from_secs(60)).unwrap();
        match link.alone(insert).await {
            Err(Failed::Unknown(StoreError::Unconfirmed(warning))) => assert_eq!(warning, "not replicated"),
            Err(Failed::Unknown(error) | Failed::Refused(error)) => panic!("{error}"),
            Ok(_) => panic!("taken for a statement that every replica has"),
        }
        // Warnings before the commit, and notices with it, are none of its own.
        let mut tx = Link::begin(&via).await.unwrap();
        sqlx::raw_sql("DO 'BEGIN RAISE WARNING ''early''; END'").execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }
}
