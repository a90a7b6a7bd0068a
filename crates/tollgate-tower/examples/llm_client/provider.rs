//! The provider: an HTTP server with its own clock and its own arithmetic. Its limits are halved after four seconds.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header::RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::stream;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::net::TcpListener;
use tokio::time::sleep;

/// Per minute. What is left of two seconds is tolerated at once.
const LIMITS: [(&str, f64); 3] = [("requests", 6_000.0), ("input-tokens", 600_000.0), ("output-tokens", 120_000.0)];

struct Provider {
    began: Instant,
    levels: [f64; 3],
    at: Instant,
}

/// Returns its URL.
pub(crate) async fn start() -> std::io::Result<String> {
    let now = Instant::now();
    let provider = Provider { began: now, levels: LIMITS.map(|(_, limit)| limit / 30.0), at: now };
    let app = Router::new().route("/", post(answer)).with_state(Arc::new(Mutex::new(provider)));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(axum::serve(listener, app).into_future());
    Ok(url)
}

/// Streams an answer of 20 to 60 tokens.
async fn answer(State(provider): State<Arc<Mutex<Provider>>>, prompt: String) -> Response {
    let (input, output) = (prompt.split_whitespace().count() as f64, fastrand::usize(2..=6));
    let (is_served, fields) = provider.lock().expect("no handler panics").charge([1.0, input, 10.0 * output as f64]);
    if !is_served {
        return (StatusCode::TOO_MANY_REQUESTS, fields, [(RETRY_AFTER, "1")]).into_response();
    }
    let chunks = stream::unfold(0, move |made| async move {
        sleep(Duration::from_millis(25)).await;
        (made < output).then_some((Ok::<_, Infallible>("ten tokens"), made + 1))
    });
    (fields, Body::from_stream(chunks)).into_response()
}

impl Provider {
    /// Charges a request if it is within the limits, and writes them as Anthropic does.
    fn charge(&mut self, costs: [f64; 3]) -> (bool, HeaderMap) {
        let share = if self.began.elapsed() > Duration::from_secs(4) { 0.5 } else { 1.0 };
        let limits = LIMITS.map(|(_, limit)| limit * share);
        let elapsed = self.at.elapsed().as_secs_f64();
        self.at = Instant::now();
        for (level, limit) in self.levels.iter_mut().zip(limits) {
            *level = (*level + elapsed * limit / 60.0).min(limit / 30.0);
        }
        let is_served = self.levels.iter().zip(costs).all(|(level, cost)| *level >= cost);
        let mut fields = HeaderMap::new();
        for (index, (resource, _)) in LIMITS.iter().enumerate() {
            self.levels[index] -= if is_served { costs[index] } else { 0.0 };
            let full_in = (limits[index] / 30.0 - self.levels[index]) / limits[index] * 60.0;
            let reset = SystemTime::now() + Duration::from_secs_f64(full_in.ceil());
            for (what, value) in [
                ("limit", limits[index].to_string()),
                ("remaining", self.levels[index].floor().to_string()),
                ("reset", httpdate::fmt_http_date(reset)),
            ] {
                let name = HeaderName::try_from(format!("anthropic-ratelimit-{resource}-{what}"));
                fields.insert(name.expect("a valid name"), value.parse().expect("a valid value"));
            }
        }
        (is_served, fields)
    }
}
