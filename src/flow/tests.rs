use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use super::*;
use crate::base::sorted::SortedSet;
use crate::base::thread;

/// A log of what the tasks of a test did, and the time.
#[derive(Default)]
struct World {
    log: Vec<String>,
}

#[derive(Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn progress(&mut self, progress: &Progress) {
        self.0.push(format!("{} {}", progress.percent, progress.description));
    }

    fn done(&mut self, task: &str) {
        self.0.push(format!("done {task}"));
    }
}

struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _: &Progress) {}
}

fn at(seconds: u64) -> Mono {
    Mono::default().saturating_add(Duration::from_secs(seconds))
}

fn does(name: &'static str) -> impl Fn(&mut World, &Attempt) -> Result<Step, Failed> {
    move |world, _| {
        world.log.push(name.to_owned());
        Ok(Step::Done)
    }
}

/// Takes turns until the flow has ended; time advances as the flow requests it.
fn run(flow: &mut Flow<World>, world: &mut World, observer: &mut dyn Observer) -> (Ended, Duration) {
    let mut time = Duration::ZERO;
    for _ in 0..10_000 {
        let now = Mono::default().saturating_add(time);
        match flow.turn(world, &|| now, observer) {
            Turn::Again(after) => time += after.max(Duration::from_millis(1)),
            Turn::Ended(ended) => return (ended, time),
        }
    }
    panic!("the flow does not end: {flow:?}");
}

const ENDED_WELL: Ended = Ended { errors: Vec::new(), is_cancelled: false };

#[test]
fn a_task_that_takes_long_says_how_far_it_is() {
    let mut flow: Flow<u32> = Flow::new("Flow");
    let first = flow.task("First", |_, _| Ok(Step::Done)).add();
    let keys = |made: &mut u32, _: &Attempt| {
        *made += 1;
        let why = Failed::progress(format!("making RSA keys, {made} of 2"));
        Ok(if *made > 2 { Step::Done } else { Step::again(Duration::ZERO, why) })
    };
    flow.task("Keys", keys).after(&[first]).add();
    flow.task("Other", |_, _| Ok(Step::again(Duration::from_secs(9), "it waits"))).after(&[first]).add();
    let mut made = 0;
    for expected in
        ["Keys (making RSA keys, 1 of 2), Other", "Keys (making RSA keys, 2 of 2), Other", "Other"]
    {
        flow.turn(&mut made, &|| Duration::ZERO, &mut Silent);
        assert_eq!(flow.progress().description, expected);
    }
}

#[test]
fn tasks_run_when_their_dependencies_are_done() {
    let mut flow = Flow::new("Flow");
    let a = flow.task("a", does("a")).add();
    let b = flow.task("b", does("b")).after(&[a]).skip_if(true).add();
    let c = flow.task("c", does("c")).add();
    let d = flow.task("d", does("d")).after(&[b, c]).add();
    flow.task("e", does("e")).after(&[d]).add();
    let (mut world, mut notes) = (World::default(), Notes::default());
    assert!(!flow.is_done("a"));
    assert_eq!(run(&mut flow, &mut world, &mut notes).0, ENDED_WELL);
    assert_eq!(["a", "b", "e"].map(|name| flow.is_done(name)), [true, false, true], "b was skipped");
    assert_eq!(world.log, ["a", "c", "d", "e"]);
    let expected = ["0 Starting Flow", "done a", "25 c", "done c", "50 ", "50 d", "done d", "75 ", "75 e"];
    assert_eq!(notes.0[..9], expected);
    assert_eq!(notes.0[9..], ["done e", "100 Flow finished", "100 Flow finished"]);
}

#[test]
fn a_skipped_task_waits_for_its_dependencies() {
    let mut flow = Flow::new("Flow");
    let a = flow.task("a", |_: &mut World, _| Err(Failed::new("no"))).add();
    let b = flow.task("b", does("b")).after(&[a]).skip_if(true).add();
    flow.task("c", does("c")).after(&[b]).add();
    let mut world = World::default();
    let (ended, _) = run(&mut flow, &mut world, &mut Silent);
    assert_eq!(ended.errors.len(), 1);
    assert!(world.log.is_empty(), "dependents of a failed task never start, also across a skipped task");
}

