//! The server itself.

use app::api::Pending;
use app::api::exchange::Exchange;
use app::api::meta::{GetRequest, Limits, Meta as Answer, MetaBackend};
use domain::{Role, Span};
use engine::Engine;

use super::problems::of_fault;

/// The server itself.
pub(crate) struct Meta {
    engine: Engine,
}

impl Meta {
    pub(crate) const fn new(engine: Engine) -> Self {
        Self { engine }
    }
}

impl MetaBackend for Meta {
    fn get<'a>(&'a self, exchange: &'a Exchange, GetRequest {}: GetRequest) -> Pending<'a, Answer> {
        Box::pin(async move {
            exchange.require(Role::Viewer)?;
            let rules = self.engine.rules();
            let ms = |span: Span| span.as_millis().unsigned_abs();
            Ok(Answer {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                server_time: self.engine.time().await.map_err(of_fault)?,
                limits: Limits {
                    ttl_min_ms: ms(rules.ttl_min),
                    ttl_max_ms: ms(rules.ttl_max),
                    ttl_default_ms: ms(rules.ttl_default),
                    wait_max_ms: ms(rules.wait_max),
                    min_hold_max_ms: ms(rules.min_hold_max),
                    max_hold_max_ms: ms(rules.max_hold_max),
                    lock_delay_max_ms: ms(rules.lock_delay_max),
                    grace_max_ms: ms(rules.grace_max),
                    grace_default_ms: ms(rules.grace_default),
                },
            })
        })
    }
}
