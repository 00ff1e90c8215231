//! Reports of a running flow.

use std::time::Duration;

use crate::base::clock::Mono;

/// The progress of a flow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowProgress {
    /// The share of its tasks that are done.
    pub percent: u32,
    /// The running tasks.
    pub description: String,
}

impl FlowProgress {
    pub(super) fn new(flow: &str, done: usize, all: usize, running: &[String]) -> Self {
        let percent = u32::try_from(100 * done / all.max(1)).unwrap_or(100);
        let description = match percent {
            _ if all == 0 || done == all => format!("{flow} finished"),
            0 => format!("Starting {flow}"),
            _ => running.join(", "),
        };
        Self { percent: if all == 0 { 100 } else { percent }, description }
    }
}

/// Limits how often a flow reports: the first report is sent at once, later ones at most once per period, always the
/// newest.
#[derive(Clone, Debug)]
pub struct ReportPacer {
    period: Duration,
    told: Option<(Mono, FlowProgress)>,
}

impl ReportPacer {
    /// At most one report per period.
    pub const fn new(period: Duration) -> Self {
        Self { period, told: None }
    }

    /// How long to wait until the next report is allowed.
    pub fn left(&self, now: Mono) -> Duration {
        let since = self.told.as_ref().map(|(at, _)| now.saturating_sub(*at));
        since.map_or(Duration::ZERO, |since| self.period.saturating_sub(since))
    }

    /// Whether something is new, regardless of the time of the last report: the end of a flow is always reported.
    pub fn tells_at_the_end(&mut self, progress: &FlowProgress, now: Mono) -> bool {
        let is_new = self.told.as_ref().is_none_or(|(_, told)| told != progress);
        self.told = Some((now, progress.clone()));
        is_new
    }

    /// Whether to report now. Otherwise the next turn checks again.
    pub fn is_due(&self, progress: &FlowProgress, now: Mono) -> bool {
        let told = self.told.as_ref();
        told.is_none_or(|(at, told)| told != progress && now.saturating_sub(*at) >= self.period)
    }

    /// Records that the report was written. Without this call, it stays due.
    pub fn has_told(&mut self, progress: &FlowProgress, now: Mono) {
        self.told = Some((now, progress.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_flow() {
        let table = [
            ((0, 4, &["a".to_owned()][..]), 0, "Starting Flow"),
            ((1, 4, &["a".to_owned(), "b".to_owned()]), 25, "a, b"),
            ((1, 3, &[]), 33, ""),
            ((4, 4, &[]), 100, "Flow finished"),
            ((0, 0, &[]), 100, "Flow finished"),
        ];
        for ((done, all, running), percent, description) in table {
            let progress = FlowProgress::new("Flow", done, all, running);
            assert_eq!((progress.percent, progress.description.as_str()), (percent, description));
        }
    }

    #[test]
    fn reports_keep_their_period() {
        let progress = |percent| FlowProgress { percent, description: String::new() };
        let at = |seconds| Mono::default().saturating_add(Duration::from_secs(seconds));
        let mut pacer = ReportPacer::new(Duration::from_secs(5));
        let told: Vec<bool> = [(0, 0), (1, 10), (4, 20), (5, 30), (9, 40), (10, 30), (11, 50)]
            .into_iter()
            .map(|(seconds, percent)| {
                let (progress, now) = (progress(percent), at(seconds));
                let is_due = pacer.is_due(&progress, now);
                // After a refusal, the caller asks again.
                assert_eq!(pacer.is_due(&progress, now), is_due);
                if is_due {
                    pacer.has_told(&progress, now);
                }
                is_due
            })
            .collect();
        assert_eq!(told, [true, false, false, true, false, false, true]);
        assert_eq!((pacer.left(at(12)).as_secs(), pacer.left(at(20)).as_secs()), (4, 0));
        assert!(
            pacer.tells_at_the_end(&progress(60), at(12)) && !pacer.tells_at_the_end(&progress(60), at(13))
        );
    }
}
