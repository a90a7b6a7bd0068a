#[path = "it/distributed/law.rs"] #[allow(dead_code)] mod law;
#[path = "it/distributed/nodes.rs"] #[allow(dead_code)] mod nodes;
#[path = "it/distributed/classes.rs"] mod classes;
