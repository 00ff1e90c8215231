//! Packs what the agent installs into the binary.

fn main() {}
