//! Helm charts: values, the template engine, and what turns an archive into manifests.

pub mod template;
pub mod value;
