use std::cell::Cell;
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
    /// The task that panics at its second try.
    bad: Option<usize>,
}

#[derive(Default)]
struct Notes(Vec<String>);

impl FlowObserver for Notes {
    fn progress(&mut self, progress: &FlowProgress) {
        self.0.push(format!("{} {}", progress.percent, progress.description));
    }

    fn done(&mut self, task: &str) {
        self.0.push(format!("done {task}"));
    }
}

struct Silent;

impl FlowObserver for Silent {
    fn progress(&mut self, _: &FlowProgress) {}
}

fn at(seconds: u64) -> Mono {
    Mono::default().saturating_add(Duration::from_secs(seconds))
}

type TestTask = TaskRow<World, (), ()>;

const fn task(name: &'static str, run: TaskFunction<World>) -> TestTask {
    TaskRow::new(name, run, ())
}

/// A task that is done at once.
macro_rules! does {
    ($name:literal) => {
        task($name, |world, _| {
            world.log.push($name.to_owned());
            Ok(TaskStep::Done)
        })
    };
}

fn flow(rows: &[TestTask]) -> Flow<World> {
    Flow::new("Flow", rows, &())
}

fn run(
    flow: &mut Flow<World>,
    world: &mut World,
    observer: &mut dyn FlowObserver,
) -> (Vec<TaskError>, Duration) {
    let mut time = Duration::ZERO;
    for _ in 0..10_000 {
        let now = Mono::default().saturating_add(time);
        match flow.turn(world, &|| now, observer) {
            FlowTurn::Again(after) => time += after.max(Duration::from_millis(1)),
            FlowTurn::Ended(ended) => return (ended, time),
        }
    }
    panic!("the flow does not end: {flow:?}");
}

const ENDED_WELL: Vec<TaskError> = Vec::new();

#[test]
fn a_task_that_takes_long_says_how_far_it_is() {
    let keys: TaskFunction<u32> = |made, _| {
        *made += 1;
        let why = Failed::progress(format!("making RSA keys, {made} of 2"));
        Ok(if *made > 2 { TaskStep::Done } else { TaskStep::again(Duration::ZERO, why) })
    };
    let rows = [
        TaskRow::<u32, (), ()>::new("First", |_, _| Ok(TaskStep::Done), ()),
        TaskRow::new("Keys", keys, ()).after(&["First"]),
        TaskRow::new("Other", |_, _| Ok(TaskStep::again(Duration::from_secs(9), "it waits")), ())
            .after(&["First"]),
    ];
    let mut flow = Flow::new("Flow", &rows, &());
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
    let mut flow = flow(&[
        does!("a"),
        does!("b").after(&["a"]).when(|()| false),
        does!("c"),
        does!("d").after(&["b"]).also_after(|()| true, &["c"]),
        does!("e").after(&["d"]).also_after(|()| false, &["b"]),
    ]);
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
    let mut flow = flow(&[
        task("a", |_, _| Err(Failed::new("no"))),
        does!("b").after(&["a"]).when(|()| false),
        does!("c").after(&["b"]),
    ]);
    let mut world = World::default();
    let (ended, _) = run(&mut flow, &mut world, &mut Silent);
    assert_eq!(ended.len(), 1);
    assert!(world.log.is_empty(), "dependents of a failed task never start, also across a skipped task");
}

#[test]
fn a_failure_stops_only_its_dependents() {
    fn broken() -> Failed {
        Failed { codes: vec!["ERR_CONFIGURATION_PROBLEM".to_owned()], ..Failed::new("broken") }
    }
    let mut flow = flow(&[
        does!("a"),
        task("b", |_, _| Err(broken())).after(&["a"]),
        does!("c").after(&["b"]),
        does!("d").after(&["a"]),
        task("e", |_, _| Err(Failed::new("late"))).after(&["d"]),
    ]);
    let mut world = World::default();
    let (ended, _) = run(&mut flow, &mut world, &mut Silent);
    assert_eq!(world.log, ["a", "d"]);
    let late = TaskError { task: "e".to_owned(), failed: Failed::new("late") };
    assert_eq!(ended, [TaskError { task: "b".to_owned(), failed: broken() }, late]);
}

