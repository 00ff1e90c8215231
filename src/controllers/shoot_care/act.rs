//! The checks of a Shoot: the state between two checks, their schedule, and how the result is written.

use serde_json::Value;

use crate::api::condition::{self, Condition, ConditionStatus};
use crate::api::gardener::{SHOOT, ShootHead};
use crate::api::meta::Key;
use crate::base::clock::{Mono, Timestamp};
use crate::base::error::chain;
use crate::base::json::json;
use crate::base::random;
use crate::config::settings::ResourceManager;
use crate::kube::{ErrorVerdict, Patch};
use crate::operation::components::component::Duty;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome};

use super::CareReconciler;
use super::basis::Basis;
use super::constraints::{CONSTRAINTS, ConstraintInput, constraints};
use super::decide::{CheckInput, EVERY_NODE, NOT_INITIALIZED, Plane, ServerHealth, kinds};
use super::inside::{self, HeldClient, ServerAnswer};
use super::look::{CheckFindings, RarelyReadFacts};
use super::nodes::KnownNodes;
use super::pace::{self, CheckOutcome, Next};

/// The state of a Shoot between two checks.
pub(super) struct KnownShoot {
    uid: String,
    conditions: Vec<Condition>,
    constraints: Vec<Condition>,
    /// The last result was not written to the garden yet.
    is_owed: bool,
    written: Option<Written>,
    next: Next,
    /// Whether the API server answered the last time; `None` if it was not asked.
    answers: Option<bool>,
    /// A check was requested: cached facts about the namespace do not count.
    is_asked: bool,
    /// The connection to the API server.
    pub(super) held: HeldClient,
    /// Facts that are read rarely.
    pub(super) rarely: RarelyReadFacts,
    pub(super) nodes: KnownNodes,
}

/// The last write to the garden, kept until the watch shows it.
struct Written {
    /// The version of the Shoot before the write. While the watch shows this one, it is stale.
    before: String,
    conditions: Vec<Condition>,
    constraints: Vec<Condition>,
}

impl KnownShoot {
    /// Without facts; the first check is due at this time.
    pub(super) fn new(head: &ShootHead, first: Mono) -> Self {
        Self {
            uid: head.metadata.uid.clone(),
            conditions: Vec::new(),
            constraints: Vec::new(),
            is_owed: false,
            written: None,
            next: Next { whole: first, server: None },
            answers: None,
            is_asked: false,
            held: HeldClient::default(),
            rarely: RarelyReadFacts::default(),
            nodes: KnownNodes::default(),
        }
    }

    /// Whether this is the same Shoot, and not another one with its name.
    pub(super) fn is_of(&self, head: &ShootHead) -> bool {
        self.uid == head.metadata.uid
    }

    /// Makes a check due now.
    pub(super) fn is_asked(&mut self) {
        self.next.whole = Mono::default();
        self.is_asked = true;
        self.rarely.forget();
    }

    /// Facts that were read for others earlier do not count.
    pub(super) fn wants_present(&self) -> bool {
        self.is_asked
    }

    /// Whether all conditions were `True`.
    pub(super) fn is_well(&self) -> bool {
        !self.conditions.is_empty()
            && self.conditions.iter().all(|condition| condition.status == ConditionStatus::True)
    }

    /// Whether the constraint about CAs exists.
    pub(super) fn has_expiring(&self) -> bool {
        condition::status_of(&self.constraints, CONSTRAINTS[2])
            .is_some_and(|status| status != ConditionStatus::True)
    }

