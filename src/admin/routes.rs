//! Routes each path to its response. All of them are GET (and HEAD), and `/api/v1/explain` is POST, because it takes a
//! question; it changes nothing either. JSON under `/api/v1/`.

use std::net::IpAddr;

use axum::Router;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::{Html, IntoResponse, Json, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::replicas::{INSTANCE, together};
use super::{AdminState, exposition, page};
use crate::explain::{BadQuestion, Question};
use crate::telemetry::RefusalQuery;
use crate::vocabulary::{Gate, Histograms};

/// For browsers, with every response but the page: nothing is run, loaded or framed.
const RUN_NOTHING: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// For browsers: nothing is sniffed, remembered or told to others.
const STRICT: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (header::CACHE_CONTROL, "no-store"),
];

const LIVEZ: &str = "/livez";
const READYZ: &str = "/readyz";

/// Bytes of a question: a topic's name and a handful of numbers.
const LONGEST_QUESTION: usize = 4096;

/// What asks whether the process is well: it is answered whoever else is being served.
pub(super) fn is_health_check(path: &str) -> bool {
    path == LIVEZ || path == READYZ
}

/// `is_loopback`: only whoever is on this machine is meant, so that only this machine's names are answered to.
pub(super) fn router(state: AdminState, is_loopback: bool) -> Router {
    let replicas = state.replicas.clone();
    let instance = replicas.header();
    let routes = Router::new()
        .route("/", get(index))
        .route("/page/{file}", get(page::file))
        .route("/metrics", get(metrics))
        .route(LIVEZ, get(async || "alive\n"))
        .route(READYZ, get(ready))
        .route("/api/v1/status", get(status))
        .route("/api/v1/topics", get(topics))
        .route("/api/v1/sizes", get(sizes))
        .route("/api/v1/refusals", get(refusals))
        .route("/api/v1/refusals/recent", get(recent))
        .route("/api/v1/families", get(families))
        .route("/api/v1/clients", get(clients))
        .route("/api/v1/lingering", get(lingering))
        .route("/api/v1/fetch", get(fetch))
        .route("/api/v1/claims", get(claims))
        .route("/api/v1/config", get(config))
        .route(
            "/api/v1/explain",
            post(explain).layer(DefaultBodyLimit::max(LONGEST_QUESTION)),
        )
        .fallback(nothing)
        .with_state(state)
        .layer(from_fn_with_state(replicas, together));
    let routes = if is_loopback {
        routes.layer(from_fn(only_for_this_machine))
    } else {
        routes
    };
    routes.layer(map_response(move |response| {
        strict(response, instance.clone())
    }))
}

/// A browser on this machine that was led here by a name of somebody else's (DNS rebinding) could read everything.
async fn only_for_this_machine(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST);
    let is_ours = host.is_none_or(|host| host.to_str().is_ok_and(is_this_machine));
    if is_ours || is_health_check(request.uri().path()) {
        return next.run(request).await;
    }
    no(
        StatusCode::MISDIRECTED_REQUEST,
        "the admin server listens on loopback and answers to localhost and to addresses only (the Host header)".to_owned(),
    )
}

/// `localhost`, a name below it, or an address; with a port or without.
fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || name.parse::<IpAddr>().is_ok()
}

