//! The examples of the reference's README, and the rules of its documentation and test configurations: which requests
//! pass. The files here are written anew, with the same meaning.

use crate::asked::{self, *};
use prost::Message;
use tollgate_service::meter::MOST_DYNAMIC;
use tollgate_service::proto::{LimitOverride, Unit};

/// A configuration, and for each request in turn how many of how many pass.
struct Case {
    name: &'static str,
    file: &'static str,
    passes: &'static [(&'static str, usize, usize)],
}

const CASES: &[Case] = &[
    Case {
        name: "example 1: values with limits of their own, and no limit for others",
        file: "{domain: mongo, descriptors: [{key: database, value: users, rate_limit: {unit: second, requests_per_unit: 500}}, \
               {key: database, value: default, rate_limit: {unit: second, requests_per_unit: 500}}]}",
        passes: &[
            ("mongo database=users", 501, 500),
            ("mongo database=default", 501, 500),
            ("mongo database=other", 600, 600),
            ("unknown database=users", 600, 600),
        ],
    },
    Case {
        name: "example 2: nested descriptors, each number apart, and two descriptors in a request",
        file: "{domain: messaging, descriptors: [\
               {key: type, value: marketing, descriptors: [{key: to, rate_limit: {unit: day, requests_per_unit: 5}}]}, \
               {key: to, rate_limit: {unit: day, requests_per_unit: 100}}]}",
        passes: &[
            ("messaging type=marketing,to=1", 6, 5),
            ("messaging type=marketing,to=2", 6, 5),
            ("messaging type=other,to=2", 9, 9),
            ("messaging to=1", 99, 99),
            // Over for the narrow rule, and charged by the wide one, whose 100th it is.
            ("messaging type=marketing,to=1 to=1", 1, 0),
            ("messaging to=1", 1, 0),
            ("messaging to=3", 101, 100),
        ],
    },
    Case {
        name: "example 3: the value comes before the key alone; 0 refuses all",
        file: "{domain: edge, descriptors: [{key: remote_address, rate_limit: {unit: second, requests_per_unit: 10}}, \
               {key: remote_address, value: 50.0.0.5, rate_limit: {unit: second, requests_per_unit: 0}}]}",
        passes: &[("edge remote_address=50.0.0.1", 11, 10), ("edge remote_address=50.0.0.5", 3, 0)],
    },
    Case {
        name: "example 4: a rule matches descriptors of its own depth",
        file: "{domain: deep, descriptors: [{key: key, value: value, descriptors: [{key: subkey, rate_limit: \
               {requests_per_unit: 3, unit: second}}]}]}",
        passes: &[
            ("deep key=value", 9, 9),
            ("deep key=value,subkey=x", 4, 3),
            ("deep key=value,subkey=y", 4, 3),
            ("deep key=value,subkey=x,more=1", 9, 9),
            ("deep subkey=x", 9, 9),
        ],
    },
    Case {
        name: "example 5: unlimited",
        file: "{domain: internal, descriptors: [{key: ldap, rate_limit: {unlimited: true}}, \
               {key: azure, rate_limit: {unit: minute, requests_per_unit: 100}}]}",
        passes: &[("internal ldap=1", 500, 500), ("internal azure=1", 101, 100)],
    },
    Case {
        name: "example 6: a rule in shadow mode refuses nothing",
        file: "{domain: shadow, descriptors: [{key: service, descriptors: [\
               {key: user, value: a, rate_limit: {requests_per_unit: 10, unit: second}, shadow_mode: true}, \
               {key: user, value: b, rate_limit: {requests_per_unit: 20, unit: second}}]}]}",
        passes: &[("shadow service=auth,user=a", 50, 50), ("shadow service=auth,user=b", 50, 20)],
    },
    Case {
        name: "example 7: a rule that replaces another",
        file: "{domain: replace, descriptors: [\
               {key: one, value: v, descriptors: [{key: user, value: ann, rate_limit: {name: narrow, requests_per_unit: 5, unit: hour}}]}, \
               {key: two, value: v, descriptors: [{key: user, value: ann, rate_limit: {replaces: [{name: narrow}], requests_per_unit: 10, unit: hour}}]}]}",
        passes: &[
            ("replace one=v,user=ann two=v,user=ann", 11, 10),
            // The replaced rule was not charged.
            ("replace one=v,user=ann", 6, 5),
        ],
    },
    Case {
        name: "example 9: * at the end, in the middle, and several",
        file: "{domain: wild, descriptors: [{key: a, value: value*, rate_limit: {unit: minute, requests_per_unit: 2}}, \
               {key: p, value: /api/*/action, rate_limit: {unit: minute, requests_per_unit: 2}}, \
               {key: r, value: /api/*/res/*/act, rate_limit: {unit: minute, requests_per_unit: 2}}]}",
        passes: &[
            ("wild a=value1", 3, 2),
            ("wild a=value2", 3, 2),
            ("wild a=value", 3, 2),
            ("wild a=valu", 3, 3),
            ("wild p=/api/1/action", 3, 2),
            ("wild p=/api/1/other", 3, 3),
            ("wild r=/api/1/res/2/act", 3, 2),
            ("wild r=/api/1/res/act", 3, 3),
            ("wild r=/api//res//act", 3, 2),
        ],
    },
    Case {
        name: "example 11: values with * share one limit, or have one each",
        file: "{domain: files, descriptors: [\
               {key: f, value: files/*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 10}}, \
               {key: g, value: files/*, share_threshold: false, rate_limit: {unit: hour, requests_per_unit: 10}}]}",
        passes: &[
            ("files f=files/a", 5, 5),
            ("files f=files/b", 5, 5),
            ("files f=files/c", 1, 0),
            ("files g=files/a", 11, 10),
            ("files g=files/b", 11, 10),
        ],
    },
    Case {
        name: "the value itself comes before *, the first * before later ones, and * before the key alone",
        file: "{domain: order, descriptors: [{key: f, rate_limit: {unit: hour, requests_per_unit: 1}}, \
               {key: f, value: t*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 3}}, \
               {key: f, value: te*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 4}}, \
               {key: f, value: test, rate_limit: {unit: hour, requests_per_unit: 2}}]}",
        passes: &[("order f=test", 9, 2), ("order f=tea", 9, 3), ("order f=tip", 9, 0), ("order f=x", 9, 1)],
    },
    Case {
        name: "a value without a limit is exempt, and a limit may have others in it",
        file: "{domain: basic, descriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 2}}, {key: k, value: free}, \
               {key: n, value: v, rate_limit: {unit: day, requests_per_unit: 1}, descriptors: [\
               {key: s, value: w, rate_limit: {unit: day, requests_per_unit: 2}}]}]}",
        passes: &[
            ("basic k=free", 9, 9),
            ("basic k=other", 9, 2),
            ("basic n=v", 9, 1),
            ("basic n=v,s=w", 9, 2),
            ("basic n=v,s=x", 9, 9),
        ],
    },
    Case {
        name: "levels that share and levels that do not",
        file: "{domain: mixed, descriptors: [{key: path, value: p/*, share_threshold: true, descriptors: [\
               {key: file, value: f/*, descriptors: [{key: type, rate_limit: {unit: minute, requests_per_unit: 2}}]}]}]}",
        passes: &[
            ("mixed path=p/1,file=f/1,type=t", 1, 1),
            ("mixed path=p/2,file=f/1,type=t", 2, 1),
            ("mixed path=p/1,file=f/2,type=t", 3, 2),
            ("mixed path=p/1,file=f/1,type=u", 3, 2),
        ],
    },
    Case {
        name: "several values in a key are kept apart",
        file: "{domain: apart, descriptors: [{key: a, descriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 1}}]}]}",
        passes: &[
            ("apart a=xy,b=z", 2, 1),
            ("apart a=x,b=yz", 2, 1),
            ("apart a=,b=xyz", 2, 1),
            ("apart a=xyz,b=", 2, 1),
        ],
    },
    Case {
        name: "rules in quota mode refuse together",
        file: "{domain: quota, descriptors: [\
               {key: s, value: one, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}, metadata: {any: [1, {x: y}]}}, \
               {key: s, value: two, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 3}}]}",
        passes: &[("quota s=one s=two", 9, 3), ("quota s=one", 1, 0)],
    },
];

