#[path = "it/distributed/classes.rs"]
mod classes;
#[path = "it/distributed/law.rs"]
#[allow(dead_code)]
mod law;
#[path = "it/distributed/nodes.rs"]
#[allow(dead_code)]
mod nodes;
