//! The console's pages: rendered here, then taken over in the browser.

use std::sync::Arc;

use app::api::exchange::Exchange;
use app::ui::{App, shell};
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Redirect, Response};
use http::{HeaderValue, Method, StatusCode, header};
use leptos::nonce::use_nonce;
use leptos::prelude::{LeptosOptions, provide_context, use_context};
use leptos_axum::{
    LeptosRoutes, ResponseOptions, generate_route_list_with_exclusions, render_app_async_stream_with_context,
};
use tower_http::compression::CompressionLayer;

use super::request::Passed;
use super::{Http, headers, problem};

/// Routes to the pages, and what is shown where there is none.
pub(super) fn routes(http: &Arc<Http>, options: LeptosOptions) -> Router {
    let context = {
        let http = Arc::clone(http);
        move || provide(&http)
    };
    let document = {
        let options = options.clone();
        move || shell(options.clone())
    };
    let missing = render_app_async_stream_with_context(context.clone(), document.clone());
    let fallback = move |State(_): State<LeptosOptions>, request: Request| {
        let missing = missing.clone();
        async move {
            let is_page = matches!(*request.method(), Method::GET | Method::HEAD)
                && problem::wants_page(request.headers())
                && !request.uri().path().starts_with("/api/");
            if is_page { signed_in(request, missing).await } else { problem::not_found(request).await }
        }
    };
    // Leptos would route the server functions as well; the table of operations does that.
    let functions = server_fn::axum::server_fn_paths().map(|(path, _)| path.to_owned()).collect();
    let pages = generate_route_list_with_exclusions(App, Some(functions));
    Router::new()
        .leptos_routes_with_context(&options, pages, context, document)
        .layer(from_fn(|request, next: Next| signed_in(request, move |request| next.run(request))))
        .fallback(fallback)
        .method_not_allowed_fallback(problem::method_not_allowed)
        // A table of a hundred rows is a twelfth of its size. Pages hold no secret that a length could give away.
        .layer(CompressionLayer::new())
        .with_state(options)
}

/// Runs `page` for those who have signed in; leads others to where they can.
async fn signed_in<F: Future<Output = Response>>(request: Request, page: impl FnOnce(Request) -> F) -> Response {
    let is_known = request.extensions().get::<Passed>().is_some_and(|passed| passed.caller.is_some());
    if problem::wants_json(request.headers()) {
        return if is_known { problem::not_found(request).await } else { problem::unauthenticated(&request) };
    }
    if is_known {
        let mut response = page(request).await;
        // A page shows what its reader may see: nobody else's cache may keep it.
        response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        return response;
    }
    let here = request.uri().path_and_query().map_or("/", |here| here.as_str());
    if here == "/" {
        return Redirect::to("/sign-in").into_response();
    }
    let next = form_urlencoded::Serializer::new(String::new()).append_pair("next", here).finish();
    Redirect::to(&format!("/sign-in?{next}")).into_response()
}

/// What server functions and the document find in their context while a page is rendered.
fn provide(http: &Arc<Http>) {
    let Some(parts) = use_context::<http::request::Parts>() else { return };
    let Some(passed) = parts.extensions.get::<Passed>() else { return };
    provide_context(Exchange::new(Arc::clone(&http.backends), passed.caller.clone(), passed.id.clone(), None, ""));
    let (Some(nonce), Some(response)) = (use_nonce(), use_context::<ResponseOptions>()) else { return };
    match HeaderValue::from_str(&headers::console_policy(&nonce.to_string())) {
        Ok(policy) => response.insert_header(header::CONTENT_SECURITY_POLICY, policy),
        // It cannot be: a nonce is base64.
        Err(_) => response.set_status(StatusCode::INTERNAL_SERVER_ERROR),
    }
}
