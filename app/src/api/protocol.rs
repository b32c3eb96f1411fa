//! How requests and answers travel: the server functions' own protocols.
//!
//! Leptos answers every error of a server function with 500. With a protocol of our own the answer has its true status
//! where it is made, and no later layer has to mend it.

use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;

use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use server_fn::client::Client;
use server_fn::error::{FromServerFnError, ServerFnErrorErr};
use server_fn::request::ClientReq;
use server_fn::response::ClientRes;
use server_fn::{Bytes, Protocol};

use super::error::ApiError;

#[cfg(feature = "ssr")]
type Server = server_fn::axum::AxumServerFnBackend;
#[cfg(not(feature = "ssr"))]
type Server = server_fn::mock::BrowserMockServer;

type ServerRequest = <Server as server_fn::server::Server<ApiError>>::Request;
type ServerResponse = <Server as server_fn::server::Server<ApiError>>::Response;

/// The media type of bodies in both directions.
pub const JSON: &str = "application/json";

/// `POST` with the fields of `Request` as a JSON object, strictly read.
///
/// The server function takes one argument of type `Request`; the object is that argument, not an object around it.
pub struct Post<Request>(PhantomData<Request>);

/// `GET` with the fields of `Request` as query parameters, strictly read. For reads only.
pub struct Get<Request>(PhantomData<Request>);

impl<Input, Output, C, Request> Protocol<Input, Output, C, Server, ApiError> for Post<Request>
where
    Input: From<Request> + Deref<Target = Request> + Send,
    Request: Serialize + DeserializeOwned + Send,
    Output: Serialize + DeserializeOwned + Send,
    C: Client<ApiError>,
{
    const METHOD: Method = Method::POST;

    async fn run_server<F, Fut>(request: ServerRequest, server_fn: F) -> Result<ServerResponse, ApiError>
    where
        F: Fn(Input) -> Fut + Send,
        Fut: Future<Output = Result<Output, ApiError>> + Send,
    {
        let answered = match server::from_body::<Request>(request).await {
            Ok(arguments) => server_fn(Input::from(arguments)).await,
            Err(error) => Err(error),
        };
        server::answer(answered)
    }

    async fn run_client(path: &str, input: Input) -> Result<Output, ApiError> {
        let body = serde_json::to_vec(&*input).map_err(|_| ApiError::internal())?;
        receive::<Output, C>(C::Request::try_new_post_bytes(path, JSON, JSON, Bytes::from(body))?).await
    }
}

impl<Input, Output, C, Request> Protocol<Input, Output, C, Server, ApiError> for Get<Request>
where
    Input: From<Request> + Deref<Target = Request> + Send,
    Request: Serialize + DeserializeOwned + Send,
    Output: Serialize + DeserializeOwned + Send,
    C: Client<ApiError>,
{
    const METHOD: Method = Method::GET;

    async fn run_server<F, Fut>(request: ServerRequest, server_fn: F) -> Result<ServerResponse, ApiError>
    where
        F: Fn(Input) -> Fut + Send,
        Fut: Future<Output = Result<Output, ApiError>> + Send,
    {
        let answered = match server::from_query::<Request>(&request) {
            Ok(arguments) => server_fn(Input::from(arguments)).await,
            Err(error) => Err(error),
        };
        server::answer(answered)
    }

    async fn run_client(path: &str, input: Input) -> Result<Output, ApiError> {
        let query = serde_urlencoded::to_string(&*input).map_err(|_| ApiError::internal())?;
        receive::<Output, C>(C::Request::try_new_get(path, JSON, JSON, &query)?).await
    }
}

async fn receive<Output: DeserializeOwned, C: Client<ApiError>>(request: C::Request) -> Result<Output, ApiError> {
    let response = C::send(request).await?;
    let status = response.status();
    let body = response.try_into_bytes().await?;
    if (200..300).contains(&status) {
        serde_json::from_slice(&body)
            .map_err(|error| ApiError::from_server_fn_error(ServerFnErrorErr::Deserialization(error.to_string())))
    } else {
        Err(ApiError::de(body))
    }
}

/// The browser serves nothing.
#[cfg(not(feature = "ssr"))]
mod server {
    use super::{ApiError, ServerRequest, ServerResponse};

    pub(super) async fn from_body<Request>(_: ServerRequest) -> Result<Request, ApiError> {
        Err(ApiError::internal())
    }

    pub(super) fn from_query<Request>(_: &ServerRequest) -> Result<Request, ApiError> {
        Err(ApiError::internal())
    }

    pub(super) fn answer<T>(answer: Result<T, ApiError>) -> Result<ServerResponse, ApiError> {
        answer.and(Err(ApiError::internal()))
    }
}

