//! The figures over the console's lists.

use app::api::Pending;
use app::api::counters::{Counters as Answer, CountersBackend, GetRequest};
use app::api::exchange::Exchange;
use app::api::page::AsOf;
use domain::Role;
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
            // Read before the figures, so that they include at least what is told.
            let position = self.engine.timeline().applied();
            let time = self.engine.time().await.map_err(of_fault)?;
            let counters = self.engine.counters(&prefixes).await.map_err(of_fault)?;
            Ok(Answer {
                keys: counters.keys.unsigned_abs(),
                held: counters.held.unsigned_abs(),
                waiting: prefixes.is_empty().then(|| self.engine.waiting()),
                jobs: counters.jobs.map(i64::unsigned_abs),
                grants: counters.grants.map(i64::unsigned_abs),
                collisions_today: counters.collisions_today.unsigned_abs(),
                collisions_total: counters.collisions.unsigned_abs(),
                as_of: AsOf { position: position.0.unsigned_abs(), time },
                server_time: self.engine.now(),
            })
        })
    }
}