#[tokio::test(start_paused = true)]
async fn requests_pass_as_the_reference_documents() {
    for case in CASES {
        let service = service(case.file);
        for (text, asked, expected) in case.passes {
            assert_eq!(passed(&service, text, *asked).await, *expected, "{}: {text}", case.name);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn windows_count_from_1970() {
    // Ten seconds have passed of each window but those of a week, which began on a Thursday too, a month and a year.
    let seconds = 1_767_225_610_u64;
    for unit in Unit::ALL {
        let file = format!(
            "{{domain: d, descriptors: [{{key: k, rate_limit: {{unit: {}, requests_per_unit: 2}}}}]}}",
            unit.name()
        );
        let service = service(&file);
        let left = unit.seconds() - seconds % unit.seconds();
        assert_eq!(passed(&service, "d k=v", 3).await, 2, "{unit:?}");
        let status = &ask(&service, "d k=v").await.response.statuses[0];
        assert_eq!(status.duration_until_reset.unwrap().seconds as u64, left, "{unit:?}");
        advance(Duration::from_secs(left) - Duration::from_millis(1)).await;
        assert_eq!(passed(&service, "d k=v", 3).await, 0, "{unit:?}");
        advance(Duration::from_millis(1)).await;
        assert_eq!(passed(&service, "d k=v", 3).await, 2, "{unit:?}");
        // A value that was not there before has the same windows.
        assert_eq!(passed(&service, "d k=w", 3).await, 2, "{unit:?}");
        advance(Duration::from_secs(unit.seconds())).await;
        assert_eq!(passed(&service, "d k=w", 3).await, 2, "{unit:?}");
    }
}

const TEN: &str = "{domain: d, descriptors: [{key: k, rate_limit: {name: ten, unit: minute, requests_per_unit: 10}}]}";

async fn ask_for(service: &Service, of_request: u32, of_descriptor: Option<u64>) -> (String, u32) {
    let mut request = request("d k=v");
    request.hits_addend = of_request;
    request.descriptors[0].hits_addend = of_descriptor.map(|value| UInt64Value { value });
    let answer = service.decide(&request).await.unwrap();
    (codes(&answer), answer.response.statuses[0].limit_remaining)
}

#[tokio::test(start_paused = true)]
async fn hits_of_request_and_descriptor_are_charged() {
    let service = service(TEN);
    let ok = |left| ("ok : ok".to_owned(), left);
    let over = ("over : over".to_owned(), 0);
    assert_eq!(ask_for(&service, 0, None).await, ok(9));
    assert_eq!(ask_for(&service, 3, None).await, ok(6));
    assert_eq!(ask_for(&service, 3, Some(2)).await, ok(4));
    assert_eq!(ask_for(&service, 3, Some(0)).await, ok(4));
    // A refused request takes the rest of the window, as a counter that goes on counting does.
    assert_eq!(ask_for(&service, 5, None).await, over);
    assert_eq!(ask_for(&service, 1, None).await, over);
    for _ in 0..2 {
        assert_eq!(ask_for(&service, 4_000_000_000, Some(u64::MAX)).await, over);
    }
    let hits = service.meters.all()[0].1.total_hits.load(Ordering::Relaxed);
    assert!(hits > 1 << 33, "a counter does not go back: {hits}");
    advance(Duration::from_secs(50)).await;
    assert_eq!(ask_for(&service, 10, None).await, ok(0));
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_the_request_takes_the_place_of_the_configured_one() {
    let service = service(TEN);
    let mut request = request("d k=v");
    request.descriptors[0].limit = Some(LimitOverride { requests_per_unit: 2, unit: Unit::Hour as i32 });
    for expected in ["ok : ok", "ok : ok", "over : over"] {
        let answer = service.decide(&request).await.unwrap();
        assert_eq!(codes(&answer), expected);
        let limit = answer.response.statuses[0].current_limit.as_ref().unwrap();
        assert_eq!((limit.requests_per_unit, limit.unit), (2, Unit::Hour as i32));
    }
    request.descriptors[0].entries[0].value = "w".into();
    assert_eq!(codes(&service.decide(&request).await.unwrap()), "ok : ok");
    request.descriptors[0].limit = Some(LimitOverride { requests_per_unit: 2, unit: 9 });
    assert!(service.decide(&request).await.unwrap_err().to_string().contains("unit 9"));
    assert_eq!(passed(&service, "d k=v", 11).await, 10, "the configured limit was not charged");
    for descriptor in [format!("{}=v", "k".repeat(1 << 20)), format!("k=v{}", ",=v".repeat(1 << 10))] {
        request.descriptors = asked::request(&format!("d {descriptor}")).descriptors;
        request.descriptors[0].limit = Some(LimitOverride { requests_per_unit: 2, unit: Unit::Hour as i32 });
        assert!(service.decide(&request).await.unwrap_err().to_string().contains("the most is 1024"));
    }
}

#[tokio::test(start_paused = true)]
async fn global_quota_mode_is_that_of_all_limits() {
    let service = service_with(TEN, Manner { quota: true, ..Manner::default() });
    let mut request = request("d k=v k=w");
    request.descriptors[1].limit = Some(LimitOverride { requests_per_unit: 2, unit: Unit::Hour as i32 });
    request.descriptors[0].hits_addend = Some(UInt64Value { value: 2 });
    let mut said = Vec::new();
    for _ in 0..6 {
        said.push(codes(&service.decide(&request).await.unwrap()));
    }
    assert_eq!(said[..2], ["ok : ok ok"; 2]);
    assert_eq!(said[2..5], ["ok : ok over"; 3], "one of two passes");
    assert_eq!(said[5], "over : over over");
}

#[tokio::test(start_paused = true)]
async fn statuses_say_limit_remaining_and_reset() {
    let service = service(TEN);
    let status = ask(&service, "d k=v").await.response.statuses.remove(0);
    let limit = status.current_limit.unwrap();
    assert_eq!((limit.name.as_str(), limit.requests_per_unit, limit.unit), ("ten", 10, Unit::Minute as i32));
    assert_eq!((status.limit_remaining, status.duration_until_reset.unwrap().seconds), (9, 50));
    let none = ask(&service, "d other=v").await.response.statuses.remove(0);
    assert_eq!((none.code, none.current_limit, none.limit_remaining), (Code::Ok as i32, None, 0));
}

#[tokio::test(start_paused = true)]
async fn an_unlimited_descriptor_has_the_largest_number_left() {
    let service = service("{domain: d, descriptors: [{key: k, rate_limit: {unlimited: true}}]}");
    let status = ask(&service, "d k=v").await.response.statuses.remove(0);
    assert_eq!((status.limit_remaining, status.current_limit), (u32::MAX, None));
}

#[tokio::test(start_paused = true)]
async fn header_fields_are_those_of_the_tightest_limit() {
    let file = "{domain: d, descriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 10}}, \
                {key: l, rate_limit: {unit: minute, requests_per_unit: 2}}]}";
    let fields = Some(["Limit", "Remaining", "Reset"].map(String::from));
    let service = service_with(file, Manner { fields, ..Manner::default() });
    let answer = ask(&service, "d k=v l=v").await;
    let fields: Vec<_> =
        answer.response.response_headers_to_add.iter().map(|field| (&*field.key, &*field.value)).collect();
    assert_eq!(fields, [("Limit", "2"), ("Remaining", "1"), ("Reset", "50")]);
}

#[tokio::test(start_paused = true)]
async fn global_shadow_mode_passes_all_and_counts() {
    let service = service_with(TEN, Manner { shadow: true, ..Manner::default() });
    assert_eq!(passed(&service, "d k=v", 12).await, 12);
    assert_eq!(codes(&ask(&service, "d k=v").await), "ok : over");
    assert_eq!(service.totals.shadowed.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn metrics_have_the_names_of_the_reference() {
    // Examples 8, 10 and 11, and the combinations of its test configurations.
    let limit = "rate_limit: {unit: minute, requests_per_unit: 60}";
    let cases = [
        ("[{key: k, detailed_metric: true, LIMIT}]", "d k=any", "d.k_any"),
        ("[{key: k, LIMIT}]", "d k=any", "d.k"),
        ("[{key: k, value: v, LIMIT}]", "d k=v", "d.k_v"),
        (
            "[{key: r, value_to_metric: true, descriptors: [{key: m, value_to_metric: true, descriptors: [{key: s, LIMIT}]}]}]",
            "d r=api,m=GET,s=1",
            "d.r_api.m_GET.s",
        ),
        (
            "[{key: u, value_to_metric: true, descriptors: [{key: a, value: read*, value_to_metric: true, descriptors: [{key: s, LIMIT}]}]}]",
            "d u=ann,a=readfile,s=1",
            "d.u_ann.a_readfile.s",
        ),
        ("[{key: a, value: read*, LIMIT}]", "d a=readfile", "d.a_read*"),
        (
            "[{key: r, value: api/*, share_threshold: true, value_to_metric: true, descriptors: [{key: m, LIMIT}]}]",
            "d r=api/v1,m=GET",
            "d.r_api/*.m",
        ),
        (
            "[{key: r, value: api/*, share_threshold: true, descriptors: [{key: m, detailed_metric: true, LIMIT}]}]",
            "d r=api/v1,m=GET",
            "d.r_api/*.m_GET",
        ),
    ];
    for (descriptors, text, expected) in cases {
        let descriptors = descriptors.replace("LIMIT", limit);
        let service = service(&format!("{{domain: d, descriptors: {descriptors}}}"));
        ask(&service, text).await;
        assert_eq!(hits(&service), [format!("{expected} 1")], "{descriptors}");
    }
}

#[test]
fn metrics_with_values_are_bounded_and_all_others_leave_them_room() {
    let meters = Meters::default();
    let rule = meters.get(&["rule".to_owned()]);
    (0..MOST_DYNAMIC).for_each(|n| drop(meters.get(&[n.to_string()])));
    let is_apart = |n: &usize| !Arc::ptr_eq(&meters.get_dynamic(&["rule".to_owned(), n.to_string()], &rule), &rule);
    assert_eq!((0..MOST_DYNAMIC + 9).filter(is_apart).count(), MOST_DYNAMIC);
    assert!(is_apart(&0) && !is_apart(&MOST_DYNAMIC), "those that are there stay");
}

#[tokio::test(start_paused = true)]
async fn counters_count_as_those_of_the_reference() {
    for file in [TEN, &TEN.replace("domain: d", "domain: d, all_or_nothing: true")] {
        let service = service(file);
        for _ in 0..12 {
            ask(&service, "d k=v").await;
        }
        ask_for(&service, 5, None).await;
        let (_, meter) = service.meters.all().remove(0);
        let counts = [&meter.total_hits, &meter.within_limit, &meter.near_limit, &meter.over_limit, &meter.shadow_mode];
        assert_eq!(counts.map(|counter| counter.load(Ordering::Relaxed)), [17, 10, 2, 7, 0], "{file}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_that_is_not_text_has_the_limit_of_its_key() {
    let limit = "rate_limit: {unit: hour, requests_per_unit: 1}";
    let service = service(&format!(
        "{{domain: d, descriptors: [{{key: k, {limit}}}, {{key: p, value: a*, share_threshold: true, {limit}}}]}}"
    ));
    // Envoy sends the bytes of a header field as they are, and lets a request pass that the service cannot read.
    for (text, passes) in [("d k=a~", true), ("d k=a~", false), ("d k=b~", true), ("d p=a~", true), ("d p=a~~", false)]
    {
        let bytes = request(text).encode_to_vec().into_iter().map(|byte| if byte == b'~' { 0xff } else { byte });
        let request = RateLimitRequest::decode(&*bytes.collect::<Vec<_>>()).unwrap();
        assert_eq!(service.decide(&request).await.unwrap().passes(), passes, "{text}");
    }
}

/// Short and long keys are kept in different ways, and very long ones are shortened.
#[tokio::test(start_paused = true)]
async fn values_count_apart_however_long_they_are() {
    let limit = "rate_limit: {unit: hour, requests_per_unit: 1}";
    let service = service(&format!(
        "{{domain: d, descriptors: [{{key: k, {limit}}}, {{key: a, descriptors: [{{key: b, {limit}}}]}}]}}"
    ));
    for length in [0, 1, 21, 22, 23, 24, 255, 256, 257, 300] {
        let long = "x".repeat(length);
        for end in ["", "y", "\0", "yz"] {
            assert_eq!(passed(&service, &format!("d k={long}-{end}"), 2).await, 1, "{length} and {end:?}");
            assert_eq!(passed(&service, &format!("d a={long},b=-{end}"), 2).await, 1, "{length} and {end:?}");
        }
    }
}