#[test]
fn a_failure_stops_only_its_dependents() {
    let mut flow = Flow::new("Flow");
    let a = flow.task("a", does("a")).add();
    let codes = vec!["ERR_CONFIGURATION_PROBLEM".to_owned()];
    let failed = Failed { codes, ..Failed::new("broken") };
    let told = failed.clone();
    let b = flow.task("b", move |_: &mut World, _| Err(told.clone())).after(&[a]).add();
    flow.task("c", does("c")).after(&[b]).add();
    let d = flow.task("d", does("d")).after(&[a]).add();
    flow.task("e", |_: &mut World, _| Err(Failed::new("late"))).after(&[d]).add();
    let mut world = World::default();
    let (ended, _) = run(&mut flow, &mut world, &mut Silent);
    assert_eq!(world.log, ["a", "d"]);
    let late = TaskError { task: "e".to_owned(), failed: Failed::new("late") };
    assert_eq!(ended.errors, [TaskError { task: "b".to_owned(), failed }, late]);
}

#[test]
fn waiting_retrying_and_timing_out() {
    let mut flow = Flow::new("Flow");
    let ready_at = |seconds| {
        move |_: &mut World, attempt: &Attempt| {
            let is_ready = attempt.now >= at(seconds);
            Ok(if is_ready { Step::Done } else { Step::again(Duration::from_secs(5), "not ready") })
        }
    };
    flow.task("soon", ready_at(12)).within(Duration::from_secs(60)).add();
    flow.task("late", ready_at(61)).within(Duration::from_secs(58)).add();
    let errors = |until: u64| {
        move |_: &mut World, attempt: &Attempt| match attempt.tries {
            tries if u64::from(tries) < until => Err(Failed::new(format!("try {tries}"))),
            _ => Ok(Step::Done),
        }
    };
    flow.task("flaky", errors(3)).retrying(Duration::from_secs(5), Duration::from_secs(30)).add();
    flow.task("broken", errors(99)).retrying(Duration::from_secs(5), Duration::from_secs(30)).add();
    let postponed = |_: &mut World, attempt: &Attempt| {
        let postponed = Some(Duration::from_secs(1));
        if attempt.now < at(10) {
            return Err(Failed { postponed, ..Failed::new("nothing was sent") });
        }
        assert_eq!(attempt.tries, 0, "a request that was not sent is no try");
        Ok(Step::Done)
    };
    flow.task("postponed", postponed).add();
    let (ended, took) = run(&mut flow, &mut World::default(), &mut Silent);
    let told: Vec<_> = ended.errors.iter().map(|e| (e.task.as_str(), e.failed.text.as_str())).collect();
    assert_eq!(told, [("broken", "try 6"), ("late", "not ready")]);
    assert_eq!(took.as_secs(), 58);
}

/// A flow whose tasks find their earlier results in the world.
fn diamond(bad: Option<usize>) -> Flow<World> {
    let mut flow = Flow::new("Flow");
    let mut ids: Vec<TaskId> = Vec::new();
    let needs: [&[usize]; 6] = [&[], &[0], &[0], &[1, 2], &[3], &[0]];
    for (index, needs) in needs.iter().enumerate() {
        let needs: Vec<TaskId> = needs.iter().map(|need| ids[*need]).collect();
        let action = move |world: &mut World, attempt: &Attempt| {
            if bad == Some(index) && attempt.tries > 0 {
                panic!("task {index}");
            }
            let name = format!("t{index}");
            if attempt.tries == 0 && !world.log.contains(&name) {
                return Ok(Step::again(Duration::from_secs(1), "made"));
            }
            if !world.log.contains(&name) {
                world.log.push(name);
            }
            Ok(Step::Done)
        };
        ids.push(flow.task(format!("t{index}"), action).after(&needs).add());
    }
    flow
}

#[test]
fn a_panic_in_any_task_is_its_error_and_the_next_run_succeeds() {
    for bad in 0..6 {
        let (mut flow, mut world) = (diamond(Some(bad)), World::default());
        let mut time = Duration::ZERO;
        let ended = loop {
            let now = Mono::default().saturating_add(time);
            let turn = catch_unwind(AssertUnwindSafe(|| flow.turn(&mut world, &|| now, &mut Silent)));
            match turn {
                Ok(Turn::Ended(ended)) => break ended,
                Ok(Turn::Again(after)) => time += after,
                Err(_) => time += Duration::from_secs(1),
            }
        };
        let tasks: Vec<_> = ended.errors.iter().map(|error| error.task.clone()).collect();
        assert_eq!(tasks, [format!("t{bad}")]);
        assert!(!world.log.contains(&format!("t{bad}")));
        assert_eq!(run(&mut diamond(None), &mut world, &mut Silent).0, ENDED_WELL);
        assert_eq!(world.log.iter().collect::<SortedSet<_>>().len(), 6);
    }
}