async fn strict(mut response: Response, instance: HeaderValue) -> Response {
    response.headers_mut().insert(INSTANCE, instance);
    response
        .headers_mut()
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static(RUN_NOTHING));
    for (name, value) in STRICT {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn index(State(state): State<AdminState>) -> impl IntoResponse {
    let policy = [(header::CONTENT_SECURITY_POLICY, page::POLICY)];
    (policy, Html(page::index(&(state.ready)())))
}

async fn status(State(state): State<AdminState>) -> Response {
    Json((state.status)()).into_response()
}

async fn ready(State(state): State<AdminState>) -> (StatusCode, String) {
    let readiness = (state.ready)();
    if readiness.is_ready() {
        let notes = (state.notes)();
        let notes: String = notes.iter().map(|note| format!("but {note}\n")).collect();
        return (StatusCode::OK, format!("ready\n{notes}"));
    }
    let body = format!("not ready: {}\n", readiness.why_not.join("; "));
    (StatusCode::SERVICE_UNAVAILABLE, body)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsQuery {
    histograms: Option<String>,
}

async fn metrics(
    State(state): State<AdminState>,
    headers: HeaderMap,
    Params(query): Params<MetricsQuery>,
) -> Response {
    let wanted = query.histograms.filter(|wanted| !wanted.is_empty());
    let histograms = match wanted.as_deref().map(Histograms::from_label) {
        None => (state.histograms)(),
        Some(Some(wanted)) => wanted,
        Some(None) => {
            let known: Vec<_> = Histograms::ALL.iter().map(|word| word.label()).collect();
            let error = format!("histograms is none of {}", known.join(", "));
            return no(StatusCode::BAD_REQUEST, error);
        }
    };
    let all_of = |name| {
        let values = headers.get_all(name).iter();
        let texts: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
        texts.join(",")
    };
    let takes_gzip = exposition::takes_gzip(&all_of(header::ACCEPT_ENCODING));
    let form = exposition::Form::wanted(&all_of(header::ACCEPT));
    let started_at = state.metrics.started_at();
    let render = move || {
        let mut text = state.metrics.render_with(histograms)?;
        exposition::write_process(&mut text, started_at);
        let text = form.of(text);
        let packed = takes_gzip.then(|| exposition::gzipped(&text)).transpose();
        // Memory cannot fail to be written to; the text is right all the same.
        Ok::<_, prometheus::Error>((text, packed.ok().flatten()))
    };
    let varies = (header::VARY, "accept, accept-encoding");
    let kind = (header::CONTENT_TYPE, form.media_type());
    match blocking(render).await {
        Ok(Ok((_, Some(packed)))) => {
            let packing = (header::CONTENT_ENCODING, "gzip");
            ([kind, varies, packing], packed).into_response()
        }
        Ok(Ok((text, None))) => ([kind, varies], text).into_response(),
        Ok(Err(error)) => {
            tracing::error!(%error, "metrics cannot be rendered");
            failed()
        }
        Err(response) => response,
    }
}

/// A query's parameters; one that is wrong is answered as JSON, like everything under `/api/v1/`.
struct Params<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(rejection) => Err(no(StatusCode::BAD_REQUEST, rejection.body_text())),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TopicsQuery {
    topic: Option<String>,
}

async fn topics(State(state): State<AdminState>, Params(query): Params<TopicsQuery>) -> Response {
    let wanted = query.topic.filter(|topic| !topic.is_empty());
    let body = blocking(move || {
        let mut topics = (state.topics)();
        topics.retain(|view| wanted.as_ref().is_none_or(|topic| *topic == view.topic));
        topics.sort_by(|a, b| a.topic.cmp(&b.topic));
        json!({ "topics": topics })
    });
    json_or_failed(body.await)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SizesQuery {
    topic: String,
}

/// The distributions of one topic's sizes by gate; none for a topic that was not produced to through here.
async fn sizes(State(state): State<AdminState>, Params(query): Params<SizesQuery>) -> Json<Value> {
    let sizes = state.metrics.known_topic(&query.topic).map(|topic| {
        json!({
            "batch": topic.wire_bytes.distribution(),
            "uncompressed": topic.uncompressed_bytes.distribution(),
            "record": topic.record_bytes.distribution(),
            "estimate": topic.estimate_bytes.distribution(),
        })
    });
    Json(json!({ "topic": query.topic, "sizes": sizes }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RefusalsQuery {
    topic: Option<String>,
    gate: Option<String>,
    id: Option<String>,
    limit: Option<String>,
}

impl RefusalsQuery {
    /// A parameter without a value is one that was not given.
    fn understood(self) -> Result<RefusalQuery, String> {
        let given = |value: Option<String>| value.filter(|value| !value.is_empty());
        let gate = given(self.gate).map(|gate| {
            Gate::from_label(&gate).ok_or_else(|| {
                let known: Vec<_> = Gate::ALL.iter().map(|gate| gate.label()).collect();
                format!("gate is none of {}", known.join(", "))
            })
        });
        let limit = given(self.limit).map(|limit| {
            limit
                .parse()
                .map_err(|_| "limit is not a number of refusals".to_owned())
        });
        Ok(RefusalQuery {
            topic: given(self.topic),
            id: given(self.id),
            gate: gate.transpose()?,
            limit: limit.transpose()?,
        })
    }
}

async fn refusals(
    State(state): State<AdminState>,
    Params(query): Params<RefusalsQuery>,
) -> Response {
    match query.understood() {
        Ok(query) => {
            let body = blocking(move || {
                let refusals = state.refusals.query(&query);
                json!({ "refusals": refusals })
            });
            json_or_failed(body.await)
        }
        Err(error) => no(StatusCode::BAD_REQUEST, error),
    }
}

async fn recent(State(state): State<AdminState>) -> Response {
    json_or_failed(blocking(move || json!({ "groups": state.refusals.recent() })).await)
}

async fn families(State(state): State<AdminState>) -> Response {
    json_or_failed(blocking(move || json!({ "families": (state.families)() })).await)
}

async fn lingering(State(state): State<AdminState>) -> Json<Value> {
    Json(json!({ "lingering": state.observed.lingering.view() }))
}

async fn fetch(State(state): State<AdminState>) -> Json<Value> {
    let observed = &state.observed;
    Json(json!({ "oversized": observed.oversized.view(), "stuck": observed.stuck.view() }))
}

async fn claims(State(state): State<AdminState>) -> Response {
    let view = move || {
        let metrics = state.metrics;
        let log_bytes = |topic: &str| Some(metrics.known_topic(topic)?.log_bytes());
        json!(metrics.claims().view(log_bytes))
    };
    json_or_failed(blocking(view).await)
}

async fn clients(State(state): State<AdminState>) -> Json<Value> {
    Json(json!({ "clients": state.metrics.clients().view() }))
}

async fn config(State(state): State<AdminState>) -> Json<Value> {
    Json((state.config)())
}

/// A question that is none gets 400 with what is wrong, whatever is wrong with it.
async fn explain(
    State(state): State<AdminState>,
    question: Result<Json<Question>, JsonRejection>,
) -> Response {
    match question {
        Ok(Json(question)) => match blocking(move || (state.explain)(&question)).await {
            Ok(Ok(explanation)) => Json(explanation).into_response(),
            Ok(Err(error @ BadQuestion::UnknownTopic(_))) => {
                no(StatusCode::NOT_FOUND, error.to_string())
            }
            Ok(Err(error)) => no(StatusCode::BAD_REQUEST, error.to_string()),
            Err(response) => response,
        },
        Err(rejection) => no(StatusCode::BAD_REQUEST, rejection.body_text()),
    }
}

/// As JSON where a program asks.
async fn nothing(uri: Uri) -> Response {
    const NOTHING: &str = "nothing here; / lists what there is";
    if uri.path() == "/api" || uri.path().starts_with("/api/") {
        return no(StatusCode::NOT_FOUND, NOTHING.to_owned());
    }
    (StatusCode::NOT_FOUND, format!("{NOTHING}\n")).into_response()
}

fn no(status: StatusCode, error: String) -> Response {
    (status, Json(json!({ "error": error }))).into_response()
}

/// Away from this thread: with a thousand topics it takes tens of milliseconds, and this thread accepts clients.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Response> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "an admin request could not be answered");
        failed()
    })
}

fn json_or_failed(body: Result<Value, Response>) -> Response {
    match body {
        Ok(body) => Json(body).into_response(),
        Err(response) => response,
    }
}

pub(super) fn failed() -> Response {
    let text = "this could not be answered; the log says why\n";
    (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
}
