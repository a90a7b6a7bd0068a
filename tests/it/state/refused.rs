//! States that cannot be restored: typed errors that say what to do, and nothing is restored.

use super::{SECOND, begin, through};
use crate::fixture::*;
use serde_json::{Value, json};
use tollgate::state::{KeyedState, LimiterState, StateError};

fn builder() -> tollgate::Builder {
    Limiter::builder().quota(Quota::per_hour(10)).quota(Quota::new(3, SECOND).stepped())
}

/// The state of a limiter with 8 and 1 tokens.
fn state() -> LimiterState {
    let limiter = builder().clock(ManualClock::new()).build().unwrap();
    let _ = limiter.try_acquire(2).unwrap();
    limiter.state_at(begin()).unwrap()
}

fn keyed_builder() -> KeyedBuilder<String> {
    KeyedLimiter::builder().quota(Quota::per_hour(10))
}

/// The state of a keyed limiter with 7 tokens for each of four keys; `ann` has quotas of her own, and `bob` is paused.
fn keyed_state() -> KeyedState<String> {
    let keyed = keyed_builder().shards(1).clock(ManualClock::new()).build().unwrap();
    for key in ["ann", "bob", "eve", "joe"].map(str::to_owned) {
        let _ = keyed.try_acquire(&key, 3).unwrap();
    }
    keyed.set_quota_for(&"ann".to_owned(), [Quota::per_second(1), Quota::per_day(9)]).unwrap();
    keyed.pause_for(&"bob".to_owned(), SECOND);
    keyed.state_at(begin())
}

fn restored(state: LimiterState) -> Result<Limiter, ConfigError> {
    builder().restore(state, begin()).build()
}

fn keyed_restored(state: KeyedState<String>) -> Result<KeyedLimiter<String>, ConfigError> {
    keyed_builder().restore(state, begin()).build()
}

/// The JSON of a keyed state, with its keys in order: ann, bob, eve, joe.
fn keyed_json() -> Value {
    let mut json = serde_json::to_value(keyed_state()).unwrap();
    let keys = json["state"]["keys"].as_array_mut().unwrap();
    keys.sort_by_key(|key| key["key"].to_string());
    json
}

/// The JSON of a state, in which the value at `place` is another one.
fn changed(state: &impl serde::Serialize, place: &str, to: Value) -> Value {
    let mut json = serde_json::to_value(state).unwrap();
    *json.pointer_mut(place).unwrap_or_else(|| panic!("{place}")) = to;
    json
}

