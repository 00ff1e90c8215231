//! HTTP/1.1 over TLS: connections, requests, watches, the record of requests, and faults.

pub mod message;
pub mod port;
pub mod protobuf;
pub mod tls;

pub mod faults;
pub mod record;

pub mod route;
pub mod watch;

pub mod connection;
pub mod server;
