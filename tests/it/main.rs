//! The whole program, in process, against an API server that can misbehave.

// Test code outside of test functions.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, unreachable_pub, dead_code)]

#[path = "../support/mod.rs"]
mod support;

mod certificates;
mod charts;
mod left;
mod process;
mod sampling;
mod upstream;
mod world;

use support::player;

mod crash;
mod docs;
mod extension;
mod faults;
mod garden;
mod garden_shoots;
mod handover;
mod hostile_charts;
mod hostile_resources;
mod image;
mod oci;
mod packaging;
mod render_child;
mod resources;
mod role;
mod sample;
mod secrets;
mod server;
mod shoot_control_plane;
mod shoot_stand;
mod story_applier;
mod story_backups;
mod story_backups_crash;
mod story_backups_many;
mod story_bootstrap;
mod story_bundle;
mod story_certificates;
mod story_clock;
mod story_configuration;
mod story_credentials;
mod story_end;
mod story_extension;
mod story_handover;
mod story_installation;
mod story_leader;
mod story_moving;
mod story_network_policies;
mod story_oci;
mod story_offline;
mod story_operating;
mod story_outside;
mod story_probes;
mod story_process;
mod story_projected_token;
mod story_proxy;
mod story_rotation;
mod story_seed;
mod story_seed_care;
mod story_seed_flow;
mod story_seed_handover;
mod story_seed_objects;
mod story_seed_trouble;
mod story_served;
mod story_shoot;
mod story_shoot_care;
mod story_shoot_care_inside;
mod story_shoot_care_many;
mod story_shoot_change;
mod story_shoot_crash;
mod story_shoot_create;
mod story_shoot_delete;
mod story_shoot_delete_midway;
mod story_shoot_left;
mod story_shoot_midway;
mod story_shoot_others;
mod story_shoot_rewrite;
mod story_shoot_rotation;
mod story_shoot_rotation_crash;
mod story_shoot_sleep;
mod story_shoot_sleep_crash;
mod story_shoot_sleep_others;
mod story_shoot_state;
mod story_shoot_trouble;
mod story_starving;
mod story_staying;
mod story_trouble;
mod story_trust;
mod story_watch;
mod story_workload;
