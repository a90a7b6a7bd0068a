//! Real proxies in front of the service, with the configurations of `contrib`.

use crate::asked::*;
use crate::ports::{Running, run};
use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const FILE: &str = "
domain: d
http:
  - {client: header X-Client}
  - {path: path, method: method, address: address}
descriptors:
  - key: client
    value: slow
    rate_limit: {unit: second, requests_per_unit: 20, burst: 1, wait: 20s}
  - key: client
    rate_limit: {unit: year, requests_per_unit: 2}
  - key: path
    value: /private*
    descriptors:
      - key: method
        value: GET
        descriptors:
          - {key: address, value: 127.0.0.1, rate_limit: {unit: year, requests_per_unit: 0}}
";

/// A proxy that runs, with files of its own.
struct Proxy {
    child: Child,
    directory: PathBuf,
    address: SocketAddr,
    service: Running,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // A worker of nginx ends with its master if that is asked to end.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// An application that takes what stricter servers refuse.
async fn answer_all(application: tokio::net::TcpListener) {
    while let Ok((mut stream, _)) = application.accept().await {
        tokio::spawn(async move {
            let mut read = Vec::new();
            while ![&b"\r\n\r\n"[..], b"data"].iter().any(|end| read.ends_with(end)) {
                if stream.read_buf(&mut read).await? == 0 {
                    return Ok(());
                }
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello").await
        });
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts a proxy. `None` if the program is not installed, unless `TOLLGATE_PROXIES` says that it has to be.
async fn start(program: &str, config: &str, arguments: &[&str]) -> Option<Proxy> {
    let known = ["/usr/sbin", "/usr/bin", "/usr/local/bin"].map(|directory| Path::new(directory).join(program));
    let Some(program) = known.iter().find(|path| path.exists()) else {
        assert!(std::env::var_os("TOLLGATE_PROXIES").is_none(), "{program} is not installed");
        eprintln!("{program} is not installed: NOT CHECKED");
        return None;
    };
    let service = run(FILE).await;
    let application = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let application_address = application.local_addr().unwrap();
    tokio::spawn(answer_all(application));

    let directory = std::env::temp_dir().join(format!("tollgate-service-{}-{config}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let contrib = Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib");
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("\n    {name}_temp_path {};", directory.join(name).display()))
        .concat();
    for name in [config, "limits.lua"] {
        let text = fs::read_to_string(contrib.join(name)).unwrap();
        let text = text
            .replace("127.0.0.1:8080", &service.http.to_string())
            .replace("127.0.0.1:3000", &application_address.to_string())
            .replace("8000", &address.port().to_string())
            .replace("contrib/limits.lua", &directory.join("limits.lua").display().to_string())
            .replace("http {", &format!("http {{{temporary}"));
        fs::write(directory.join(name), text).unwrap();
    }
    let file = directory.join(config);
    let arguments = arguments.iter().map(|argument| argument.replace("FILE", &file.display().to_string()));
    let log = fs::File::create(directory.join("log")).unwrap();
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&directory).env("HOME", &directory).env("XDG_DATA_HOME", &directory);
    let child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
    let proxy = Proxy { child, directory, address, service };
    for _ in 0..200 {
        if TcpStream::connect(address).await.is_ok() {
            return Some(proxy);
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("{program:?} does not listen: {}", fs::read_to_string(proxy.directory.join("log")).unwrap());
}

/// `if_away` is the status of the answers when the service has ended.
async fn check(proxy: Option<Proxy>, if_away: u16) {
    let Some(mut proxy) = proxy else { return };
    let client = reqwest::Client::new();
    let get = |path: &str, name: &str| client.get(format!("http://{}{path}", proxy.address)).header("X-Client", name);
    for expected in [200, 200, 429, 429] {
        let answer = get("/", "ann").send().await.unwrap();
        let log = || fs::read_to_string(proxy.directory.join("log")).unwrap();
        assert_eq!(answer.status(), expected, "{}", log());
        if expected == 429 {
            let after: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
            assert!((1..=366 * 86_400).contains(&after));
        } else {
            assert_eq!(answer.text().await.unwrap(), "hello");
        }
    }
    assert_eq!(get("/", "bob").send().await.unwrap().status(), 200, "another client");
    assert_eq!(get("/private/x?y", "cid").send().await.unwrap().status(), 429, "by path, method and address");
    let forged = [("X-Forwarded-Uri", "/"), ("X-Forwarded-Method", "POST"), ("X-Forwarded-For", "192.0.2.1")];
    let forged = forged.iter().fold(get("/private/x", "cid"), |request, (name, value)| request.header(*name, *value));
    assert_eq!(forged.send().await.unwrap().status(), 429, "a client says nothing about itself");
    // What the service cannot read gets no client around its limit.
    let many = |count: usize| (0..count).map(|n| format!("X-{n}: y\r\n")).collect::<String>();
    let long = format!("X: {}\r\n", "y".repeat(7_000));
    let hosts = ["h", &"h".repeat(7_000)];
    for fields in ["X: \u{1}\r\n", "X-Client: \u{7f}\r\n", &many(75), &many(90), &many(97), &many(150), &long] {
        for host in hosts {
            let mut stream = TcpStream::connect(proxy.address).await.unwrap();
            let request = format!("GET /private/x HTTP/1.1\r\nHost: {host}\r\n{fields}Connection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 4"), "{fields:?}: {answer}");
        }
    }
    let post = client.post(format!("http://{}/private/x?y", proxy.address)).body("data");
    assert_eq!(post.send().await.unwrap().status(), 200);
    // Ten at once, for 20 per second, one at once: all of them wait and pass.
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        let request = get("/", "slow");
        tasks.spawn(async move { request.send().await.unwrap().status().as_u16() });
    }
    assert_eq!(tasks.join_all().await, [200; 10]);
    proxy.service.end.send(true).unwrap();
    (&mut proxy.service.served).await.unwrap();
    let answer = client.get(format!("http://{}/", proxy.address)).header("X-Client", "ann").send().await.unwrap();
    assert_eq!(answer.status(), if_away);
}

#[tokio::test]
async fn nginx_asks_and_waits() {
    let settings = "daemon off; error_log stderr; pid nginx.pid;";
    check(start("nginx", "nginx.conf", &["-p", ".", "-c", "FILE", "-g", settings]).await, 200).await;
}

#[tokio::test]
async fn caddy_asks_and_waits() {
    check(start("caddy", "Caddyfile", &["run", "--adapter", "caddyfile", "--config", "FILE"]).await, 502).await;
}

#[tokio::test]
async fn haproxy_asks_and_waits() {
    check(start("haproxy", "haproxy.cfg", &["-db", "-f", "FILE"]).await, 200).await;
}
