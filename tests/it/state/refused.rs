//! States that cannot be restored: typed errors that say what to do, and nothing is restored.

use super::begin;
use std::io;
use tollgate::state::{KeyedState, LimiterState, StateError};
use tollgate::{ConfigError, KeyedLimiter, Limiter, ManualClock, Quota, Quotas};

fn limiter_bytes() -> Vec<u8> {
    let limiter = Limiter::builder().quota(Quota::per_hour(10)).quota(Quota::new(3, super::SECOND).stepped());
    let limiter = limiter.build().unwrap();
    let _ = limiter.try_acquire(2).unwrap();
    limiter.state_at(begin()).unwrap().to_bytes()
}

fn keyed_bytes() -> Vec<u8> {
    bytes_of(&["ann", "bob", "eve", "joe"].map(str::to_owned))
}

fn bytes_of(keys: &[String]) -> Vec<u8> {
    let builder = KeyedLimiter::builder().quota(Quota::per_hour(10)).overflow(Quota::per_hour(1)).shards(3);
    let keyed = builder.clock(ManualClock::new()).build().unwrap();
    for key in keys {
        let _ = keyed.try_acquire(key, 3).unwrap();
    }
    keyed.set_quota_for(&"ann".to_owned(), [Quota::per_second(1), Quota::per_day(9)]).unwrap();
    keyed.pause_for(&"bob".to_owned(), super::SECOND);
    let mut file = Vec::new();
    keyed.save_at(begin()).unwrap().write_to(&mut file).unwrap();
    file
}

fn read(bytes: &[u8]) -> Result<KeyedState<String>, StateError> {
    KeyedState::read_from(&mut &bytes[..])
}

#[test]
fn a_state_that_is_cut_off_anywhere_is_refused() {
    let (limiter, keyed) = (limiter_bytes(), keyed_bytes());
    assert!(LimiterState::from_bytes(&limiter).is_ok() && read(&keyed).is_ok());
    for length in 0..limiter.len() {
        assert_eq!(LimiterState::from_bytes(&limiter[..length]), Err(StateError::Truncated), "{length} bytes");
    }
    for length in 0..keyed.len() {
        assert_eq!(read(&keyed[..length]).unwrap_err(), StateError::Truncated, "{length} bytes");
    }
}

#[test]
fn a_state_with_any_changed_bit_is_refused() {
    let (limiter, keyed) = (limiter_bytes(), keyed_bytes());
    for bit in 0..8 {
        for at in 0..limiter.len() {
            let mut changed = limiter.clone();
            changed[at] ^= 1 << bit;
            // An older version than the first one is read like the first.
            let is_older = changed[8..10] == [0, 0];
            assert!(LimiterState::from_bytes(&changed).is_err() || is_older, "byte {at}");
        }
        for at in 0..keyed.len() {
            let mut changed = keyed.clone();
            changed[at] ^= 1 << bit;
            assert!(read(&changed).is_err() || changed[8..10] == [0, 0], "byte {at}");
        }
    }
}

#[test]
fn parts_that_are_missing_doubled_or_in_another_order_are_refused() {
    // So many keys that they are not all in one shard, whatever the hasher.
    let keyed = bytes_of(&std::array::from_fn::<_, 20, _>(|number| number.to_string()));
    let (head, mut rest) = keyed.split_at(11);
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize + 12;
        frames.push(&rest[..length]);
        rest = &rest[length..];
    }
    let joined = |frames: &[&[u8]]| [head, &frames.concat()].concat();
    assert!(frames.len() >= 4 && read(&joined(&frames)).is_ok());
    for left_out in 0..frames.len() {
        let mut frames = frames.clone();
        frames.remove(left_out);
        assert!(read(&joined(&frames)).is_err(), "without frame {left_out}");
    }
    let mut doubled = frames.clone();
    doubled.insert(1, frames[1]);
    assert!(read(&joined(&doubled)).is_err());
    let mut exchanged = frames.clone();
    exchanged.swap(1, 2);
    assert!(read(&joined(&exchanged)).is_err());
}

#[test]
fn what_is_no_state_is_told_apart() {
    let (limiter, keyed) = (limiter_bytes(), keyed_bytes());
    assert_eq!(LimiterState::from_bytes(b"quota = \"10/s\""), Err(StateError::Foreign));
    assert_eq!(LimiterState::from_bytes(b"{}"), Err(StateError::Foreign));
    assert_eq!(LimiterState::from_bytes(&keyed), Err(StateError::OtherType { found: "KeyedLimiter" }));
    assert_eq!(read(&limiter).unwrap_err(), StateError::OtherType { found: "Limiter" });
    let mut later = keyed.clone();
    later[8] = 9;
    assert_eq!(read(&later).unwrap_err(), StateError::Version { found: 9, known: 1 });
    let wrong_type = KeyedState::<u64>::read_from(&mut &keyed[..]).unwrap_err().to_string();
    assert!(
        wrong_type.starts_with("the saved state is damaged, in a key, or its keys are not of this type:"),
        "{wrong_type}"
    );
    assert_eq!(
        LimiterState::from_bytes(&[&limiter[..], b"x"].concat()),
        Err(StateError::Damaged { part: "what comes after its end" })
    );

    struct Broken;
    impl io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
    let error = KeyedState::<u64>::read_from(&mut Broken).unwrap_err();
    assert_eq!(error.to_string(), "the saved state cannot be read: the disk is gone");
}

