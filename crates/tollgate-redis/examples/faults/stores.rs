//! The stores of the nodes: in one Redis, in a cluster, behind sentinels, or in PostgreSQL.

use crate::Failure;
use crate::node::{self, Connected, connections};
use crate::work::Work;
use clap::{Parser, ValueEnum};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use tollgate_postgres::PostgresStore;
use tollgate_redis::RedisStore;

/// The sentinels' name for the master.
pub(crate) const MASTER: &str = "fleet";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Redis,
    Cluster,
    Sentinels,
    Postgres,
}

/// The options of a node's process.
#[derive(Clone, Debug, Parser)]
struct Options {
    #[command(flatten)]
    work: Work,
    #[arg(long)]
    store: Kind,
    /// The name of the store
    #[arg(long)]
    name: String,
    #[arg(long)]
    quota_version: u32,
}

/// A command that runs a node with a store of this kind; [`Work::tell`] adds what the node does.
pub(crate) fn node_command(kind: Kind, name: &str, quota_version: u32) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    let kind = kind.to_possible_value().expect("no kind is skipped");
    command.args(["--store", kind.get_name(), "--name", name, "--quota-version", &quota_version.to_string()]);
    Ok(command)
}

/// Runs in the process of a node.
pub(crate) fn run_node() -> Result<ExitCode, Failure> {
    let options = Options::parse();
    node::run(&options.work, connect(&options))?;
    Ok(ExitCode::SUCCESS)
}

async fn connect(options: &Options) -> Result<Connected, Failure> {
    let Options { store, name, quota_version, .. } = options;
    let address = options.work.node.as_deref().ok_or("a node needs an address")?;
    let store = match store {
        Kind::Redis => RedisStore::connect(address, name).await?,
        Kind::Cluster => RedisStore::connect_cluster(address.split(','), name).await?,
        Kind::Sentinels => {
            RedisStore::connect_sentinels(address.split(','), format!("redis://{MASTER}/"), name).await?
        }
        Kind::Postgres => {
            let store = PostgresStore::connect(address, name).await?.quota_version(*quota_version);
            // Its pool does not count connections: the proxy in front of the server does.
            return Ok(Connected { store: Arc::new(store), connections: Box::new(|| 0) });
        }
    };
    let store = store.quota_version(*quota_version);
    Ok(Connected { store: Arc::new(store.clone()), connections: Box::new(move || connections(&store)) })
}
