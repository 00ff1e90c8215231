//! The controllers, one folder each, named as in Gardener. They do not know each other and communicate through the API
//! only.
//!
//! Each folder has a function `add`, which declares the controller's queue, its triggers, and its reconciler. The
//! [`Site`] contains the controllers' input and the watches that several of them share.

pub(crate) mod backup_bucket;
pub(crate) mod backup_entry;
pub(crate) mod bastion;
mod charts;
pub(crate) mod controller_installation;
pub(crate) mod controller_installation_care;
pub(crate) mod controller_installation_required;
pub(crate) mod csr_approver;
pub(crate) mod gardenlet;
pub(crate) mod lease;
pub(crate) mod managed_seed;
pub(crate) mod network_policy;
pub(crate) mod seed;
pub(crate) mod seed_care;
pub(crate) mod shoot;
pub(crate) mod shoot_care;
pub(crate) mod shoot_serving;
pub(crate) mod shoot_state;
mod site;
pub(crate) mod token_requestor;
pub(crate) mod vpa_eviction_requirements;

use std::sync::Arc;

use crate::runtime::group::ControllerGroup;

pub(crate) use site::{Namespace, Site, is_garden, watch, watch_namespaces};

/// The controllers that run while a Seed is served.
pub(crate) const ALL: [fn(&Arc<Site>, &mut ControllerGroup); 18] = [
    seed::add,
    seed_care::add,
    lease::add,
    shoot::add,
    shoot::left::add,
    shoot_care::add,
    shoot_state::add,
    controller_installation::add,
    controller_installation_care::add,
    controller_installation_required::add,
    token_requestor::add,
    token_requestor::workload_identity::add,
    vpa_eviction_requirements::add,
    backup_bucket::add,
    backup_entry::add,
    bastion::add,
    managed_seed::add,
    gardenlet::add,
];
