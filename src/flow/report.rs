//! Reports of a running flow.

use std::time::Duration;

use crate::base::clock::Mono;

/// The progress of a flow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowProgress {
    /// The share of its tasks that are done.
    pub(crate) percent: u32,
    pub(crate) description: String,
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

/// Limits how often a flow reports: the first report is sent at once, later ones at most once per
/// period, always the newest.
#[derive(Clone, Debug)]
pub(crate) struct ReportPacer {
    period: Duration,
    told: Option<(Mono, FlowProgress)>,
}

impl ReportPacer {
    /// At most one report per period.
    pub(crate) const fn new(period: Duration) -> Self {
        Self { period, told: None }
    }

    /// Whether to report now. Otherwise the next turn checks again.
    pub(crate) fn is_due(&self, progress: &FlowProgress, now: Mono) -> bool {
        let told = self.told.as_ref();
        told.is_none_or(|(at, told)| told != progress && now.saturating_sub(*at) >= self.period)
    }

    /// Records that the report was written. Without this call, it stays due.
    pub(crate) fn has_told(&mut self, progress: &FlowProgress, now: Mono) {
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
    }
}
