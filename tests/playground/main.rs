//! The playground (being written).

fn main() {}
