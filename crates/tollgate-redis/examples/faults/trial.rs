//! One fault, tried on a fleet that uses its quota up.

use crate::Failure;
use crate::law::{Batch, Law, SECOND};
use crate::outcome::{Change, Outcome, Times};
use crate::process::Node;
use crate::promise::longest;
use crate::proxy::Proxy;
use crate::report::{Lease, now};
use crate::stores::{Kind, node_command};
use crate::work::Work;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::runtime::Runtime;

/// The number of nodes.
pub(crate) const NODES: usize = 4;
pub(crate) const LAW: Law = Law { rate: 1_000, burst: 100 };

/// Callers of each node. Together they have claims for a second of the whole rate, so that a slow answer leaves no node
/// without claims.
const TASKS: u64 = 250;
/// Before the fault, in milliseconds: longer than the nodes need to get equal shares.
const WARM_UP: u64 = 1_200;
/// After the fault, in milliseconds: longer than a lease.
const AFTER: u64 = 3_000;

/// Whether the fault was tried.
pub(crate) enum Ran {
    Yes,
    /// Something that it needs is not installed.
    No(&'static str),
}

/// How a node is started.
pub(crate) struct Launch {
    pub(crate) program: Command,
    /// The address of its store.
    pub(crate) address: String,
    /// By how many nanoseconds the clock of its process is ahead of this one's.
    pub(crate) ahead: i64,
}

impl Launch {
    /// With the same clock.
    pub(crate) fn now(program: Command, address: &str) -> Self {
        Self { program, address: address.to_owned(), ahead: 0 }
    }
}

/// By how many tokens the quota may be exceeded, by docs/distributed.md.
pub(crate) enum Bound {
    Tokens(u64),
    /// The store has lost its state: what a new bucket starts with, and what was promised for later.
    LostState,
}

pub(crate) struct Trial {
    /// Proxies and clients of the servers run here.
    pub(crate) runtime: Runtime,
    /// The example `fleet` of an earlier version.
    pub(crate) earlier: Option<PathBuf>,
    nodes: Vec<Node>,
    /// If all nodes connect through one.
    proxy: Option<Arc<Proxy>>,
    change: Option<Change>,
    times: Times,
    /// The connections before the fault.
    connections: u64,
    bound: Bound,
}

impl Trial {
    pub(crate) fn new(earlier: Option<PathBuf>) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let (nodes, proxy, change, times) = (Vec::new(), None, None, Times::default());
        Ok(Self { runtime, earlier, nodes, proxy, change, times, connections: 0, bound: Bound::Tokens(0) })
    }

    /// What a node does under the quota `law`.
    pub(crate) fn work(law: Law) -> Work {
        Work {
            nodes: NODES as u64,
            rate: law.rate,
            burst: Some(law.burst),
            tasks: Some(TASKS),
            // The trial ends them sooner.
            seconds: 600.0,
            node: None,
        }
    }

    /// Starts four nodes with a store of this kind at `address`, and lets them run for a while.
    pub(crate) fn start(&mut self, kind: Kind, address: &str) -> Result<(), Failure> {
        self.start_named(kind, "fleet", address)
    }

    /// The same, with another name of the store.
    pub(crate) fn start_named(&mut self, kind: Kind, name: &str, address: &str) -> Result<(), Failure> {
        let launch = |_| Ok(Launch::now(node_command(kind, name, 0)?, address));
        self.start_as((0..NODES).map(launch).collect::<Result<_, Failure>>()?)
    }

    /// Starts these programs as nodes.
    pub(crate) fn start_as(&mut self, launches: Vec<Launch>) -> Result<(), Failure> {
        let work = Self::work(LAW);
        for Launch { program, address, ahead } in launches {
            self.nodes.push(Node::start(program, &work, &address, ahead)?);
        }
        Node::all_ready(&mut self.nodes)?;
        self.nodes.iter_mut().try_for_each(Node::begin)?;
        self.times.began = now();
        self.sleep(WARM_UP);
        Ok(())
    }

    /// Starts one more node, which begins at once.
    pub(crate) fn join(&mut self, program: Command, work: &Work, address: &str) -> Result<(), Failure> {
        let mut node = Node::start(program, work, address, 0)?;
        Node::all_ready(std::slice::from_mut(&mut node))?;
        node.begin()?;
        self.nodes.push(node);
        Ok(())
    }

    pub(crate) fn node(&mut self, number: usize) -> &mut Node {
        &mut self.nodes[number]
    }

    /// Counts the connections of this proxy, through which all nodes connect.
    pub(crate) fn count_connections_of(&mut self, proxy: &Arc<Proxy>) {
        self.proxy = Some(Arc::clone(proxy));
    }

    /// The fault begins. Until [`end`](Self::end) it is one of an instant.
    pub(crate) fn begin(&mut self) {
        self.connections = self.connections();
        self.times.fault = now();
        self.times.end = self.times.fault;
    }

    /// The fault ends.
    pub(crate) fn end(&mut self) {
        self.times.end = now();
    }

    /// From now on the nodes that start have the quota `to`.
    pub(crate) fn change(&mut self, to: Law) {
        self.change = Some(Change { at: now(), to });
    }

    /// The bound on the excess, by docs/distributed.md.
    pub(crate) fn allow(&mut self, bound: Bound) {
        self.bound = bound;
    }

    pub(crate) fn sleep(&self, millis: u64) {
        std::thread::sleep(Duration::from_millis(millis));
    }

    /// Watches the fleet for a while after the fault, and ends it.
    pub(crate) fn finish(&mut self) -> Result<Ran, Failure> {
        self.sleep(AFTER);
        self.times.stopped = now();
        self.nodes.iter_mut().for_each(Node::stop);
        self.nodes.iter_mut().try_for_each(Node::finish)?;
        Ok(Ran::Yes)
    }

    pub(crate) fn judge(&self) -> Outcome {
        let grants: Vec<Batch> = self.nodes.iter().flat_map(|node| node.log().grants.clone()).collect();
        let connections = self.connections() - self.connections;
        Outcome::of(LAW, self.change, &grants, self.times, connections, self.bound())
    }

    fn bound(&self) -> u64 {
        match self.bound {
            Bound::Tokens(tokens) => tokens,
            Bound::LostState => {
                let leases: Vec<Lease> = self.nodes.iter().flat_map(|node| node.log().leases.clone()).collect();
                LAW.burst + longest(&LAW, NODES, leases.iter(), self.times.end) * LAW.rate / SECOND
            }
        }
    }

    /// The tokens granted so far.
    pub(crate) fn granted(&self) -> u64 {
        self.nodes.iter().map(|node| node.log().tokens()).sum()
    }

    /// Waits until the fleet is granted a tenth of a second's worth of tokens.
    pub(crate) fn wait_for_grants(&self) -> Result<(), Failure> {
        let (before, began) = (self.granted(), now());
        while self.granted() < before + LAW.rate / 10 {
            if now() - began > 60 * SECOND {
                return Err("no tokens are granted a minute after the fault".into());
            }
            self.sleep(20);
        }
        Ok(())
    }

    fn connections(&self) -> u64 {
        match &self.proxy {
            Some(proxy) => proxy.connections.load(Ordering::Acquire),
            None => self.nodes.iter().map(|node| node.log().last.connections).sum(),
        }
    }
}
