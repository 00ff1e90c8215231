//! The stories, in the order in which they run.

mod client;
mod components;
mod servers;

use crate::environment::Environment;
use crate::failure::{Failure, Result};
use crate::lab::Lab;

/// What a story needs besides the two clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// The clusters as they are; what it creates, it removes, or names so that nobody minds.
    Clusters,
    /// Clusters in which nothing happened yet.
    FreshClusters,
    /// Fresh clusters, and a node in the seed.
    Node,
}

#[derive(Debug)]
pub(crate) struct Story {
    /// A sentence that is true if it passes.
    pub(crate) name: &'static str,
    needs: Needs,
    run: fn(&mut Lab) -> Result<()>,
}

pub(crate) const STORIES: &[Story] = &[
    Story { name: "servers crash and come back", needs: Needs::Clusters, run: servers::crash },
    Story { name: "the audit log names what agents ask for", needs: Needs::Clusters, run: servers::audit },
    Story { name: "a garden and a seed are prepared", needs: Needs::Clusters, run: servers::prepared },
    Story {
        name: "a garden serves groups of this process",
        needs: Needs::Clusters,
        run: servers::aggregated,
    },
    Story { name: "a reset leaves nothing of an earlier story", needs: Needs::Clusters, run: servers::reset },
    Story {
        name: "the definitions are installed and repaired",
        needs: Needs::Clusters,
        run: components::definitions,
    },
    Story {
        name: "each extension kind takes what is right and refuses what is wrong",
        needs: Needs::Clusters,
        run: components::samples,
    },
    Story { name: "a node runs a container", needs: Needs::Node, run: servers::node },
];

impl Story {
    /// What this machine lacks for it.
    pub(crate) fn missing(&self, environment: &Environment) -> Option<String> {
        if self.needs == Needs::Node { environment.missing_node() } else { None }
    }
}

/// Runs a story; a panic in it is a failure like any other.
pub(crate) fn run(story: &Story, lab: &mut Lab) -> Result<()> {
    if story.needs != Needs::Clusters {
        lab.reset()?;
    }
    let run = std::panic::AssertUnwindSafe(|| (story.run)(lab));
    std::panic::catch_unwind(run).unwrap_or_else(|_| Err(Failure::new("panicked, see above")))
}