#[test]
fn another_version_is_refused_whatever_its_form() {
    let refused = |found| Some(ConfigError::State(StateError::Version { found, expected: 1 }));
    for version in [0, 2, u16::MAX] {
        let others = [r#"{"version":VERSION}"#, r#"{"version":VERSION,"state":[7],"more":"text"}"#];
        let others = others.map(|json| json.replace("VERSION", &version.to_string()));
        let same_form = changed(&state(), "/version", version.into()).to_string();
        for json in [same_form].iter().chain(&others) {
            let state: LimiterState = serde_json::from_str(json).unwrap();
            assert_eq!(state.saved_at(), None);
            assert!(serde_json::to_string(&state).is_err(), "it has nothing to write");
            assert_eq!(restored(state).err(), refused(version));
        }
        let same_form = changed(&keyed_state(), "/version", version.into()).to_string();
        for json in [same_form].iter().chain(&others) {
            let state: KeyedState<String> = serde_json::from_str(json).unwrap();
            assert_eq!((state.saved_at(), state.len(), state.is_empty()), (None, 0, true));
            assert_eq!(keyed_restored(state).err(), refused(version));
        }
        // Of the bytes of postcard, the version is the first.
        let bytes = [postcard::to_allocvec(&version).unwrap(), postcard::to_allocvec(&state()).unwrap()[1..].to_vec()];
        for bytes in [bytes.concat(), bytes[0].clone()] {
            assert_eq!(restored(postcard::from_bytes(&bytes).unwrap()).err(), refused(version));
            assert_eq!(keyed_restored(postcard::from_bytes(&bytes).unwrap()).err(), refused(version));
        }
    }
    assert_eq!(
        refused(2).unwrap().to_string(),
        "the saved state has version 2, and this program reads version 1: restore it with the program that saved it, or \
         start without it"
    );
}

#[test]
fn fields_in_any_order_are_read_and_missing_ones_named() {
    let json = serde_json::to_string(&state()).unwrap();
    assert!(json.starts_with(r#"{"version":1,"state":{"#), "{json}");
    // `Value` sorts fields by their names.
    let sorted = serde_json::to_value(state()).unwrap().to_string();
    assert!(sorted.starts_with(r#"{"state":"#), "{sorted}");
    for json in [json, sorted] {
        assert_eq!(serde_json::from_str::<LimiterState>(&json).unwrap(), state());
    }
    let error = |json: &str| serde_json::from_str::<LimiterState>(json).unwrap_err().to_string();
    assert!(error("{}").starts_with("missing field `version`"));
    assert!(error(r#"{"version":1}"#).starts_with("missing field `state`"));
    assert!(error(r#"{"version":1,"state":{}}"#).starts_with("missing field `saved_at`"));
    assert!(error("[]").starts_with("missing field `version`") && error("[1]").starts_with("missing field `state`"));
    assert!(error("7").contains("expected a version and a state"));
    assert!(postcard::from_bytes::<LimiterState>(&[1, 2]).is_err(), "cut off");
    let swapped = changed(&state(), "/state/saved_at", "noon".into());
    assert!(serde_json::from_value::<LimiterState>(swapped).is_err());
}

#[test]
fn numbers_that_no_limiter_can_have_are_refused_by_name() {
    let debt = -(1_i64 << 62);
    for (place, value, part, shown) in [
        ("0/0", json!("0/s"), "quota 0", "0/s"),
        ("1/0", json!("3/s, burst 2, stepped"), "quota 1", "3/s, burst 2, stepped"),
        ("0/1/tokens", json!(11), "tokens of quota 0", "11"),
        ("0/1/tokens", json!(debt - 1), "tokens of quota 0", "-4611686018427387905"),
        ("0/1/fraction", json!(360_000_000_000_u64), "fraction of quota 0", "360000000000"),
        ("0/1", json!({ "tokens": 10, "fraction": 1, "step_in": null }), "fraction of quota 0", "1"),
        ("0/1/step_in", json!(1), "step_in of quota 0", "1"),
        ("1/1/fraction", json!(1), "fraction of quota 1", "1"),
        ("1/1/step_in", json!(0), "step_in of quota 1", "0"),
        ("1/1/step_in", json!(1_000_000_001), "step_in of quota 1", "1000000001"),
    ] {
        let json = changed(&state(), &format!("/state/levels/quotas/{place}"), value);
        // No format is needed to find it, and `convert` does not help.
        let state: LimiterState = through(&serde_json::from_value::<LimiterState>(json).unwrap()).convert();
        let expected = StateError::Impossible { part: part.to_owned(), value: shown.to_owned() };
        assert_eq!(restored(state).err(), Some(ConfigError::State(expected)), "{place}");
    }
    for (place, value) in [
        ("0/1/tokens", json!(debt)),
        ("0/1/fraction", json!(359_999_999_999_u64)),
        ("1/1/step_in", json!(1_000_000_000)),
        ("1/1/step_in", json!(null)),
    ] {
        let json = changed(&state(), &format!("/state/levels/quotas/{place}"), value);
        assert!(restored(serde_json::from_value(json).unwrap()).is_ok(), "{place}");
    }
}

#[test]
fn numbers_that_no_keyed_limiter_can_have_are_refused_by_name() {
    let late = (1_u64 << 63) + 1;
    let long = late.to_string();
    for (place, value, part, shown) in [
        ("at", json!(late), "the time since the limiter was built", &*long),
        ("quotas/0/0/1", json!("0/s"), "entry 0 of the quotas", "0/s"),
        ("quotas/1/1/1", json!("9/d, initial 2"), "entry 1 of the quotas", "1/s; 9/d, initial 2"),
        ("quotas/1/1/1", json!("manual 5"), "entry 1 of the quotas", "1/s; manual 5"),
        ("quotas/1", json!([]), "the index of the quotas of key 0", "1"),
        ("keys/2/quotas", json!(7), "the index of the quotas of key 2", "7"),
        ("keys/1/levels", json!([]), "the number of levels of key 1", "0"),
        ("keys/0/levels", json!([[1, 0]]), "the number of levels of key 0", "1"),
        ("keys/3/levels/0/0", json!(11), "tokens of quota 0 of key 3", "11"),
        ("keys/0/levels/1/1", json!(u64::MAX), "fraction of quota 1 of key 0", "18446744073709551615"),
    ] {
        let json = changed(&keyed_json(), &format!("/state/{place}"), value);
        let state = through(&serde_json::from_value::<KeyedState<String>>(json).unwrap()).convert();
        let expected = StateError::Impossible { part: part.to_owned(), value: shown.to_owned() };
        assert_eq!(keyed_restored(state).err(), Some(ConfigError::State(expected)), "{place}");
    }
    let not_text = changed(&keyed_state(), "/state/keys/0/key", json!(7));
    assert!(serde_json::from_value::<KeyedState<String>>(not_text).is_err(), "a key of another type");
    let error = StateError::Impossible { part: "tokens of quota 0".to_owned(), value: "11".to_owned() };
    assert_eq!(
        error.to_string(),
        "tokens of quota 0 is 11 in the saved state, which is impossible: use an older state, or start without one"
    );
}

#[test]
fn keys_are_not_printed() {
    let text = format!("{:?}", keyed_state());
    assert!(text.contains("keys: 4") && !text.contains("ann"), "{text}");
}

#[test]
fn other_quotas_are_refused_with_both_and_what_to_do() {
    let text = |result: Result<Limiter, ConfigError>| result.unwrap_err().to_string();
    let build = || Limiter::builder().quota(Quota::per_hour(10)).restore(state(), begin());
    assert_eq!(
        text(build().quota(Quota::new(3, SECOND)).build()),
        "quota 1 was `3/s, stepped` when the state was saved and is `3/s` now: build it with the saved one, or call \
         `convert` on the state"
    );
    assert!(text(build().build()).contains("quota 1 was `3/s, stepped` when the state was saved and is `none` now"));
    // How a bucket begins does not matter, nor how a quota is written.
    let same = Quota::per_hour(10).burst(10).initial(1);
    let built = Limiter::builder().quota(same).quota(Quota::new(3, SECOND).stepped());
    assert!(built.restore(state(), begin()).build().is_ok());
    let twice = build().restore(state(), begin()).build().unwrap_err();
    assert_eq!(twice, ConfigError::SetTwice { setting: "restore" });
}

#[test]
fn other_quotas_of_keys_are_refused_unless_the_state_converts() {
    let build = |quotas: Quotas, state: KeyedState<String>| {
        KeyedLimiter::builder().quotas(quotas).restore(state, begin()).build()
    };
    let (ten, one) = (Quota::per_hour(10), Quota::per_hour(1));
    assert_eq!(keyed_state().saved_at(), Some(begin()));
    let error = build(Quota::per_hour(5).into(), keyed_state()).unwrap_err();
    assert!(error.to_string().starts_with("quota 0 was `10/h` when the state was saved and is `5/h` now"), "{error}");
    let error = build([ten, one].into(), keyed_state()).unwrap_err();
    assert!(error.to_string().contains("quota 1 was `none` when the state was saved and is `1/h` now"), "{error}");
    let by = KeyedLimiter::builder().quota_by(|_: &String| Quota::per_hour(4));
    let by = by.restore(keyed_state(), begin()).build().unwrap_err();
    assert!(by.to_string().contains("and is `none` now"), "{by}");

    let keyed = build(Quota::per_hour(5).into(), keyed_state().convert()).unwrap();
    let available = |key: &str| keyed.available(&key.to_owned());
    assert_eq!((available("eve"), available("new")), (5, 5));
    assert_eq!(keyed.quotas(&"ann".to_owned()), [Quota::per_second(1), Quota::per_day(9)].into());
    let by = KeyedLimiter::builder().quota_by(|key: &String| Quota::per_hour(key.len() as u64 + 5));
    let by = by.restore(keyed_state().convert(), begin()).build().unwrap();
    assert_eq!((by.available(&"eve".to_owned()), by.available(&"someone".to_owned())), (7, 12));
}

#[tokio::test]
async fn a_distributed_limiter_has_no_state() {
    let stores = tollgate::distributed::MemoryStore::new();
    let build = || Limiter::builder().quota(Quota::per_hour(10));
    let limiter = build().distributed(stores.clone()).build().unwrap();
    assert_eq!(limiter.state().unwrap_err(), StateError::Distributed);
    let state = build().build().unwrap().state().unwrap();
    let error = build().distributed(stores).restore(state, begin()).build().unwrap_err();
    assert_eq!(error, ConfigError::State(StateError::Distributed));
}