#[test]
fn a_changed_state_in_json_is_refused() {
    let state = LimiterState::from_bytes(&limiter_bytes()).unwrap();
    let json = serde_json::to_string(&state).unwrap();
    assert!(json.contains(r#""quota":"10/h","tokens":8,"#), "{json}");
    for (old, new) in [(r#""tokens":8"#, r#""tokens":9"#), ("10/h", "11/h"), (r#""version":1"#, r#""version":2"#)] {
        let changed = json.replacen(old, new, 1);
        assert!(changed != json && serde_json::from_str::<LimiterState>(&changed).is_err(), "{changed}");
    }
}

#[test]
fn other_quotas_are_refused_with_both_and_what_to_do() {
    let state = LimiterState::from_bytes(&limiter_bytes()).unwrap();
    let text = |result: Result<Limiter, ConfigError>| result.unwrap_err().to_string();
    let build = || Limiter::builder().quota(Quota::per_hour(10)).restore(state.clone(), begin());
    assert_eq!(
        text(build().quota(Quota::new(3, super::SECOND)).build()),
        "quota 1 was `3/s, stepped` when the state was saved and is `3/s` now: build it with the saved one, or call \
         `convert` on the state"
    );
    assert!(text(build().build()).contains("quota 1 was `3/s, stepped` when the state was saved and is `none` now"));
    // How a bucket begins does not matter, nor how a quota is written.
    let same = Quota::per_hour(10).burst(10).initial(1);
    let built = Limiter::builder().quota(same).quota(Quota::new(3, super::SECOND).stepped());
    assert!(built.restore(state.clone(), begin()).build().is_ok());
    let twice = build().restore(state, begin()).build().unwrap_err();
    assert_eq!(twice, ConfigError::SetTwice { setting: "restore" });
}

#[test]
fn other_quotas_of_keys_are_refused_unless_the_state_converts() {
    let build = |quotas: Quotas, overflow: Quota, state: KeyedState<String>| {
        KeyedLimiter::builder().quotas(quotas).overflow(overflow).restore(state, begin()).build()
    };
    let (ten, one) = (Quota::per_hour(10), Quota::per_hour(1));
    let state = || read(&keyed_bytes()).unwrap();
    assert_eq!(state().quotas(), Some(&ten.into()));
    assert_eq!(state().saved_at(), begin());
    let error = build(Quota::per_hour(5).into(), one, state()).unwrap_err();
    assert!(error.to_string().starts_with("the common quota was `10/h` when the state was saved and is `5/h` now"));
    let error = build([ten, one].into(), one, state()).unwrap_err();
    assert!(error.to_string().contains("is `10/h; 1/h` now"), "{error}");
    let error = build(ten.into(), ten, state()).unwrap_err();
    assert!(error.to_string().starts_with("overflow was `1/h` when the state was saved and is `10/h` now"), "{error}");
    let none = KeyedLimiter::builder().quota(ten).restore(state(), begin()).build().unwrap_err();
    assert!(none.to_string().contains("and is `none` now"), "{none}");
    let by = KeyedLimiter::builder().quota_by(|_: &String| Quota::per_hour(4)).overflow(one);
    let by = by.restore(state(), begin()).build().unwrap_err();
    assert!(by.to_string().contains("and is `quota_by` now"), "{by}");

    let keyed = build(Quota::per_hour(5).into(), ten, state().convert()).unwrap();
    let available = |key: &str| keyed.available(&key.to_owned());
    assert_eq!((available("eve"), available("new")), (5, 5));
    assert_eq!(keyed.quotas(&"ann".to_owned()), [Quota::per_second(1), Quota::per_day(9)].into());
    let by = KeyedLimiter::builder().quota_by(|key: &String| Quota::per_hour(key.len() as u64 + 5)).overflow(one);
    let by = by.restore(state().convert(), begin()).build().unwrap();
    assert_eq!((by.available(&"eve".to_owned()), by.available(&"someone".to_owned())), (7, 12));
}

#[tokio::test]
#[cfg(feature = "distributed")]
async fn a_distributed_limiter_has_no_state() {
    let stores = tollgate::distributed::MemoryStore::new();
    let build = || Limiter::builder().quota(Quota::per_hour(10));
    let limiter = build().distributed(stores.clone()).build().unwrap();
    assert_eq!(limiter.state().unwrap_err(), StateError::Distributed);
    let state = build().build().unwrap().state().unwrap();
    let error = build().distributed(stores.clone()).restore(state, begin()).build().unwrap_err();
    assert_eq!(error, ConfigError::State(StateError::Distributed));
    let keyed = KeyedLimiter::<u64>::builder().quota(Quota::per_hour(10)).distributed(stores).build().unwrap();
    assert_eq!(keyed.save().unwrap_err(), StateError::Distributed);
}
