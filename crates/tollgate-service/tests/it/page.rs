//! The page for people: its data, its answers and what it makes of hostile values.

use crate::asked::*;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tollgate_service::page::Page;

const FILE: &str = "
domain: web
descriptors:
  - key: client
    detailed_metric: true
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: path
    value: /login
    rate_limit: {unit: hour, requests_per_unit: 0}
  - key: trial
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: quiet
    rate_limit: {unit: hour, requests_per_unit: 1}
";

struct Open {
    service: Arc<Service>,
    page: Page,
    health: Health,
    reloader: Arc<Reloader>,
}

fn open(file: &str) -> Open {
    let service = Arc::new(service(file));
    let health = Health::default();
    let paths = vec![PathBuf::from("/there/is/no/such.yaml")];
    let reloader = Reloader::new(Arc::clone(&service), health.clone(), paths, Options::default(), false, Vec::new());
    let reloader = Arc::new(reloader);
    let page = Page::new(Arc::clone(&service), health.clone(), Arc::clone(&reloader));
    Open { service, page, health, reloader }
}

impl Open {
    async fn ask(&self, text: &str, times: usize) {
        for _ in 0..times {
            self.service.decide(&request(text)).await.unwrap();
        }
    }

    /// Returns the data after a second and more, when no answer is kept.
    async fn data(&self) -> Value {
        tokio::time::advance(Duration::from_millis(1_500)).await;
        serde_json::from_str(&self.page.data()).unwrap()
    }
}

fn rule<'d>(data: &'d Value, title: &str) -> &'d Value {
    data["rules"].as_array().unwrap().iter().find(|rule| rule["rule"] == title).unwrap()
}

/// Returns the minutes with a count, from the newest: how many minutes ago, and the count.
fn minutes(list: &Value) -> Vec<(usize, u64)> {
    let counts = list.as_array().unwrap().iter().rev().map(|count| count.as_u64().unwrap());
    counts.enumerate().filter(|(_, count)| *count > 0).collect()
}