#[test]
fn waiting_retrying_and_timing_out() {
    const FIVE: Duration = Duration::from_secs(5);
    fn ready_at(seconds: u64, attempt: &Attempt) -> Result<TaskStep, Failed> {
        let is_ready = attempt.now >= at(seconds);
        Ok(if is_ready { TaskStep::Done } else { TaskStep::again(FIVE, "not ready") })
    }
    fn fails_until(until: u32, attempt: &Attempt) -> Result<TaskStep, Failed> {
        match attempt.tries {
            tries if tries < until => Err(Failed::new(format!("try {tries}"))),
            _ => Ok(TaskStep::Done),
        }
    }
    let postponed: TaskFunction<World> = |_, attempt| {
        let postponed = Some(Duration::from_secs(1));
        if attempt.now < at(10) {
            return Err(Failed { postponed, ..Failed::new("nothing was sent") });
        }
        assert_eq!(attempt.tries, 0, "a request that was not sent is no try");
        Ok(TaskStep::Done)
    };
    let mut flow = flow(&[
        task("soon", |_, attempt| ready_at(12, attempt)).within(Duration::from_secs(60)),
        task("late", |_, attempt| ready_at(61, attempt)).within(Duration::from_secs(58)),
        task("longer", |_, attempt| ready_at(57, attempt))
            .within(FIVE)
            .longer(|()| true, Duration::from_secs(58)),
        task("flaky", |_, attempt| fails_until(3, attempt)).retrying(FIVE, Duration::from_secs(30)),
        task("broken", |_, attempt| fails_until(99, attempt)).retrying(FIVE, Duration::from_secs(30)),
        task("postponed", postponed),
    ]);
    let (ended, took) = run(&mut flow, &mut World::default(), &mut Silent);
    let told: Vec<_> = ended.iter().map(|e| (e.task.as_str(), e.failed.text.as_str())).collect();
    assert_eq!(told, [("broken", "try 6"), ("late", "not ready")]);
    assert_eq!(took.as_secs(), 58);
}

/// A flow whose tasks find their earlier results in the world.
fn diamond() -> Flow<World> {
    fn step<const INDEX: usize>(world: &mut World, attempt: &Attempt) -> Result<TaskStep, Failed> {
        assert!(world.bad != Some(INDEX) || attempt.tries == 0, "task {INDEX}");
        let name = format!("t{INDEX}");
        if attempt.tries == 0 && !world.log.contains(&name) {
            return Ok(TaskStep::again(Duration::from_secs(1), "made"));
        }
        if !world.log.contains(&name) {
            world.log.push(name);
        }
        Ok(TaskStep::Done)
    }
    flow(&[
        task("t0", step::<0>),
        task("t1", step::<1>).after(&["t0"]),
        task("t2", step::<2>).after(&["t0"]),
        task("t3", step::<3>).after(&["t1", "t2"]),
        task("t4", step::<4>).after(&["t3"]),
        task("t5", step::<5>).after(&["t0"]),
    ])
}

#[test]
fn a_panic_in_any_task_is_its_error_and_the_next_run_succeeds() {
    for bad in 0..6 {
        let (mut flow, mut world) = (diamond(), World { bad: Some(bad), ..World::default() });
        let mut time = Duration::ZERO;
        let ended = loop {
            let now = Mono::default().saturating_add(time);
            let turn = catch_unwind(AssertUnwindSafe(|| flow.turn(&mut world, &|| now, &mut Silent)));
            match turn {
                Ok(FlowTurn::Ended(ended)) => break ended,
                Ok(FlowTurn::Again(after)) => time += after,
                Err(_) => time += Duration::from_secs(1),
            }
        };
        let tasks: Vec<_> = ended.iter().map(|error| error.task.clone()).collect();
        assert_eq!(tasks, [format!("t{bad}")]);
        assert!(!world.log.contains(&format!("t{bad}")));
        world.bad = None;
        assert_eq!(run(&mut diamond(), &mut world, &mut Silent).0, ENDED_WELL);
        assert_eq!(world.log.iter().collect::<SortedSet<_>>().len(), 6);
    }
}

/// As controllers keep a flow: outside of the map during its turn.
#[test]
fn a_flow_whose_task_panics_is_kept_for_its_next_turn() {
    let flow = flow(&[does!("a"), task("b", |_, _| panic!("b"))]);
    let kept = Mutex::new(Some((flow, World::default())));
    let turn = || {
        let running = kept.lock().unwrap().take().unwrap();
        let mut held = LentValue::new(|running| *kept.lock().unwrap() = Some(running));
        let (flow, world) = held.lend(running);
        let turn = flow.turn(world, &|| at(0), &mut Silent);
        if matches!(turn, FlowTurn::Ended(_)) {
            held.forget();
        }
        turn
    };
    assert!(catch_unwind(AssertUnwindSafe(turn)).is_err());
    assert_eq!(kept.lock().unwrap().as_ref().unwrap().1.log, ["a"]);
    let FlowTurn::Ended(ended) = turn() else { panic!() };
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].task, "b");
    assert!(kept.lock().unwrap().is_none(), "a flow that has ended is not kept");
}

