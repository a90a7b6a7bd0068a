//! What `contrib` has besides proxies: the unit, the manifests, the dashboard and the alerts.

use crate::asked::*;
use crate::ports::run;
use std::collections::BTreeSet;
use std::process::Command;
use tollgate_service::yaml::{self, Node, Value, scalar};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

/// Runs a program that must succeed and not complain. If it is not installed, nothing is checked.
fn lint(program: &str, arguments: &[&str]) {
    match Command::new(program).args(arguments).output() {
        Err(_) => eprintln!("{program} is not installed: NOT CHECKED"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{program} {arguments:?}: {output:?}");
        }
    }
}

#[test]
fn the_files_pass_the_programs_that_read_them() {
    let manifests = path("kubernetes.yaml");
    lint("kubectl", &["label", "--local", "-f", manifests.to_str().unwrap(), "-o", "name", "checked=yes"]);
    lint("promtool", &["check", "rules", path("alerts.yaml").to_str().unwrap()]);
    lint("promtool", &["test", "rules", path("alerts.test.yaml").to_str().unwrap()]);
    // The unit names the place where the program is installed.
    let directory = std::env::temp_dir().join(format!("tollgate-service-{}-unit", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let unit = directory.join("tollgate-service.service");
    let program = env!("CARGO_BIN_EXE_tollgate-service");
    std::fs::write(&unit, text("tollgate-service.service").replace("/usr/local/bin/tollgate-service", program))
        .unwrap();
    lint("systemd-analyze", &["verify", unit.to_str().unwrap()]);
    lint("systemd-analyze", &["security", "--offline=true", "--threshold=15", "--no-pager", unit.to_str().unwrap()]);
    std::fs::remove_dir_all(&directory).unwrap();
}

fn get<'n>(node: &'n Node, name: &str) -> &'n Node {
    let Value::Map(entries) = &node.value else { panic!("{node:?} is no map with {name}") };
    &entries.iter().find(|(key, _)| scalar(key) == Some(name)).unwrap_or_else(|| panic!("no {name}")).1
}

fn items(node: &Node) -> &[Node] {
    let Value::List(items) = &node.value else { panic!("{node:?} is no list") };
    items
}

#[test]
fn the_manifests_fit_each_other_and_the_service() {
    let source = Arc::new(Source { name: "kubernetes.yaml".into(), text: text("kubernetes.yaml") });
    let documents = yaml::read(&source).unwrap();
    let [limits, deployment, service] = &*documents else { panic!("{} documents", documents.len()) };
    let file = scalar(get(get(limits, "data"), "limits.yaml")).unwrap();
    load(&[file], &Meters::default()).unwrap();
    let pod = get(get(get(deployment, "spec"), "template"), "spec");
    let container = &items(get(pod, "containers"))[0];
    let names =
        |list: &Node| items(list).iter().map(|port| scalar(get(port, "name")).unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(get(container, "ports")), names(get(get(service, "spec"), "ports")));
    assert_eq!(scalar(get(get(get(container, "readinessProbe"), "httpGet"), "path")), Some("/healthz"));
    let number = |node: &Node| scalar(node).unwrap().trim_end_matches('s').parse::<u32>().unwrap();
    let drain = items(get(container, "env")).iter().find(|one| scalar(get(one, "name")) == Some("DRAIN_TIME")).unwrap();
    let sleep = &items(get(get(get(get(container, "lifecycle"), "preStop"), "exec"), "command"))[1];
    assert!(number(get(pod, "terminationGracePeriodSeconds")) > number(get(drain, "value")) + number(sleep));
}

/// Returns the metrics of this service that a text names.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("tollgate_service_") || word.starts_with("ratelimit_service_")).collect()
}

#[tokio::test]
async fn the_dashboard_and_the_alerts_name_metrics_that_exist() {
    let running = run("{domain: d, descriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 1}}]}").await;
    let exposed = reqwest::get(format!("http://{}/metrics", running.http)).await.unwrap().text().await.unwrap();
    let mut names = BTreeSet::new();
    for line in exposed.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (family, kind) = line.split_once(' ').unwrap();
        let ends: &[&str] = match kind {
            "counter" => &["_total"],
            "summary" => &["_count", "_sum"],
            _ => &[""],
        };
        names.extend(ends.iter().map(|end| format!("{family}{end}")));
    }
    let dashboard = text("grafana.json");
    serde_json::from_str::<serde_json::Value>(&dashboard).unwrap();
    for (file, least) in [(dashboard, 12), (text("alerts.yaml"), 8), (text("alerts.test.yaml"), 3)] {
        let used = metrics(&file);
        assert!(used.len() >= least, "{used:?}");
        let unknown: Vec<_> = used.iter().filter(|name| !names.contains(**name)).collect();
        assert!(unknown.is_empty(), "{unknown:?} of {names:?}");
    }
}