#[tokio::test(start_paused = true)]
async fn the_data_names_rules_values_and_reasons_of_the_last_hour() {
    let open = open(FILE);
    open.ask("web client=ann", 5).await;
    open.ask("web client=bob", 3).await;
    open.ask("web path=/login", 2).await;
    open.ask("web trial=x", 3).await;
    open.ask("nowhere x=y", 2).await;
    let data = open.data().await;
    let titles: Vec<_> = data["rules"].as_array().unwrap().iter().map(|rule| rule["rule"].as_str().unwrap()).collect();
    assert_eq!(
        titles,
        ["web.client", "web.path_/login", "web.trial"],
        "most refusals first, none that was not asked for"
    );
    let client = rule(&data, "web.client");
    assert_eq!((&client["limit"], &client["place"]), (&json!("2 per hour"), &json!("0.yaml:6")));
    assert_eq!(client["recent"], json!({"granted": 4, "shadow": 0, "reasons": {"over_limit": 4}}));
    assert_eq!(
        (&rule(&data, "web.trial")["mode"], &rule(&data, "web.trial")["hour"]["shadow"]),
        (&json!("shadow"), &json!(2))
    );
    let values: Vec<_> =
        data["values"].as_array().unwrap().iter().map(|value| (&value["value"], &value["reasons"])).collect();
    let over = |n: u32| json!({"over_limit": n});
    assert_eq!(values, [(&json!("ann"), &over(3)), (&json!(""), &over(2)), (&json!("bob"), &over(1))]);
    assert_eq!((minutes(&data["passed"]), minutes(&data["refused"])), (vec![(0, 9)], vec![(0, 6)]));
    assert_eq!((&data["unknown_domains"], &data["rules_loaded"], &data["waiting"]), (&json!(2), &json!(4), &json!(0)));

    tokio::time::advance(Duration::from_secs(6 * 60)).await;
    open.ask("web client=bob", 3).await;
    let data = open.data().await;
    let client = rule(&data, "web.client");
    assert_eq!(minutes(&client["refused"]), [(0, 3), (6, 4)]);
    assert_eq!((&client["recent"]["reasons"], &client["hour"]["reasons"]), (&over(3), &over(7)));
    assert_eq!(
        (&data["values"][0]["value"], &data["values"][0]["reasons"]),
        (&json!("bob"), &over(4)),
        "of both tables"
    );

    // The values of ten minutes ago are gone, and those of an hour ago are in no history.
    tokio::time::advance(Duration::from_secs(55 * 60)).await;
    let data = open.data().await;
    assert_eq!((minutes(&data["refused"]), &data["values"]), (vec![(55, 3)], &json!([])));
    tokio::time::advance(Duration::from_secs(300 * 60)).await;
    assert_eq!(minutes(&open.data().await["refused"]), []);
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_must_know_is_in_the_data() {
    let open = open(FILE);
    let data = open.data().await;
    assert_eq!((&data["problem"], &data["configuration"], &data["shadow"]), (&Value::Null, &json!([]), &json!(false)));
    open.reloader.look();
    open.health.drain();
    open.service.totals.note_outage(NOW);
    assert!(open.service.decide(&request("web")).await.is_err());
    let data = open.data().await;
    assert_eq!((&data["problem"], &data["errors"], &data["store_away"]), (&json!("draining"), &json!(1), &json!(1)));
    assert!(data["configuration"][0].as_str().unwrap().contains("no such file or directory: check the path"), "{data}");
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_shown_with_its_rule() {
    let limit = "{unit: minute, requests_per_unit: 1, burst: 1, wait: 90s, max_waiting: 1}";
    let open = open(&format!("{{domain: d, descriptors: [{{key: k, rate_limit: {limit}}}]}}"));
    open.ask("d k=v", 1).await;
    let (service, text) = (Arc::clone(&open.service), "d k=v");
    let waiting = tokio::spawn(async move { service.decide(&request(text)).await.unwrap().passes() });
    tokio::task::yield_now().await;
    open.ask("d k=v", 1).await;
    let data = open.data().await;
    let shown = rule(&data, "d.k");
    assert_eq!((&data["waiting"], &shown["waiting"]), (&json!(1), &json!(1)));
    assert_eq!(shown["limit"], "1 per minute, burst 1, waits up to 90s, at most 1 at a time");
    assert_eq!(shown["recent"]["reasons"], json!({"queue_full": 1}));
    assert!(waiting.await.unwrap());
    let data = open.data().await;
    let shown = rule(&data, "d.k");
    assert_eq!((&data["waiting"], &shown["waits"]), (&json!(0), &json!(2)));
    assert!(shown["wait_ms"].as_f64().unwrap() > 29_000.0, "{shown}");
}

#[tokio::test(start_paused = true)]
async fn hostile_values_are_short_visible_and_few() {
    let open = open(FILE);
    let long = format!("web client={}", "x".repeat(1 << 20));
    open.ask(&long, 3).await;
    let hostile = [
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("a\0b\nc\u{7f}", "a␀b␊c\\u{7f}"),
        ("\u{202e}evil\u{200b}", "\\u{202e}evil\\u{200b}"),
    ];
    for (value, _) in hostile {
        open.ask(&format!("web client={value}"), 4).await;
    }
    let data = open.data().await;
    let shown: Vec<_> =
        data["values"].as_array().unwrap().iter().map(|value| value["value"].as_str().unwrap()).collect();
    for (value, expected) in hostile {
        assert!(shown.contains(&expected), "{value:?} in {shown:?}");
    }
    assert!(shown.iter().any(|value| value.starts_with("xxx") && value.len() < 500), "{shown:?}");
    // The value of most refusals is found among thousands, and the answer stays small.
    for n in 0..3_000 {
        open.ask(&format!("web client={n}"), 3).await;
        open.ask("web client=<heavy>", 1).await;
    }
    let data = open.data().await;
    assert_eq!(data["values"][0]["value"], "<heavy>");
    assert!(data["values"][0]["reasons"]["over_limit"].as_u64().unwrap() > 2_900, "{data}");
    assert!(data["values"].as_array().unwrap().len() <= 20 && data.to_string().len() < 20_000);
}

#[tokio::test(start_paused = true)]
async fn a_file_of_many_rules_has_a_bounded_page() {
    let mut file = "domain: web\ndescriptors:\n".to_owned();
    (0..1_200)
        .for_each(|n| file.push_str(&format!("  - {{key: k{n}, rate_limit: {{unit: hour, requests_per_unit: 0}}}}\n")));
    let open = open(&file);
    for n in 0..1_200 {
        open.ask(&format!("web k{n}=v"), 1).await;
    }
    let data = open.data().await;
    assert_eq!(data["rules"].as_array().unwrap().len(), 100);
    assert_eq!((&data["rules_asked"], &data["rules_left_out"]), (&json!(1_000), &json!(200)));
    assert!(data.to_string().len() < 100_000);
}

#[tokio::test]
async fn the_port_of_the_page_answers_this_machine_and_runs_its_own_script_alone() {
    let Open { page, .. } = open(FILE);
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(page.serve(listener));
    let client = reqwest::Client::new();
    let get = async |path: &str, host: &str| {
        client.get(format!("http://{address}{path}")).header("host", host).send().await.unwrap()
    };
    for (host, status) in [
        ("localhost:9000", 200),
        ("127.0.0.1", 200),
        ("[::1]:9000", 200),
        ("[::1]", 200),
        ("evil.example:9000", 421),
        ("localhost.evil.example", 421),
        ("", 421),
    ] {
        assert_eq!(get("/data.json", host).await.status(), status, "{host}");
    }
    let answer = get("/data.json", "localhost").await;
    assert_eq!(
        (&answer.headers()["content-type"], &answer.headers()["x-content-type-options"]),
        (&"application/json".parse().unwrap(), &"nosniff".parse().unwrap())
    );
    let answer = get("/", "localhost").await;
    let policy = answer.headers()["content-security-policy"].to_str().unwrap().to_owned();
    let html = answer.text().await.unwrap();
    let nonce = policy.split_once("script-src 'nonce-").unwrap().1.split_once('\'').unwrap().0;
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!((nonce.len(), html.matches(nonce).count(), html.matches("NONCE").count()), (32, 2, 0));
    assert!(
        !html.contains("innerHTML") && !html.contains(" style=") && !html.contains("onclick"),
        "the policy forbids it"
    );
    let again = get("/", "localhost").await.headers()["content-security-policy"].clone();
    assert_ne!(again, policy.as_str());
    assert_eq!(client.post(format!("http://{address}/data.json")).send().await.unwrap().status(), 405);
    assert_eq!(get("/metrics", "localhost").await.status(), 404);
}
