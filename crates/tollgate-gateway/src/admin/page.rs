//! The files of the live page. They are served from the program, and the page loads nothing from elsewhere.

use axum::http::HeaderName;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};

/// The page may load from its own origin only.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

type File = ([(HeaderName, &'static str); 5], &'static str);

pub(crate) async fn html() -> File {
    file("text/html; charset=utf-8", include_str!("page/page.html"))
}

pub(crate) async fn style() -> File {
    file("text/css; charset=utf-8", include_str!("page/page.css"))
}

pub(crate) async fn script() -> File {
    file("text/javascript; charset=utf-8", include_str!("page/page.js"))
}

pub(crate) async fn charts() -> File {
    file("text/javascript; charset=utf-8", include_str!("page/charts.js"))
}

fn file(kind: &'static str, text: &'static str) -> File {
    let headers = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, text)
}