    /// The conditions and constraints in the garden, as far as known.
    fn in_garden<'a>(&'a self, head: &'a ShootHead) -> (&'a [Condition], &'a [Condition]) {
        let written = self.written.as_ref();
        match written.filter(|written| written.before == head.metadata.resource_version) {
            Some(written) => (&written.conditions, &written.constraints),
            None => (&head.status.conditions, &head.status.constraints),
        }
    }

    /// The conditions from which transitions are computed, including those that the garden does not have yet.
    fn before<'a>(&'a self, head: &'a ShootHead) -> (&'a [Condition], &'a [Condition]) {
        if self.is_owed { (&self.conditions, &self.constraints) } else { self.in_garden(head) }
    }

    /// The patch for the garden; null if nothing changed.
    fn news(&self, head: &ShootHead) -> Value {
        let (conditions, constraints) = self.in_garden(head);
        let is_there = |kind: &&str| condition::find(&self.constraints, kind).is_some();
        let removed: Vec<&str> = CONSTRAINTS.into_iter().filter(|kind| !is_there(kind)).collect();
        let mut status = Value::Null;
        for (list, entries) in [
            ("conditions", condition::entries(conditions, &self.conditions, &[])),
            ("constraints", condition::entries(constraints, &self.constraints, &removed)),
        ] {
            if !entries.is_empty() {
                status[list] = json!(entries);
            }
        }
        status
    }

    /// Sets all conditions to unknown.
    fn unknown(&mut self, head: &ShootHead, now: Timestamp) {
        // Only a Shoot with workers has this condition.
        let has_workers = condition::find(self.before(head).0, EVERY_NODE).is_some();
        let (conditions, constraints) = self.before(head);
        let unknown = |old: &[Condition], kinds: &[&str]| -> Vec<Condition> {
            let each = |kind: &&str| condition::find_or_init(old, kind, now).unknown(now, NOT_INITIALIZED);
            kinds.iter().map(each).collect()
        };
        (self.conditions, self.constraints) =
            (unknown(conditions, kinds(has_workers)), unknown(constraints, &CONSTRAINTS));
    }
}

impl CareReconciler {
    /// Runs the due checks.
    pub(super) fn turn(
        &self,
        key: &Key,
        head: &ShootHead,
        known: &mut KnownShoot,
        cx: &ReconcileContext,
    ) -> Result<ReconcileOutcome, ReconcileFailure> {
        let at = cx.clock.mono();
        let mut answer = None;
        let mut is_due = at >= known.next.whole;
        if !is_due && known.next.server.is_some_and(|server| at >= server) {
            let found = inside::ask(
                &self.site,
                &head.status.technical_id,
                &mut known.held,
                cx.clock.now(),
                &cx.metrics,
            )?;
            let answers = Some(found.health == ServerHealth::Well);
            is_due = answers != known.answers;
            known.next.server = pace::server(answers, self.settings().sync_period, cx.clock.mono());
            answer = is_due.then_some(found);
        }
        let outcome = if is_due { self.whole(head, known, answer, cx)? } else { None };
        if let Some(outcome) = outcome {
            return Ok(outcome);
        }
        if is_due || known.is_owed {
            self.write(key, head, known)?;
        }
        let mut first = known.next.server.into_iter().fold(known.next.whole, Mono::min);
        if known.is_owed {
            first = first.min(at.saturating_add(pace::GARDEN_SOON));
        }
        Ok(ReconcileOutcome::After(first.saturating_sub(cx.clock.mono())))
    }

