//! The clusters to which ManagedResources are applied, and which ManagedResource belongs to which cluster.
//!
//! ManagedResources and their Secrets are always in the seed. Class `seed` is applied there; those without a class are
//! for the cluster of the shoot in whose namespace they are. Such targets are added and removed while the applier runs.

use std::sync::{Arc, RwLock};

use super::inventory::Inventory;
use super::names;
use super::survey::Survey;
use super::unchanged::Settled;
use crate::api::meta::{Key, ObjectMeta};
use crate::base::lock::IgnorePoison;
use crate::base::sorted::SortedMap;
use crate::kube::{Applier, Client, Discovery};

/// A class of ManagedResources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// `seed`.
    Seed,
    /// No class, or the name of upstream's default.
    Shoot,
}

impl Class {
    /// Whether `spec.class` has this class.
    pub(super) fn is(self, class: &str) -> bool {
        match self {
            Self::Seed => class == names::SEED_CLASS,
            Self::Shoot => class.is_empty() || class == names::DEFAULT_CLASS,
        }
    }

    /// The finalizer of its applier.
    pub(super) const fn finalizer(self) -> &'static str {
        match self {
            Self::Seed => names::SEED_FINALIZER,
            Self::Shoot => names::FINALIZER_PREFIX,
        }
    }
}

/// A cluster that objects are applied to.
#[derive(Debug)]
pub struct TargetCluster {
    pub(super) class: Class,
    pub(super) client: Client,
    pub(super) discovery: Discovery,
    pub(super) settled: Settled,
    pub(super) inventory: Inventory,
    pub(super) survey: Survey,
    /// The prefix of the ManagedResource's key, in the annotation of its objects.
    origin_prefix: String,
}

impl TargetCluster {
    fn new(class: Class, client: Client, origin_prefix: String) -> Self {
        let discovery = Discovery::new(client.clone());
        Self {
            class,
            client,
            discovery,
            settled: Settled::default(),
            inventory: Inventory::default(),
            survey: Survey::default(),
            origin_prefix,
        }
    }

    pub(crate) fn seed(client: &Applier) -> Self {
        Self::new(Class::Seed, client.0.clone(), String::new())
    }

    /// The cluster of a shoot. Its objects record the cluster `identity` as their origin.
    pub fn shoot(client: Client, identity: &str) -> Self {
        Self::new(Class::Shoot, client, format!("{identity}:"))
    }

    /// The origin annotation of a ManagedResource's objects.
    pub(super) fn origin(&self, owner: &Key) -> String {
        format!("{}{owner}", self.origin_prefix)
    }

    /// The ManagedResource that an object's origin annotation names.
    pub(super) fn owner(&self, origin: &str) -> Option<Key> {
        let (namespace, name) = origin.strip_prefix(&self.origin_prefix)?.split_once('/')?;
        Some(Key::new(namespace, name))
    }
}

#[derive(Debug)]
pub(super) struct TargetClusters {
    pub(super) seed: Arc<TargetCluster>,
    /// The targets of shoots, by their namespace in the seed.
    shoots: RwLock<SortedMap<String, Arc<TargetCluster>>>,
}

impl TargetClusters {
    pub(super) fn new(seed: TargetCluster) -> Self {
        Self { seed: Arc::new(seed), shoots: RwLock::default() }
    }

    /// Sets the target of a namespace, or removes it.
    pub(super) fn set(&self, namespace: &str, target: Option<TargetCluster>) {
        // One map, changed by single calls: a panic cannot leave it half changed.
        let mut shoots = self.shoots.write().ignore_poison();
        match target {
            Some(target) => shoots.insert(namespace.to_owned(), Arc::new(target)),
            None => shoots.remove(namespace),
        };
    }

    /// The target for the cluster of a namespace; an empty namespace stands for the seed.
    pub(super) fn at(&self, namespace: &str) -> Option<Arc<TargetCluster>> {
        if namespace.is_empty() {
            return Some(Arc::clone(&self.seed));
        }
        self.shoots.read().ignore_poison().get(namespace).map(Arc::clone)
    }

    /// The target that is responsible for a ManagedResource. A target whose finalizer it has wins over the one that
    /// `class` names, because it must clean up first; of several, the first one wins.
    pub(super) fn of(&self, metadata: &ObjectMeta, class: &str) -> Option<Arc<TargetCluster>> {
        let shoots = self.shoots.read().ignore_poison();
        let both = [Some(&self.seed), shoots.get(&metadata.namespace)];
        let all = || both.into_iter().flatten();
        let by_finalizer = metadata.finalizers.iter().find_map(|f| all().find(|t| t.class.finalizer() == f));
        by_finalizer.or_else(|| all().find(|target| target.class.is(class))).map(Arc::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::{Connection, Options};

    fn client() -> Client {
        Client::new(Connection::new("https://127.0.0.1:1"), Options::default()).unwrap()
    }

    #[test]
    fn who_is_responsible() {
        let targets = TargetClusters::new(TargetCluster::seed(&Applier(client())));
        targets.set("shoot--a--b", Some(TargetCluster::shoot(client(), "one")));
        let (seed, shoot) = (names::SEED_FINALIZER, names::FINALIZER_PREFIX);
        let other = "resources.gardener.cloud/gardener-resource-manager-other";
        let table: [(&str, &str, &[&str], Option<Class>); 11] = [
            ("shoot--a--b", "", &[], Some(Class::Shoot)),
            ("shoot--a--b", "resources", &[], Some(Class::Shoot)),
            ("shoot--a--b", "seed", &[], Some(Class::Seed)),
            ("shoot--a--b", "other", &[], None),
            ("shoot--c--d", "", &[], None),
            ("shoot--c--d", "seed", &[], Some(Class::Seed)),
            // Its class has changed.
            ("shoot--a--b", "", &[seed], Some(Class::Seed)),
            ("shoot--a--b", "seed", &["x", shoot, seed], Some(Class::Shoot)),
            ("shoot--c--d", "seed", &[shoot], Some(Class::Seed)),
            ("shoot--a--b", "other", &[shoot], Some(Class::Shoot)),
            ("shoot--a--b", "", &[other], Some(Class::Shoot)),
        ];
        for (namespace, class, finalizers, expected) in table {
            let metadata = ObjectMeta {
                namespace: namespace.to_owned(),
                finalizers: finalizers.iter().map(|&f| f.to_owned()).collect(),
                ..ObjectMeta::default()
            };
            let found = targets.of(&metadata, class).map(|target| target.class);
            assert_eq!(found, expected, "{namespace} {class:?} {finalizers:?}");
        }
        targets.set("shoot--a--b", None);
        let metadata = ObjectMeta { namespace: "shoot--a--b".to_owned(), ..ObjectMeta::default() };
        assert!(targets.of(&metadata, "").is_none());
    }

    #[test]
    fn objects_record_their_origin() {
        let key = Key::new("shoot--a--b", "core");
        assert_eq!(TargetCluster::seed(&Applier(client())).origin(&key), "shoot--a--b/core");
        let shoot = TargetCluster::shoot(client(), "one");
        assert_eq!(shoot.origin(&key), "one:shoot--a--b/core");
        assert_eq!(shoot.owner("one:shoot--a--b/core"), Some(key));
        assert_eq!((shoot.owner("shoot--a--b/core"), shoot.owner("one:x")), (None, None));
    }
}
