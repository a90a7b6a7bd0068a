//! The environment of the reference.

use crate::asked::*;
use tollgate_service::settings::Settings;

fn read(variables: &[(&str, &str)]) -> Result<Settings, String> {
    let find = |name: &str| variables.iter().find(|(have, _)| *have == name).map(|(_, value)| (*value).to_owned());
    Settings::read(Vec::new(), &find)
}

#[test]
fn the_environment_of_the_reference_is_read() {
    let settings = read(&[]).unwrap();
    assert_eq!((settings.grpc.to_string(), settings.http.to_string()), ("0.0.0.0:8081".into(), "0.0.0.0:8080".into()));
    assert_eq!(settings.paths, [PathBuf::from("/srv/runtime_data/current/config")]);
    assert!(!settings.options.merge_domains && settings.manner.fields.is_none() && settings.notes.is_empty());
    let settings = read(&[
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("GRPC_HOST", "127.0.0.1"),
        ("GRPC_PORT", "9001"),
        ("MERGE_DOMAIN_CONFIG", "true"),
        ("SHADOW_MODE", "TRUE"),
        ("NEAR_LIMIT_RATIO", "0.5"),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
        ("LIMIT_RESET_HEADER", "X-Reset"),
        ("REDIS_URL", "redis:6379"),
        ("USE_STATSD", "false"),
        ("BACKEND_TYPE", "redis"),
    ])
    .unwrap();
    assert_eq!(settings.paths[0], Path::new("/data/ratelimit/config"));
    assert_eq!(settings.grpc.to_string(), "127.0.0.1:9001");
    assert!(settings.options.merge_domains && settings.manner.shadow);
    assert_eq!(settings.manner.fields.unwrap(), ["RateLimit-Limit", "RateLimit-Remaining", "X-Reset"]);
    assert_eq!(settings.store.as_deref(), Some("redis:6379"));
    assert!(settings.options.is_shared && settings.notes.is_empty(), "{:?}", settings.notes);
}

#[test]
fn a_wrong_variable_is_named_with_its_value_and_a_remedy() {
    for (name, value, remedy) in [
        ("GRPC_PORT", "eighty", "write a port"),
        ("HOST", "localhost", "write an IP address"),
        ("SHADOW_MODE", "perhaps", "write true or false"),
        ("NEAR_LIMIT_RATIO", "80", "write a number from 0 to 1"),
        ("LOG_LEVEL", "loud", "write error, warn"),
        ("DRAIN_TIME", "30", "write a time such as 30s"),
        ("GRPC_SERVER_USE_TLS", "true", "unset it"),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW", "unset it"),
        ("BACKEND_TYPE", "memcache", "unset it"),
    ] {
        let error = read(&[(name, value)]).unwrap_err();
        assert!(error.starts_with(&format!("{name}={value}: ")) && error.contains(remedy), "{error}");
    }
}

#[test]
fn the_page_is_off_unless_asked_for_and_local_unless_told_otherwise() {
    for (variables, page) in [
        (&[][..], None),
        (&[("PAGE_HOST", "0.0.0.0")], None),
        (&[("PAGE_PORT", "9000")], Some("127.0.0.1:9000")),
        (&[("PAGE_PORT", "9000"), ("PAGE_HOST", "0.0.0.0")], Some("0.0.0.0:9000")),
    ] {
        assert_eq!(read(variables).unwrap().page.map(|page| page.to_string()).as_deref(), page);
    }
}

#[test]
#[cfg(feature = "redis")]
fn a_password_of_redis_may_have_any_character() {
    use redis::IntoConnectionInfo;
    for (auth, user, password) in [
        ("secret", None, "secret"),
        ("p@ss/w#rd?%41", None, "p@ss/w#rd?%41"),
        ("ann:a:b@c", Some("ann"), "a:b@c"),
        ("\u{e4}", None, "\u{e4}"),
    ] {
        let url = read(&[("REDIS_URL", "host:6380"), ("REDIS_AUTH", auth)]).unwrap().store.unwrap();
        let info = url.into_connection_info().unwrap();
        let settings = info.redis_settings();
        assert_eq!((settings.username(), settings.password()), (user, Some(password)));
        assert_eq!(info.addr().to_string(), "host:6380");
    }
}
