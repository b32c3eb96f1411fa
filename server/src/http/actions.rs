//! `/core/leases/actions/...`: what an operator does by a plain form. Each is the API's operation of that name; the page of the
//! key then says what came of it.

use std::sync::Arc;

use app::api::exchange::Exchange;
use app::api::leases::{BreakRequest, QuarantineRequest, TransferRequest};
use app::api::values::Millis;
use app::api::{ApiError, Backends};
use app::ui::pages::filter::lease_address;
use axum::Router;
use axum::extract::{Extension, Path, Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::post;
use domain::lease::LeaseId;
use domain::{LeaseKey, Owner, Reason};

use super::request::Passed;
use super::{Http, form};

/// Routes to all of them.
pub(super) fn routes(http: Arc<Http>) -> Router {
    Router::new().route("/core/leases/actions/{action}", post(act)).with_state(http)
}

/// What the forms send.
#[derive(Default)]
struct Form(Vec<(String, String)>);

impl Form {
    fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value)
    }

    fn reason(&self) -> Result<Reason, ApiError> {
        Reason::parse(self.text("reason").trim()).map_err(|error| ApiError::invalid("reason", error))
    }

    fn lease_id(&self) -> Result<LeaseId, ApiError> {
        LeaseId::parse(self.text("lease_id")).map_err(|_| ApiError::new("lease_unknown", "no lease was shown"))
    }
}

async fn act(
    State(http): State<Arc<Http>>,
    Extension(passed): Extension<Passed>,
    Path(action): Path<String>,
    request: Request,
) -> Response {
    let Passed { id, caller, .. } = passed;
    if caller.is_none() {
        return Redirect::to("/sign-in").into_response();
    }
    let Some(body) = form::read(request.into_body()).await else {
        return ApiError::new("too_large", "that is no form of this console").into_response(None);
    };
    let form = Form(form_urlencoded::parse(&body).into_owned().collect());
    let Ok(lease_key) = LeaseKey::parse(form.text("lease_key")) else {
        return ApiError::invalid("lease_key", "is no key").into_response(None);
    };
    let address = lease_address(lease_key.as_str());
    let exchange = Exchange::new(Arc::clone(&http.backends), caller, id, None, "");
    let (name, value) = match carry_out(&http.backends, &exchange, &action, lease_key, &form).await {
        Ok(()) => ("done", action),
        Err(error) => ("refused", error.code.into_owned()),
    };
    let mark = if address.contains('?') { '&' } else { '?' };
    let value: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
    Redirect::to(&format!("{address}{mark}{name}={value}")).into_response()
}

async fn carry_out(
    backends: &Backends,
    exchange: &Exchange,
    action: &str,
    lease_key: LeaseKey,
    form: &Form,
) -> Result<(), ApiError> {
    let leases = &backends.leases;
    match action {
        "break" => {
            if form.text("confirm") != lease_key.as_str() {
                return Err(ApiError::new("confirm", "the key that was typed is another one"));
            }
            let grace_ms = form.text("grace_ms").parse().map_err(|_| ApiError::invalid("grace_ms", "is no number"))?;
            let request = BreakRequest {
                lease_key,
                reason: form.reason()?,
                grace_ms: Some(Millis(grace_ms)),
                lease_id: Some(form.lease_id()?),
            };
            leases.break_lease(exchange, request).await.map(drop)
        }
        "transfer" => {
            let to_owner = form.text("to_owner").trim();
            let to_owner = Owner::parse(to_owner).map_err(|error| ApiError::invalid("to_owner", error))?;
            let request = TransferRequest { lease_key, lease_id: form.lease_id()?, to_owner };
            leases.transfer(exchange, request).await.map(drop)
        }
        "quarantine" => {
            leases.quarantine(exchange, QuarantineRequest { lease_key, reason: form.reason()? }).await.map(drop)
        }
        "lift" => leases.lift(exchange, QuarantineRequest { lease_key, reason: form.reason()? }).await.map(drop),
        _ => Err(ApiError::new("not_found", "there is no such action")),
    }
}
