//! The claims of a JSON Web Token (RFC 7519), which is decoded and not verified: the gateway has no key for that.

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

/// A longer token is malformed here: decoding takes time for each byte.
const MAX_LEN: usize = 8 << 10;

/// RFC 7515 leaves the padding out. Some libraries write it.
const DECODER: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The claim of this name, if it is a string, or a whole number, which is written in digits.
pub(crate) fn claim(token: &str, name: &str) -> Option<String> {
    if token.len() > MAX_LEN {
        return None;
    }
    let mut parts = token.trim().split('.');
    let (_header, payload, _signature) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let payload = DECODER.decode(payload).ok()?;
    let mut claims: Map<String, Value> = serde_json::from_slice(&payload).ok()?;
    match claims.remove(name)? {
        Value::String(text) if !text.is_empty() => Some(text),
        Value::Number(number) if number.is_u64() => Some(number.to_string()),
        _ => None,
    }
}

#[test]
fn malformed_tokens_have_no_claims() {
    let token = |payload: &str| format!("e30.{}.c2ln", DECODER.encode(payload));
    for (payload, expected) in [
        ("{\"sub\":\"shop\"}", Some("shop")),
        ("{\"sub\":42,\"iat\":1}", Some("42")),
        ("{\"sub\":\"sh\\u006fp\"}", Some("shop")),
        ("{\"sub\":\"\"}", None),
        ("{\"sub\":-1}", None),
        ("{\"sub\":1.5}", None),
        ("{\"sub\":[\"shop\"]}", None),
        ("{\"other\":\"shop\"}", None),
        ("[\"sub\"]", None),
        ("{\"sub\":\"shop\"", None),
        ("", None),
    ] {
        assert_eq!(claim(&token(payload), "sub").as_deref(), expected, "{payload}");
    }
    assert_eq!(claim(&token("{\"sub\":\"a\"}").replace("e30.", "e30.=="), "sub"), None);
    let deep = token(&format!("{{\"sub\":\"a\",\"x\":{}1{}}}", "[".repeat(2_000), "]".repeat(2_000)));
    let long = token(&format!("{{\"sub\":\"a\",\"x\":\"{}\"}}", "x".repeat(MAX_LEN)));
    for wrong in ["", ".", "..", "a.b", "a.b.c.d", "e30.e30", "e30.*.x", &deep, &long] {
        assert_eq!(claim(wrong, "sub"), None);
    }
}