#[test]
fn a_crash_between_any_two_turns_loses_nothing() {
    for turns in 0..12 {
        let (mut flow, mut world) = (diamond(), World::default());
        let mut time = Duration::ZERO;
        for _ in 0..turns {
            let now = Mono::default().saturating_add(time);
            match flow.turn(&mut world, &|| now, &mut Silent) {
                FlowTurn::Again(after) => time += after,
                FlowTurn::Ended(ended) => assert_eq!(ended, ENDED_WELL),
            }
        }
        assert_eq!(run(&mut diamond(), &mut world, &mut Silent).0, ENDED_WELL);
        assert_eq!(world.log.len(), 6, "each once: {:?}", world.log);
    }
}

/// Flows wait in a queue until the time of their next turn. A turn needs a worker, waiting needs none.
#[test]
fn a_thousand_flows_share_eight_workers() {
    const FLOWS: usize = 1_000;
    let flows: Vec<_> = (0..FLOWS).map(|_| Mutex::new((diamond(), World::default(), 0_u64))).collect();
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
                        FlowTurn::Again(after) => {
                            *seconds += after.as_secs().max(1);
                            queue.send(Some(index)).unwrap();
                        }
                        FlowTurn::Ended(ended) => {
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
    macro_rules! slow {
        ($name:literal) => {
            TaskRow::<Vec<&str>, (), ()>::new(
                $name,
                |order, _| {
                    order.push($name);
                    Ok(TaskStep::again(Duration::from_secs(1), "slow"))
                },
                (),
            )
        };
    }
    let mut flow = Flow::new("Flow", &[slow!("a"), slow!("b"), slow!("c")], &());
    // Each read of the clock takes a second, so that a turn has time for one step.
    let seconds = Cell::new(0);
    let clock = || {
        seconds.set(seconds.get() + 1);
        at(seconds.get())
    };
    let mut order = Vec::new();
    for _ in 0..4 {
        assert!(matches!(flow.turn(&mut order, &clock, &mut Silent), FlowTurn::Again(_)));
    }
    assert_eq!(order, ["a", "b", "c", "a"], "the longest waiting one is first");
}

#[test]
fn a_wrong_table_has_problems() {
    let good = [does!("a"), does!("b").after(&["a"]).last()];
    assert_eq!(problems(&good), [""; 0]);
    let wrong = [
        does!("a").after(&["c", "x", "a"]),
        does!("b").after(&["a"]),
        does!("c").after(&["a"]).also_after(|()| true, &["y"]),
        does!("a").last(),
    ];
    assert_eq!(
        problems(&wrong),
        [
            "\"a\" is the last one, but others wait for it",
            "two tasks have the name \"a\"",
            "\"a\" waits for \"c\", which waits for it",
            "\"a\" waits for \"x\", which is no task",
            "\"a\" waits for itself",
            "\"b\" is not waited for",
            "\"c\" waits for \"y\", which is no task",
        ]
    );
}

#[test]
fn the_order_of_a_table_does_not_matter() {
    let rows = [does!("c").after(&["b"]).last(), does!("b").also_after(|()| false, &["a"]), does!("a")];
    assert_eq!(problems(&rows), [""; 0]);
    let outline = outline(&rows, &());
    assert_eq!(outline.iter().map(|task| task.name).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(outline.iter().map(|task| task.needs.clone()).collect::<Vec<_>>(), [vec![], vec![], vec![1]]);
}

#[test]
fn a_conflict_is_no_failure_unless_it_stays() {
    let conflict = || Failed { verdict: Some(ErrorVerdict::Conflict), ..Failed::new("changed") };
    let run = |most: u32| {
        let row = TaskRow::<u32, (), ()>::new(
            "a",
            |left, _| {
                if *left == 0 {
                    return Ok(TaskStep::Done);
                }
                *left -= 1;
                Err(Failed { verdict: Some(ErrorVerdict::Conflict), ..Failed::new("changed") })
            },
            (),
        )
        .last();
        let mut flow = Flow::new("f", &[row], &());
        let (seconds, mut left) = (Cell::new(0), most);
        loop {
            seconds.set(seconds.get() + 1);
            if let FlowTurn::Ended(errors) = flow.turn(&mut left, &|| at(seconds.get()), &mut Silent) {
                return errors;
            }
        }
    };
    assert_eq!(run(5), []);
    assert_eq!(run(6), [TaskError { task: "a".to_owned(), failed: conflict() }]);
}
