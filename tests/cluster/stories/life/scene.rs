//! Shoots in the node, from one act to the next: each act names the state with which it begins, and the one it leaves.
//! In a state that no act has left, a scene is built anew.

use std::fmt;

use gardenlet::kube::Client;
use serde_json::{Value, json};

use super::end::{self, Before};
use super::garden::{Garden, Peer};
use super::owner::Owner;
use super::{COMPONENTS, EXTENDED, ONE, TWO, create, extensions, hosts, sleep, upgrade};
use crate::agent::Agent;
use crate::audit::Audit;
use crate::failure::Result;
use crate::host::Host;
use crate::image;
use crate::lab::Lab;
use crate::mirror::Mirror;
use crate::site::Site;
use crate::stories::backups;
use crate::wait;
use support::garden::prepare;
use support::player::{Player, Playing};

/// What there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The Seed of a running agent is ready for Shoots.
    Seed,
    /// The same, and it stores backups.
    SeedWithBackups,
    /// Shoot [`ONE`] on such a seed, in which its owner has stored something.
    Up,
    /// The same, and Shoot [`TWO`].
    TwoUp,
    /// Shoot [`EXTENDED`], for which extensions work, on a seed without backups. Its owner has stored something.
    Extended,
    /// The same Shoot is hibernated.
    Asleep,
    /// The same Shoot is awake, and has a later minor version of Kubernetes.
    Upgraded,
    /// A Shoot with a pool, and a host on which a pod runs.
    OnHost,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Seed => "a seed that is ready for Shoots",
            Self::SeedWithBackups => "a seed that stores backups",
            Self::Up => "a Shoot that is up",
            Self::TwoUp => "two Shoots that are up",
            Self::Extended => "a Shoot with extensions",
            Self::Asleep => "a Shoot that sleeps",
            Self::Upgraded => "a Shoot with a later version",
            Self::OnHost => "a Shoot with a pod on a host",
        })
    }
}

pub(crate) struct Scene {
    pub(crate) state: State,
    /// What the agent asks the seed for; read after each act.
    pub(crate) audit: Audit,
    pub(super) garden: Client,
    /// Garden and seed before there were Shoots.
    pub(super) before: Before,
    /// The version of Kubernetes of the Shoot with extensions.
    pub(super) version: &'static str,
    // Dropped in this order.
    pub(crate) agent: Agent,
    /// The node of the Shoot with a pool.
    pub(super) host: Option<Host>,
    /// The mirror from which hosts pull their images.
    pub(super) mirror: Option<Mirror>,
    _playing: Option<Playing>,
    pub(super) peer: Garden,
    pub(super) site: Site,
}

impl Scene {
    /// Builds it on fresh clusters.
    pub(crate) fn build(lab: &mut Lab, (peer, state): (Peer, State)) -> Result<Self> {
        let began = wait::now();
        let has_backups = matches!(state, State::SeedWithBackups | State::Up | State::TwoUp);
        let mut scene = Self::with_seed(lab, peer, has_backups)?;
        if matches!(state, State::Up | State::TwoUp) {
            scene.create(lab)?;
        }
        if state == State::TwoUp {
            create(lab, &scene.garden, &mut scene.agent, (TWO, image::API_SERVER.version()))?;
        }
        if matches!(state, State::Extended | State::Asleep | State::Upgraded) {
            scene.create_extended(lab)?;
        }
        match state {
            State::Asleep => {
                sleep::falls_asleep(lab, &scene.garden, &mut scene.agent, EXTENDED).map(drop)?;
            }
            State::Upgraded => scene.upgrade(lab)?,
            State::OnHost => hosts::comes(lab, &mut scene)?,
            _ => {}
        }
        println!("       {:6.1} s  {state}", wait::seconds_since(began));
        Ok(Self { state, ..scene })
    }

    fn with_seed(lab: &mut Lab, peer: Peer, has_backups: bool) -> Result<Self> {
        let site = Site::start(lab, &COMPONENTS)?;
        let peer = Garden::prepare(lab, peer)?;
        let (audit, garden) = (lab.seed.audit(), lab.garden.client()?);
        let playing = has_backups.then(|| {
            let player = Player::of(&["backupbuckets", "backupentries"]);
            lab.seed.client().map(|seed| player.start(seed))
        });
        let playing = playing.transpose()?;
        let agent = peer.begin(lab, &garden, |seed: &mut Value| {
            if has_backups {
                seed["backup"] = backups::section(lab)?;
                let objects = json!({"apiVersion": "v1", "kind": "List", "items": prepare::backups("local")});
                lab.garden.apply(&objects)?;
            }
            Ok(())
        })?;
        let before = end::look(lab)?;
        let (state, version) = (State::Seed, image::API_SERVER.version());
        Ok(Self {
            state,
            audit,
            garden,
            before,
            version,
            agent,
            host: None,
            mirror: None,
            _playing: playing,
            peer,
            site,
        })
    }

    /// Whether it continues to run in a garden of that kind, in that state.
    pub(crate) fn is(&self, peer: Peer, state: State) -> bool {
        self.peer.is(peer) && self.state == state
    }

    /// Fails if the agent, or a program of its garden, has ended.
    pub(crate) fn ensure_running(&mut self) -> Result<()> {
        if !self.peer.is_uninstalled() {
            self.agent.ensure_running()?;
        }
        if let Some(host) = &mut self.host {
            host.ensure_running()?;
        }
        self.peer.ensure_running()
    }

    /// Creates [`ONE`], in which its owner stores something.
    pub(super) fn create(&mut self, lab: &Lab) -> Result<()> {
        create(lab, &self.garden, &mut self.agent, (ONE, image::API_SERVER.version()))?;
        Owner::new(lab, &self.garden, ONE, &self.site.outside)?.keeps_a_secret()
    }

    /// Creates [`EXTENDED`], in which its owner stores something.
    pub(super) fn create_extended(&mut self, lab: &Lab) -> Result<()> {
        let Self { garden, agent, site, .. } = self;
        let place = extensions::Place { lab, garden, node: &site.node, name: EXTENDED };
        place.install(agent)?;
        place.succeed(agent)?;
        Owner::new(lab, garden, EXTENDED, &site.outside)?.keeps_a_secret()
    }

    fn upgrade(&mut self, lab: &Lab) -> Result<()> {
        self.import(lab, &[image::NEXT_API_SERVER, image::NEXT_CONTROLLERS])?;
        self.version = image::NEXT_API_SERVER.version();
        upgrade::to(lab, &self.garden, &mut self.agent, (EXTENDED, self.version))
    }

    /// Gives the node the images of more components.
    pub(super) fn import(&self, lab: &Lab, components: &[image::Component]) -> Result<()> {
        components.iter().try_for_each(|component| self.site.node.import_component(lab, component))
    }

    /// The owner of a Shoot, with a new kubeconfig.
    pub(super) fn owner<'a>(&'a self, lab: &Lab, name: super::Name) -> Result<Owner<'a>> {
        Owner::new(lab, &self.garden, name, &self.site.outside)
    }
}