    /// Checks everything. An outcome ends the turn.
    fn whole(
        &self,
        head: &ShootHead,
        known: &mut KnownShoot,
        answer: Option<ServerAnswer>,
        cx: &ReconcileContext,
    ) -> Result<Option<ReconcileOutcome>, ReconcileFailure> {
        // The garden stores whole seconds.
        let now = Timestamp::from_unix(cx.clock.now().unix());
        if !self.site.managed.store().is_synced() {
            return Ok(Some(ReconcileOutcome::After(pace::UNSYNCED)));
        }
        let period = self.settings().sync_period;
        let found = match self.basis(head, known, cx.clock.mono()) {
            Err(error) if error.postponed().is_some() => return Err(error.into()),
            Err(error) => {
                let (shoot, err) = (head.status.technical_id.as_str(), chain(&error));
                log::warn!(shoot, err = err.as_str(); "Cannot read the Cluster of a Shoot: its conditions are unknown");
                None
            }
            Ok(found) => found,
        };
        let Some(basis) = found else {
            known.unknown(head, now);
            known.answers = None;
            let found = CheckOutcome { is_well: false, answers: None };
            known.next = pace::next(found, period, cx.clock.mono(), random::unit());
            return Ok(None);
        };
        if basis.has_foreign_workers {
            return Ok(Some(ReconcileOutcome::After(period)));
        }
        let is_asleep = basis.wants_hibernation || head.status.is_hibernated;
        let look =
            if is_asleep { CheckFindings::asleep() } else { self.look(head, known, &basis, answer, cx)? };
        if !is_asleep {
            self.read_authorities(&head.status.technical_id, known, cx.clock.mono());
        }
        self.conclude(head, known, &basis, &look, is_asleep, now);
        known.is_asked = false;
        known.answers = (look.server != ServerHealth::Stopped).then_some(look.server == ServerHealth::Well);
        let found = CheckOutcome { is_well: known.is_well(), answers: known.answers };
        known.next = pace::next(found, period, cx.clock.mono(), random::unit());
        Ok(None)
    }

    fn conclude(
        &self,
        head: &ShootHead,
        known: &mut KnownShoot,
        basis: &Basis,
        look: &CheckFindings,
        is_asleep: bool,
        now: Timestamp,
    ) {
        let managed = self.site.managed.store().within(&head.status.technical_id);
        let (old, old_constraints) = known.before(head);
        let facts = CheckInput {
            now,
            care: self.settings(),
            status: &head.status,
            old,
            is_asleep,
            server: &look.server,
            plane: look.plane.as_ref().map_err(String::as_str),
            managed: &managed,
            duty: Duty {
                has_own_applier: self.site.settings.edge.resource_manager == ResourceManager::External,
                has_workers: !basis.pools.is_empty(),
            },
            applier: look.applier.as_deref(),
            pools: &basis.pools,
            nodes: look.nodes.as_ref(),
        };
        let authorities = known.rarely.authorities.as_ref().map(|(_, found)| found);
        let more = ConstraintInput {
            basis,
            authorities: authorities
                .map_or(Ok(&[] as &[_]), |found| found.as_deref().map_err(String::as_str)),
            inside: look.inside.as_ref().map_err(String::as_str),
        };
        let (conditions, constraints) = (facts.conditions(), constraints(&facts, old_constraints, &more));
        (known.conditions, known.constraints) = (conditions, constraints);
    }

    /// Writes the differences to the garden. If the garden does not answer, they are written later.
    fn write(&self, key: &Key, head: &ShootHead, known: &mut KnownShoot) -> Result<(), ReconcileFailure> {
        let news = known.news(head);
        known.is_owed = !news.is_null();
        if news.is_null() {
            return Ok(());
        }
        let patch = Patch::Strategic(json!({"status": news}));
        match self.site.garden.patch_status::<Value>(&SHOOT, key, &patch) {
            Ok(_) => {
                known.is_owed = false;
                known.written = Some(Written {
                    before: head.metadata.resource_version.clone(),
                    conditions: known.conditions.clone(),
                    constraints: known.constraints.clone(),
                });
                Ok(())
            }
            Err(error) => match error.verdict() {
                ErrorVerdict::Unreachable
                | ErrorVerdict::Throttled(_)
                | ErrorVerdict::Fenced
                | ErrorVerdict::NotFound => Ok(()),
                _ => Err(error.into()),
            },
        }
    }
}

impl CheckFindings {
    /// Nothing is checked while the Shoot is hibernated.
    fn asleep() -> Self {
        Self {
            server: ServerHealth::Stopped,
            plane: Ok(Plane::default()),
            inside: Err(String::new()),
            applier: None,
            nodes: None,
        }
    }
}
