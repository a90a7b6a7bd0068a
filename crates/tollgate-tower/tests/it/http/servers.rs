//! Real servers on loopback: axum, with the client of reqwest. The clocks are manual.

use super::*;

use axum::{Router, routing::get};

async fn serve(app: Router) -> String {
    format!("http://{}/", crate::serve(app).await)
}

#[tokio::test]
async fn reqwest_follows_responses_with_tower_and_without() {
    let (theirs, _clock) = by_hand(Quota::per_hour(1).initial(0));
    let layer = LimitLayer::new(&theirs).refuse().respond();
    let url = serve(Router::new().route("/", get(async || "hello")).layer(layer)).await;
    let [with, without] = [(); 2].map(|()| by_hand(Quota::per_second(100)).0);
    let client = reqwest::Client::new().map_response(http::Response::<reqwest::Body>::from);
    let client = HeedLayer::new(&with).layer(client);
    client.oneshot(reqwest::Request::new(reqwest::Method::GET, url.parse().unwrap())).await.unwrap();
    let response = reqwest::get(&url).await.unwrap();
    let advice = Heed::default().heed(&without, response.status(), response.headers());
    assert_eq!((advice.wait, advice.available), (Some(3_600 * SECOND), Some(0)));
    assert_eq!([with, without].map(|limiter| limiter.snapshot().paused_for), [Some(600 * SECOND); 2]);
}

/// Axum's own layers and handlers compile and work around the layer and inside it.
#[tokio::test]
async fn any_body_of_axum_s_ecosystem_will_do() {
    let (limiter, _clock) = by_hand(Quota::per_minute(1));
    let boxed = tower::util::MapResponseLayer::new(|response: axum::response::Response| {
        response.map(|body| body.map_err(std::io::Error::other).boxed_unsync())
    });
    let layer = LimitLayer::new(&limiter).release_at_head().refuse().respond();
    let stack = tower::ServiceBuilder::new().layer(layer).layer(boxed);
    let url = serve(Router::new().route("/", get(async || "hello")).layer(stack)).await;
    assert_eq!(reqwest::get(&url).await.unwrap().text().await.unwrap(), "hello");
    let refused = reqwest::get(&url).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.text().await.unwrap(), "Quota Exceeded: retry after 60 s\n");
}
