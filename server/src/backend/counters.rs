//! The figures over the console's lists.

use app::api::counters::{Counters as Answer, CountersBackend, GetRequest, Minute, Trend, TrendRequest};
use app::api::exchange::Exchange;
use app::api::page::AsOf;
use app::api::values::Minutes;
use app::api::{ApiError, Pending};
use domain::{Role, Timestamp};
use engine::Engine;

use super::problems::of_fault;

/// The figures.
pub(crate) struct Counters {
    engine: Engine,
}

impl Counters {
    pub(crate) const fn new(engine: Engine) -> Self {
        Self { engine }
    }
}

impl CountersBackend for Counters {
    fn get<'a>(&'a self, exchange: &'a Exchange, GetRequest {}: GetRequest) -> Pending<'a, Answer> {
        Box::pin(async move {
            let caller = exchange.require(Role::Viewer)?;
            let prefixes: Vec<String> = caller.prefixes.iter().map(ToString::to_string).collect();
            let counters = self.engine.counters(&prefixes).await.map_err(of_fault)?;
            let time = self.engine.time().await.map_err(of_fault)?;
            Ok(Answer {
                keys: counters.keys.unsigned_abs(),
                held: counters.held.unsigned_abs(),
                waiting: prefixes.is_empty().then(|| self.engine.waiting()),
                jobs: counters.jobs.map(i64::unsigned_abs),
                grants: counters.grants.map(i64::unsigned_abs),
                collisions_today: counters.collisions_today.unsigned_abs(),
                collisions_total: counters.collisions.unsigned_abs(),
                as_of: AsOf { position: counters.as_of.0.unsigned_abs(), time },
                server_time: time,
            })
        })
    }

    fn trend<'a>(&'a self, exchange: &'a Exchange, request: TrendRequest) -> Pending<'a, Trend> {
        Box::pin(async move {
            let caller = exchange.require(Role::Viewer)?;
            if !caller.prefixes.is_empty() {
                return Err(ApiError::new("forbidden", "trends are for those who may see all keys"));
            }
            let count = i64::from(request.minutes.unwrap_or(Minutes::DEFAULT).get());
            let now = self.engine.time().await.map_err(of_fault)?;
            let first = now.minute() - count + 1;
            let from = Timestamp::of_minute(first);
            let known = self.engine.minutes(from).await.map_err(of_fault)?;
            let mut known = known.into_iter().peekable();
            let mut held = 0;
            // Where nothing happened, as many are held as before.
            while let Some(before) = known.next_if(|minute| minute.at < from) {
                held = before.held;
            }
            let minutes = (0..count).map(|index| {
                let at = Timestamp::of_minute(first + index);
                let minute = known.next_if(|minute| minute.at == at);
                held = minute.map_or(held, |minute| minute.held);
                let happened = minute.unwrap_or_default();
                Minute {
                    at,
                    granted: happened.granted.unsigned_abs(),
                    renewed: happened.renewed.unsigned_abs(),
                    released: happened.released.unsigned_abs(),
                    cut_short: happened.cut_short.unsigned_abs(),
                    refused: happened.refused.unsigned_abs(),
                    held: held.unsigned_abs(),
                }
            });
            Ok(Trend { minutes: minutes.collect(), server_time: now })
        })
    }
}
