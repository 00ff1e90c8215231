//! HTTP/1.1 over TLS: connections, requests, watches; the record of what came, and the faults on the way.

pub mod message;
pub mod port;
pub mod tls;

pub mod faults;
pub mod record;

pub mod route;
pub mod watch;

pub mod connection;
pub mod server;