#[cfg(feature = "ssr")]
mod server {
    use std::error::Error;
    use std::time::Duration;

    use axum::body::Body;
    use http::{HeaderValue, StatusCode, header};
    use http_body_util::{BodyExt, LengthLimitError, Limited};
    use tokio::time::timeout;

    use super::super::codec;
    use super::super::exchange::Exchange;
    use super::{ApiError, Bytes, DeserializeOwned, JSON, Serialize, ServerRequest, ServerResponse};

    /// The most bytes of a request's body.
    const MAX_BODY: usize = 1024 * 1024;
    /// How long a body may take to arrive.
    const BODY_TIME: Duration = Duration::from_secs(30);

    pub(super) async fn from_body<Request>(request: ServerRequest) -> Result<Request, ApiError>
    where
        Request: DeserializeOwned + Serialize,
    {
        let exchange = Exchange::current()?;
        // Of those who have not shown who they are nothing is read.
        exchange.caller()?;
        let content_type = request.headers().get(header::CONTENT_TYPE);
        if !content_type.is_some_and(|value| is_json(value.as_bytes())) {
            return Err(ApiError::new("unsupported_media_type", "the body must be application/json"));
        }
        let body = read(request.into_body()).await?;
        let arguments: Request = codec::from_json(&body)?;
        if exchange.idempotency_key().is_some() {
            // Written again, so that white space and the order of fields make no other request of it.
            exchange.set_canonical(serde_json::to_vec(&arguments).map_err(|_| ApiError::internal())?);
        }
        Ok(arguments)
    }

    pub(super) fn from_query<Request: DeserializeOwned>(request: &ServerRequest) -> Result<Request, ApiError> {
        Exchange::current()?.caller()?;
        codec::from_query(request.uri().query().unwrap_or_default())
    }

    pub(super) fn answer<T: Serialize>(answer: Result<T, ApiError>) -> Result<ServerResponse, ApiError> {
        let answer = answer.and_then(|value| serde_json::to_vec(&value).map_err(|_| ApiError::internal()));
        Ok(match answer {
            Ok(body) => {
                let mut response = ServerResponse::new(Body::from(body));
                response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
                response
            }
            Err(error) => {
                let request_id = Exchange::current().ok().map(|exchange| Box::from(exchange.request_id()));
                error.into_response(request_id)
            }
        })
    }

    async fn read(body: Body) -> Result<Bytes, ApiError> {
        let body = timeout(BODY_TIME, Limited::new(body, MAX_BODY).collect()).await;
        let body = body.map_err(|_| ApiError::new("timed_out", "the body did not arrive in time"))?;
        body.map(http_body_util::Collected::to_bytes).map_err(|error| {
            let mut cause: Option<&(dyn Error + 'static)> = Some(error.as_ref());
            while let Some(error) = cause {
                if error.is::<LengthLimitError>() {
                    return ApiError::new("too_large", format!("the body is larger than {MAX_BODY} bytes"));
                }
                cause = error.source();
            }
            ApiError::new("malformed", "the body could not be read to its end")
        })
    }

    /// `application/json`, with no parameter but `charset=utf-8`.
    fn is_json(value: &[u8]) -> bool {
        let Ok(value) = std::str::from_utf8(value) else { return false };
        let mut parts = value.split(';').map(str::trim);
        parts.next().is_some_and(|media_type| media_type.eq_ignore_ascii_case(JSON))
            && parts.all(|parameter| {
                parameter.eq_ignore_ascii_case("charset=utf-8") || parameter.eq_ignore_ascii_case("charset=\"utf-8\"")
            })
    }

    impl ApiError {
        /// The response with its true status and the headers that belong to it.
        #[must_use]
        pub fn into_response(mut self, request_id: Option<Box<str>>) -> ServerResponse {
            self.request_id = request_id;
            let body = serde_json::to_vec(&self).unwrap_or_else(|_| br#"{"code":"internal","message":""}"#.to_vec());
            let mut response = ServerResponse::new(Body::from(body));
            *response.status_mut() = StatusCode::from_u16(self.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
            if let Some(seconds) = self.retry_after_seconds() {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            }
            if self.status() == 401 {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"job-leases\""));
            }
            response
        }
    }

    #[cfg(test)]
    mod tests {
        use super::is_json;

        #[test]
        fn only_json_in_utf_8_is_taken() {
            for value in ["application/json", "Application/JSON; charset=UTF-8", "application/json;charset=utf-8"] {
                assert!(is_json(value.as_bytes()), "{value}");
            }
            for value in ["", "text/plain", "application/jsonx", "application/json; charset=latin1", "text/json"] {
                assert!(!is_json(value.as_bytes()), "{value}");
            }
        }
    }
}