/// As controllers keep a flow: outside of the map during its turn.
#[test]
fn a_flow_whose_task_panics_is_kept_for_its_next_turn() {
    let mut flow = Flow::new("Flow");
    flow.task("a", does("a")).add();
    flow.task("b", |_: &mut World, _| panic!("b")).add();
    let kept = Mutex::new(Some((flow, World::default())));
    let turn = || {
        let running = kept.lock().unwrap().take().unwrap();
        let mut held = Held::new(|running| *kept.lock().unwrap() = Some(running));
        let (flow, world) = held.lend(running);
        let turn = flow.turn(world, &|| at(0), &mut Silent);
        if matches!(turn, Turn::Ended(_)) {
            held.forget();
        }
        turn
    };
    assert!(catch_unwind(AssertUnwindSafe(turn)).is_err());
    assert_eq!(kept.lock().unwrap().as_ref().unwrap().1.log, ["a"]);
    let Turn::Ended(ended) = turn() else { panic!() };
    assert_eq!(ended.errors.len(), 1);
    assert_eq!(ended.errors[0].task, "b");
    assert!(kept.lock().unwrap().is_none(), "a flow that has ended is not kept");
}

#[test]
fn a_crash_or_a_stop_between_any_two_turns_loses_nothing() {
    for turns in 0..12 {
        for crash in [true, false] {
            let (mut flow, mut world) = (diamond(None), World::default());
            let mut time = Duration::ZERO;
            for _ in 0..turns {
                let now = Mono::default().saturating_add(time);
                match flow.turn(&mut world, &|| now, &mut Silent) {
                    Turn::Again(after) => time += after,
                    Turn::Ended(ended) => assert_eq!(ended, ENDED_WELL),
                }
            }
            let done = world.log.len();
            if !crash {
                flow.cancel();
                let (ended, _) = run(&mut flow, &mut world, &mut Silent);
                assert!(ended.is_cancelled && ended.errors.iter().all(|error| error.failed.text == "made"));
                assert_eq!(world.log.len(), done, "a cancelled flow starts nothing and ends at once");
            }
            assert_eq!(run(&mut diamond(None), &mut world, &mut Silent).0, ENDED_WELL);
            assert_eq!(world.log.len(), 6, "each once: {:?}", world.log);
        }
    }
}

/// Flows wait in a queue until the time of their next turn. A turn needs a worker, waiting needs none.
#[test]
fn a_thousand_flows_share_eight_workers() {
    const FLOWS: usize = 1_000;
    let flows: Vec<_> = (0..FLOWS).map(|_| Mutex::new((diamond(None), World::default(), 0_u64))).collect();
    let flows = Arc::new(flows);
    let (queue, queued) = mpsc::channel();
    let queued = Arc::new(Mutex::new(queued));
    (0..FLOWS).for_each(|index| queue.send(Some(index)).unwrap());
    let left = Arc::new(Mutex::new(FLOWS));
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let (flows, queue, queued, left) =
                (Arc::clone(&flows), queue.clone(), Arc::clone(&queued), Arc::clone(&left));
            thread::spawn("worker", 256 << 10, move || {
                let mut turns = 0;
                loop {
                    let next = queued.lock().unwrap().recv().unwrap();
                    let Some(index) = next else { return turns };
                    turns += 1;
                    let (flow, world, seconds) = &mut *flows[index].lock().unwrap();
                    let now = at(*seconds);
                    match flow.turn(world, &|| now, &mut Silent) {
                        Turn::Again(after) => {
                            *seconds += after.as_secs().max(1);
                            queue.send(Some(index)).unwrap();
                        }
                        Turn::Ended(ended) => {
                            assert_eq!(ended, ENDED_WELL);
                            let mut left = left.lock().unwrap();
                            *left -= 1;
                            if *left == 0 {
                                (0..8).for_each(|_| queue.send(None).unwrap());
                            }
                        }
                    }
                }
            })
            .unwrap()
        })
        .collect();
    let turns: usize = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    assert!(turns <= 6 * FLOWS, "{turns} turns: each wakes a flow that has work to do");
    assert!(flows.iter().all(|flow| flow.lock().unwrap().1.log.len() == 6));
}

#[test]
fn a_slow_flow_yields_its_worker() {
    let mut flow = Flow::<Vec<&'static str>>::new("Flow");
    for name in ["a", "b", "c"] {
        let action = move |order: &mut Vec<&'static str>, _: &Attempt| {
            order.push(name);
            Ok(Step::again(Duration::from_secs(1), "slow"))
        };
        flow.task(name, action).add();
    }
    // Each read of the clock takes a second, so that a turn has time for one step.
    let seconds = std::cell::Cell::new(0);
    let clock = || {
        seconds.set(seconds.get() + 1);
        at(seconds.get())
    };
    let mut order = Vec::new();
    for _ in 0..4 {
        assert!(matches!(flow.turn(&mut order, &clock, &mut Silent), Turn::Again(_)));
    }
    assert_eq!(order, ["a", "b", "c", "a"], "the longest waiting one is first");
}
